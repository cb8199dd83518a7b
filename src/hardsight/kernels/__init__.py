"""Fused versions of what geometry, hardness and losses define: for each op a reference, a Triton version, a dispatch.

Every op works under `torch.compile`, autocast, data parallelism and checkpointing; without Triton or a CUDA device the
plain version runs. Second derivatives through a gradient that an op writes itself raise.
"""

from hardsight.kernels.angular_cross_entropy import angular_cross_entropy
from hardsight.kernels.angular_scores import AngularScores, angular_scores
from hardsight.kernels.pairwise_angular_contrast import pairwise_angular_contrast
from hardsight.kernels.rescaled_cross_entropy import attach_rescaled_gradient, rescaled_cross_entropy, row_statistics
from hardsight.kernels.rescaled_linear_cross_entropy import rescaled_linear_cross_entropy
from hardsight.kernels.rescaling import RowStatistics

__all__ = [
    "AngularScores",
    "RowStatistics",
    "angular_cross_entropy",
    "angular_scores",
    "attach_rescaled_gradient",
    "pairwise_angular_contrast",
    "rescaled_cross_entropy",
    "rescaled_linear_cross_entropy",
    "row_statistics",
]
