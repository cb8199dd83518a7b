"""Fused computations for thousands of classes: what `hs.score` and the losses run on a GPU, one module each.

`losses` and `hardness` choose between these and their plain formulas. `angular_scores` is public as well: all numbers
that the hardness scores are made of, in one pass. Everything works under `torch.compile`, autocast, data parallelism
and checkpointing.
"""

from hardsight.kernels.angular_scores import AngularScores, angular_scores

__all__ = ["AngularScores", "angular_scores"]
