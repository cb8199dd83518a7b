"""AMC-Loss (Choi et al. 2020): features on the sphere, and what the network looks at."""

from hardsight_studies.amc.attention import AMC_FIGURE6
from hardsight_studies.amc.features import AMC_FIGURE1, AMC_FIGURE4, AMC_FIGURE5
from hardsight_studies.amc.figure7 import AMC_FIGURE7
from hardsight_studies.amc.table1 import AMC_TABLE1
from hardsight_studies.framework import Study
from hardsight_studies.hardness_by_loss import HARDNESS_BY_LOSS

STUDIES: tuple[Study, ...] = (
    AMC_TABLE1,
    AMC_FIGURE1,
    AMC_FIGURE4,
    AMC_FIGURE5,
    AMC_FIGURE6,
    AMC_FIGURE7,
    HARDNESS_BY_LOSS,
)
