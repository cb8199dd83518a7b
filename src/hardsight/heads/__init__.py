"""A classifier's last linear layer: found in any model, watched while the model runs, or fitted to features."""

from hardsight.hardness.several_passes import evaluating
from hardsight.heads.calls import find_head, unwrap
from hardsight.heads.fitting import FittedHead, fit_head, record_head
from hardsight.heads.observing import Seen, observe

__all__ = ["FittedHead", "Seen", "evaluating", "find_head", "fit_head", "observe", "record_head", "unwrap"]
