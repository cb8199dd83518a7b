"""GR, Table 10: the same regularisers under asymmetric noise: labels wrong within CIFAR-100's coarse classes.

Paper (ResNet-44, 20 %): baseline 55.1, L2 59.4, Dropout+L2 60.4, GR 60.5, GR+L2 63.7, GR+L2+Dropout 61.4.
Ours: not measured yet.
"""

from hardsight_studies.gr.regularisers import Regularisers
from hardsight_studies.gr.terms import CCE, GR, HOW_LONG, LENGTH, LET_GO, OPTIMISER
from hardsight_studies.wording import terms

PRINTED = {0.2: "55.1 59.4 57.1 60.4 60.5 63.7 59.4 61.4"}

ABOUT = f"""Does gradient rescaling (GR) in place of cross-entropy (CCE) help beside weight decay and dropout where
labels are wrong among alike classes? The paper asks it on CIFAR-100: each label is replaced, with a probability of 20
%, by one of the other four classes of its coarse class (a maple by an oak, say).

{terms(CCE, GR)}

**How it is made.** ResNet-44 on CIFAR-100 with that noise, with and without each regulariser. Else as printed:
{OPTIMISER} {HOW_LONG} {LET_GO}

{LENGTH}

**Figure.** Accuracy after every epoch on the training images with their given labels (left) and the test images
(right)."""

TABLE10 = Regularisers("cifar100", PRINTED, noise="within_groups", seeds=3).study(
    "gr-table10", "GR as a regulariser where labels are wrong among alike classes", ABOUT, "GR Table 10"
)
