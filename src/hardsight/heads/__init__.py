"""A classifier's last linear layer: found in any model, watched while the model runs."""

from hardsight.heads.observing import Seen, evaluating, find_head, observe, unwrap

__all__ = ["Seen", "evaluating", "find_head", "observe", "unwrap"]
