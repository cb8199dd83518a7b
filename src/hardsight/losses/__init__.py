"""Losses that know hard from wrong, each a pure function and a module around it; see docs/losses.md."""

from hardsight.losses.accumulation import AccumulatedRescaling, compute_loss_func
from hardsight.losses.angular import (
    AngularLinear,
    ArcFace,
    AVHLoss,
    CosFace,
    CosineLinear,
    NormFace,
    SphereFace,
    angular_logits,
    avh_loss,
    margin_logits,
    margin_loss,
)
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.contrastive import (
    AMC_PAPER,
    AMC_SCRIPT,
    AMCLoss,
    AMCSchedule,
    ContrastiveLoss,
    amc_loss,
    contrastive_loss,
    gaussian_ramp_down,
    gaussian_ramp_up,
)
from hardsight.losses.correction import (
    BackwardCorrection,
    ForwardCorrection,
    SAdaptation,
    backward_correction_loss,
    forward_correction_loss,
    transition_from_labels,
    transition_from_predictions,
)
from hardsight.losses.curriculum import (
    D2L,
    MentorNetPD,
    SelfPaced,
    d2l_loss,
    local_intrinsic_dimensionality,
    mentornet_weights,
    self_paced_loss,
    self_paced_weights,
)
from hardsight.losses.emphasis import emphasis_focus, emphasis_spread, weight_curve
from hardsight.losses.entropy import (
    CrossEntropy,
    LabelSmoothing,
    SphericalSoftmaxLoss,
    TaylorSoftmaxLoss,
    cross_entropy,
    distillation_loss,
    spherical_softmax_loss,
    taylor_softmax_loss,
)
from hardsight.losses.joint import JointOptimisation, joint_optimisation_loss
from hardsight.losses.metric import (
    CenterLoss,
    TripletLoss,
    Triplets,
    center_loss,
    mine_triplets,
    triplet_loss,
    updated_centers,
)
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
    TruncatedGCELoss,
    bootstrapping_loss,
    focal_loss,
    gce_loss,
    mae_loss,
    symmetric_cross_entropy,
    truncated_gce_loss,
)

__all__ = [
    "AMC_PAPER", "AMC_SCRIPT", "D2L", "LOSSES", "AMCLoss", "AMCSchedule", "AVHLoss", "AccumulatedRescaling",
    "AngularLinear", "ArcFace", "AutomaticRescaling", "BackwardCorrection", "CenterLoss", "ContrastiveLoss",
    "CosFace", "CosineLinear", "CrossEntropy", "FocalLoss", "ForwardCorrection", "GCELoss", "GradientRescaling",
    "HardBootstrapping", "JointOptimisation", "LabelSmoothing", "LossEntry", "MAELoss", "MentorNetPD", "NormFace",
    "SAdaptation", "SelfPaced", "SoftBootstrapping", "SphereFace", "SphericalSoftmaxLoss", "SymmetricCrossEntropy",
    "TaylorSoftmaxLoss", "TripletLoss", "Triplets", "TruncatedGCELoss", "amc_loss", "angular_logits", "avh_loss",
    "backward_correction_loss", "bootstrapping_loss", "center_loss", "compute_loss_func", "contrastive_loss",
    "cross_entropy", "d2l_loss", "distillation_loss", "emphasis_focus", "emphasis_spread", "focal_loss",
    "forward_correction_loss", "gaussian_ramp_down", "gaussian_ramp_up", "gce_loss", "gradient_rescaling",
    "joint_optimisation_loss", "linear_gradient_rescaling", "local_intrinsic_dimensionality", "mae_loss",
    "margin_logits", "margin_loss", "mentornet_weights", "mine_triplets", "rescaling_weights", "self_paced_loss",
    "self_paced_weights", "spherical_softmax_loss", "symmetric_cross_entropy", "taylor_softmax_loss",
    "transition_from_labels", "transition_from_predictions", "triplet_loss", "truncated_gce_loss",
    "updated_centers", "weight_curve",
]  # fmt: skip
