"""Angular Visual Hardness (Chen et al. 2020), sections 3 and 4: agreement with people, training dynamics, pictures."""

from hardsight.studies.avh.agreement_bins import TABLE_1
from hardsight.studies.avh.agreement_scores import AGREEMENT
from hardsight.studies.avh.agreement_tests import TABLE_2, TABLES_6_TO_9
from hardsight.studies.avh.figure4 import FIGURE_4, FIGURE_14
from hardsight.studies.avh.hypotheses import HYPOTHESES
from hardsight.studies.framework import Study

STUDIES: tuple[Study, ...] = (TABLE_1, TABLE_2, TABLES_6_TO_9, HYPOTHESES, AGREEMENT, FIGURE_4, FIGURE_14)
