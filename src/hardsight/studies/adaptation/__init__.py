"""Angular Visual Hardness (Chen et al. 2020), section 5.1: self-training for domain adaptation."""

from hardsight.studies.adaptation.table3 import TABLE_3
from hardsight.studies.framework import Study

STUDIES: tuple[Study, ...] = (TABLE_3,)
