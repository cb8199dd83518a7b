"""GR, Table 10: the same regularisers under asymmetric noise: labels wrong within CIFAR-100's coarse classes.

Paper (ResNet-44, 20 %): baseline 55.1, L2 59.4, Dropout+L2 60.4, GR 60.5, GR+L2 63.7, GR+L2+Dropout 61.4.
Ours: not measured yet.
"""

from hardsight.studies.gr.regularisers import Regularisers

PRINTED = {0.2: "55.1 59.4 57.1 60.4 60.5 63.7 59.4 61.4"}

ABOUT = """CIFAR-100, each label with probability 20 % to one of the other four classes of its coarse class, ResNet-44,
the printed optimiser (as in `gr-table3`). GR has β = 8, λ = 0.5."""

TABLE10 = Regularisers("cifar100", PRINTED, noise="within_groups", seeds=3).study(
    "gr-table10", "GR as a regulariser where labels are wrong among alike classes", ABOUT, "GR Table 10"
)
