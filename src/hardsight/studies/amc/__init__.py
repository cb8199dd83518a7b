"""AMC-Loss (Choi et al. 2020): features on the sphere, and what the network looks at."""

from hardsight.studies.amc.table1 import AMC_TABLE1
from hardsight.studies.framework import Study
from hardsight.studies.hardness_by_loss import HARDNESS_BY_LOSS

STUDIES: tuple[Study, ...] = (AMC_TABLE1, HARDNESS_BY_LOSS)
