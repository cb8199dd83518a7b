"""Angular Visual Hardness (Chen et al. 2020), section 5.1: self-training for domain adaptation."""

from hardsight_studies.adaptation.table3 import TABLE_3
from hardsight_studies.framework import Study

STUDIES: tuple[Study, ...] = (TABLE_3,)
