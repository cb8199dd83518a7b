"""A classifier's last linear layer: found in any model, watched while the model runs."""

from hardsight.heads.candidates import find_head, unwrap
from hardsight.heads.observing import Seen, evaluating, observe

__all__ = ["Seen", "evaluating", "find_head", "observe", "unwrap"]
