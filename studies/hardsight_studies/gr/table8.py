"""GR, Table 8: GR against weight decay and dropout, on CIFAR-100 with 40 % wrong labels.

Paper (ResNet-44): baseline 44.7, L2 51.5, Dropout+L2 52.8, GR 55.7, GR+L2 59.3, GR+L2+Dropout 58.3, mean of five seeds.
Ours: not measured yet at full size.
"""

from hardsight_studies.gr.regularisers import Regularisers
from hardsight_studies.gr.terms import CCE, GR, HOW_LONG, LENGTH, LET_GO, NOISE, OPTIMISER
from hardsight_studies.wording import terms

PRINTED = {0.4: "44.7±0.1 51.5±0.4 46.7±0.5 52.8±0.4 55.7±0.3 59.3±0.2 54.3±0.4 58.3±0.3"}

ABOUT = f"""Weight decay and dropout keep a network from learning wrong labels by heart. Does gradient rescaling (GR) in
place of cross-entropy (CCE) do as much, and does it help beside them? The paper asks it on CIFAR-100 with 40 % wrong
labels.

{terms(CCE, GR, NOISE)}

**How it is made.** ResNet-44 on CIFAR-100, 40 % symmetric noise, with and without each regulariser. Else as printed:
{OPTIMISER} {HOW_LONG} {LET_GO}

{LENGTH}

**Figure.** Accuracy after every epoch on the training images with their given labels (left) and the test images
(right)."""

TABLE8 = Regularisers("cifar100", PRINTED, seeds=5).study(
    "gr-table8", "GR as a regulariser beside weight decay and dropout", ABOUT, "GR Table 8"
)
