"""GR, Table 8: GR against weight decay and dropout, on CIFAR-100 with 40 % wrong labels.

Paper (ResNet-44): baseline 44.7, L2 51.5, Dropout+L2 52.8, GR 55.7, GR+L2 59.3, GR+L2+Dropout 58.3, mean of five seeds.
Ours: not measured yet at full size.
"""

from hardsight.studies.gr.regularisers import Regularisers

PRINTED = {0.4: "44.7±0.1 51.5±0.4 46.7±0.5 52.8±0.4 55.7±0.3 59.3±0.2 54.3±0.4 58.3±0.3"}

ABOUT = """CIFAR-100, 40 % symmetric noise, ResNet-44, the printed optimiser (as in `gr-table3`). L2 is weight decay
1e-4, dropout drops 20 % of the features before the head, GR has β = 8, λ = 0.5; the baseline is CCE without all of
them."""

TABLE8 = Regularisers("cifar100", PRINTED, seeds=5).study(
    "gr-table8", "GR as a regulariser beside weight decay and dropout", ABOUT, "GR Table 8"
)
