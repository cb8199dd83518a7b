"""Losses that know hard from wrong, each a pure function and a module around it; see docs/losses.md."""

from hardsight.losses.accumulation import AccumulatedRescaling, compute_loss_func
from hardsight.losses.angular import AngularLinear, AVHLoss, angular_logits, avh_loss
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.center import CenterLoss, center_loss, updated_centers
from hardsight.losses.contrastive import AMCLoss, ContrastiveLoss, amc_loss, contrastive_loss
from hardsight.losses.correction import (
    BackwardCorrection,
    ForwardCorrection,
    SAdaptation,
    backward_correction_loss,
    forward_correction_loss,
)
from hardsight.losses.curriculum import MentorNetPD, SelfPaced, mentornet_weights, self_paced_loss, self_paced_weights
from hardsight.losses.dimensionality import D2L, d2l_loss, local_intrinsic_dimensionality
from hardsight.losses.emphasis import emphasis_focus, emphasis_spread, weight_curve
from hardsight.losses.entropy import (
    CrossEntropy,
    LabelSmoothing,
    SphericalSoftmaxLoss,
    TaylorSoftmaxLoss,
    cross_entropy,
    spherical_softmax_loss,
    taylor_softmax_loss,
)
from hardsight.losses.joint import JointOptimisation, joint_optimisation_loss
from hardsight.losses.margins import ArcFace, CosFace, CosineLinear, NormFace, SphereFace, margin_logits, margin_loss
from hardsight.losses.pruning import TruncatedGCELoss, truncated_gce_loss
from hardsight.losses.registry import LOSSES, LossEntry
from hardsight.losses.rescaling import (
    GradientRescaling,
    gradient_rescaling,
    linear_gradient_rescaling,
    rescaling_weights,
)
from hardsight.losses.robust import (
    FocalLoss,
    GCELoss,
    HardBootstrapping,
    MAELoss,
    SoftBootstrapping,
    SymmetricCrossEntropy,
    bootstrapping_loss,
    focal_loss,
    gce_loss,
    mae_loss,
    symmetric_cross_entropy,
)
from hardsight.losses.schedules import AMC_PAPER, AMC_SCRIPT, AMCSchedule, gaussian_ramp_down, gaussian_ramp_up
from hardsight.losses.transition import transition_from_labels, transition_from_predictions

__all__ = [
    "AMC_PAPER",
    "AMC_SCRIPT",
    "D2L",
    "LOSSES",
    "AMCLoss",
    "AMCSchedule",
    "AVHLoss",
    "AccumulatedRescaling",
    "AngularLinear",
    "ArcFace",
    "AutomaticRescaling",
    "BackwardCorrection",
    "CenterLoss",
    "ContrastiveLoss",
    "CosFace",
    "CosineLinear",
    "CrossEntropy",
    "FocalLoss",
    "ForwardCorrection",
    "GCELoss",
    "GradientRescaling",
    "HardBootstrapping",
    "JointOptimisation",
    "LabelSmoothing",
    "LossEntry",
    "MAELoss",
    "MentorNetPD",
    "NormFace",
    "SAdaptation",
    "SelfPaced",
    "SoftBootstrapping",
    "SphereFace",
    "SphericalSoftmaxLoss",
    "SymmetricCrossEntropy",
    "TaylorSoftmaxLoss",
    "TruncatedGCELoss",
    "amc_loss",
    "angular_logits",
    "avh_loss",
    "backward_correction_loss",
    "bootstrapping_loss",
    "center_loss",
    "compute_loss_func",
    "contrastive_loss",
    "cross_entropy",
    "d2l_loss",
    "emphasis_focus",
    "emphasis_spread",
    "focal_loss",
    "forward_correction_loss",
    "gaussian_ramp_down",
    "gaussian_ramp_up",
    "gce_loss",
    "gradient_rescaling",
    "joint_optimisation_loss",
    "linear_gradient_rescaling",
    "local_intrinsic_dimensionality",
    "mae_loss",
    "margin_logits",
    "margin_loss",
    "mentornet_weights",
    "rescaling_weights",
    "self_paced_loss",
    "self_paced_weights",
    "spherical_softmax_loss",
    "symmetric_cross_entropy",
    "taylor_softmax_loss",
    "transition_from_labels",
    "transition_from_predictions",
    "truncated_gce_loss",
    "updated_centers",
    "weight_curve",
]
