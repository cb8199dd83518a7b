"""Unseen domains (Angular Visual Hardness, section 5.2): the AVH loss where no sample of the test domain is seen."""

from hardsight_studies.framework import Study
from hardsight_studies.generalization.table5 import TABLE_5

STUDIES: tuple[Study, ...] = (TABLE_5,)
