"""Every loss of the library with its formula, source and range: the docs' table and the shared law tests read this."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from hardsight.losses.angular import AVHLoss
from hardsight.losses.center import CenterLoss
from hardsight.losses.contrastive import AMCLoss, ContrastiveLoss
from hardsight.losses.correction import BackwardCorrection, ForwardCorrection, SAdaptation
from hardsight.losses.curriculum import MentorNetPD, SelfPaced
from hardsight.losses.dimensionality import D2L
from hardsight.losses.entropy import CrossEntropy, LabelSmoothing, SphericalSoftmaxLoss, TaylorSoftmaxLoss
from hardsight.losses.joint import JointOptimisation
from hardsight.losses.margins import ArcFace, CosFace, NormFace, SphereFace
from hardsight.losses.pruning import TruncatedGCELoss
from hardsight.losses.rescaling import GradientRescaling
from hardsight.losses.robust import (
    FocalLoss,
    GCELoss,
    HardBootstrapping,
    MAELoss,
    SoftBootstrapping,
    SymmetricCrossEntropy,
)
from hardsight.losses.transition import noisy_transition


@dataclass(frozen=True)
class Sizes:
    """What a loss may need to know when it is made."""

    dim: int
    classes: int
    samples: int


@dataclass(frozen=True)
class LossEntry:
    """One loss: how to make it with its defaults, and which laws hold for it."""

    name: str
    make: Callable[[Sizes], nn.Module]
    formula: str
    source: str
    low: float = 0.0
    high: float = math.inf
    takes: str = "logits"  # or "features": the first argument of forward
    needs_ids: bool = False  # forward(..., ids=) names the samples
    soft_targets: bool = True  # class probabilities are accepted as well as indices
    pairs: bool = False  # one loss a pair, not a sample
    best_at_label: bool = True  # the more the labelled class leads, the smaller the loss
    value_has_gradient: bool = True  # False: the gradient is not that of the returned value (GR)
    class_rows: tuple[str, ...] = ()  # state with a row a class
    class_squares: tuple[str, ...] = ()  # state with a row and a column a class


_index_loss = partial(LossEntry, soft_targets=False)
_feature_loss = partial(LossEntry, takes="features", soft_targets=False)
_pair_loss = partial(_feature_loss, pairs=True, best_at_label=False)

_ENTRIES = (
    LossEntry("cross_entropy", lambda n: CrossEntropy(), "−log p_y", "PyTorch's `F.cross_entropy`"),
    LossEntry(
        "label_smoothing",
        lambda n: LabelSmoothing(),
        "−Σ ((1−ε) y + ε/C) log p",
        "Szegedy et al., CVPR 2016",
        best_at_label=False,
    ),
    LossEntry(
        "avh",
        lambda n: AVHLoss(n.dim, n.classes),
        "−log softmax_y s(π−θ)",
        "Chen et al., ICML 2020, Eq. 5 (its −log is missing in print)",
        takes="features",
        class_rows=("head.weight",),
    ),
    _feature_loss(
        "normface",
        lambda n: NormFace(n.dim, n.classes),
        "−log softmax_y s cos θ",
        "Wang et al., ACM MM 2017",
        class_rows=("weight",),
    ),
    _feature_loss(
        "cosface",
        lambda n: CosFace(n.dim, n.classes),
        "s(cos θ_y − m) at the label",
        "Wang et al., CVPR 2018",
        class_rows=("weight",),
    ),
    _feature_loss(
        "arcface",
        lambda n: ArcFace(n.dim, n.classes),
        "s cos(θ_y + m) at the label",
        "Deng et al., CVPR 2019",
        class_rows=("weight",),
    ),
    _feature_loss(
        "sphereface",
        lambda n: SphereFace(n.dim, n.classes),
        "‖x‖ ψ(θ_y) at the label, ψ = (−1)^k cos(mθ) − 2k",
        "Liu et al., CVPR 2017",
        class_rows=("weight",),
    ),
    LossEntry(
        "spherical_softmax",
        lambda n: SphericalSoftmaxLoss(),
        "−log (z_y²+ε) / Σ(z²+ε)",
        "Vincent et al., NeurIPS 2015",
    ),
    LossEntry(
        "taylor_softmax",
        lambda n: TaylorSoftmaxLoss(),
        "−log t(z_y) / Σt(z), t = 1+z+z²/2",
        "de Brébisson & Vincent, ICLR 2016",
    ),
    _pair_loss(
        "amc",
        lambda n: AMCLoss(),
        "θ² for neighbours, max(0, m−θ)² for others",
        "Choi et al., CVPR-W 2020, Eq. 2",
        high=math.pi**2,
    ),
    _pair_loss(
        "amc_all_pairs",
        lambda n: AMCLoss(pairs="all"),
        "the same over every two samples",
        "Choi et al., CVPR-W 2020, Eq. 2",
        high=math.pi**2,
    ),
    _pair_loss(
        "contrastive",
        lambda n: ContrastiveLoss(),
        "d² for neighbours, max(0, m−d)² for others",
        "Choi et al., CVPR-W 2020, Eq. 1",
    ),
    _pair_loss(
        "contrastive_all_pairs",
        lambda n: ContrastiveLoss(pairs="all"),
        "the same over every two samples",
        "Choi et al., CVPR-W 2020, Eq. 1",
    ),
    _feature_loss(
        "center",
        lambda n: CenterLoss(n.dim, n.classes),
        "½ ‖x − c_y‖²",
        "Wen et al., ECCV 2016",
        best_at_label=False,
        class_rows=("centers",),
    ),
    _index_loss(
        "gradient_rescaling",
        lambda n: GradientRescaling(),
        "gradient w (p−y) / 2(1−p_y) / Σw, w = exp(β p^λ (1−p)); value −log p_y",
        "Wang et al., 2019, Eq. 6",
        value_has_gradient=False,
    ),
    LossEntry("mae", lambda n: MAELoss(), "2(1 − p_y)", "Ghosh et al., AAAI 2017", high=2.0),
    LossEntry("gce", lambda n: GCELoss(), "(1 − p_y^q)/q", "Zhang & Sabuncu, NeurIPS 2018", high=1 / 0.7),
    _index_loss(
        "truncated_gce",
        lambda n: TruncatedGCELoss(),
        "(1 − max(p_y, k)^q)/q",
        "Zhang & Sabuncu, NeurIPS 2018",
        high=(1 - 0.5**0.7) / 0.7,
    ),
    _index_loss(
        "truncated_gce_pruned",
        lambda n: TruncatedGCELoss(num_samples=n.samples),
        "(1 − p_y^q)/q where kept, (1 − k^q)/q elsewhere",
        "Zhang & Sabuncu, NeurIPS 2018, Alg. 1",
        high=1 / 0.7,
        needs_ids=True,
    ),
    LossEntry(
        "symmetric_cross_entropy",
        lambda n: SymmetricCrossEntropy(),
        "−α log p_y − β A (1 − p_y), A = log 0",
        "Wang et al., ICCV 2019",
    ),
    LossEntry("focal", lambda n: FocalLoss(), "−(1 − p_y)^γ log p_y", "Lin et al., ICCV 2017"),
    LossEntry(
        "bootstrapping_soft",
        lambda n: SoftBootstrapping(),
        "−Σ (β y + (1−β) p) log p",
        "Reed et al., ICLR-W 2015",
    ),
    LossEntry(
        "bootstrapping_hard",
        lambda n: HardBootstrapping(),
        "−β log p_y − (1−β) log max p",
        "Reed et al., ICLR-W 2015",
    ),
    LossEntry(
        "forward_correction",
        lambda n: ForwardCorrection(noisy_transition(n.classes)),
        "−log (pT)_y",
        "Patrini et al., CVPR 2017",
        class_squares=("transition",),
    ),
    LossEntry(
        "backward_correction",
        lambda n: BackwardCorrection(noisy_transition(n.classes)),
        "−Σ_j T⁻¹_yj log p_j",
        "Patrini et al., CVPR 2017",
        low=-math.inf,
        class_squares=("transition", "inverse"),
    ),
    LossEntry(
        "s_adaptation",
        lambda n: SAdaptation(n.classes),
        "−log (pT)_y, T learnt",
        "Goldberger & Ben-Reuven, ICLR 2017",
        class_squares=("scores",),
    ),
    LossEntry(
        "self_paced",
        lambda n: SelfPaced(threshold=4.0),
        "−v log p_y, v = 1(−log p_y < threshold)",
        "Kumar et al., NeurIPS 2010",
        best_at_label=False,
    ),
    LossEntry(
        "mentornet_pd",
        lambda n: MentorNetPD(),
        "−v log p_y, v by MentorNet's predefined curriculum",
        "Jiang et al., ICML 2018",
        best_at_label=False,
    ),
    LossEntry(
        "d2l",
        lambda n: D2L(),
        "−α log p_y − (1−α) log max p, α = exp(−t/T · LID/min LID)",
        "Ma et al., ICML 2018",
    ),
    LossEntry(
        "joint_optimisation",
        lambda n: JointOptimisation(n.samples, n.classes),
        "KL(ŷ‖p) + α KL(prior‖p̄) + β H(p)",
        "Tanaka et al., CVPR 2018",
        needs_ids=True,
        best_at_label=False,
        class_rows=("prior",),
    ),
)

LOSSES: dict[str, LossEntry] = {entry.name: entry for entry in _ENTRIES}
