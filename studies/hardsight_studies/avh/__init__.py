"""Angular Visual Hardness (Chen et al. 2020), sections 3 and 4: agreement with people, training dynamics, pictures."""

from hardsight_studies.avh.agreement_bins import TABLE_1
from hardsight_studies.avh.agreement_scores import AGREEMENT
from hardsight_studies.avh.agreement_tests import TABLE_2, TABLES_6_TO_9
from hardsight_studies.avh.figure2 import FIGURE_2
from hardsight_studies.avh.figure3 import FIGURE_3
from hardsight_studies.avh.figure4 import FIGURE_4, FIGURE_14
from hardsight_studies.avh.figure5 import FIGURE_5
from hardsight_studies.avh.figure15 import FIGURE_15
from hardsight_studies.avh.figure17 import FIGURE_17
from hardsight_studies.avh.figure19 import FIGURE_19
from hardsight_studies.avh.figure20 import FIGURE_20
from hardsight_studies.avh.figure22 import FIGURE_22
from hardsight_studies.avh.hypotheses import HYPOTHESES
from hardsight_studies.framework import Study

STUDIES: tuple[Study, ...] = (
    TABLE_1,
    TABLE_2,
    TABLES_6_TO_9,
    HYPOTHESES,
    AGREEMENT,
    FIGURE_2,
    FIGURE_3,
    FIGURE_4,
    FIGURE_5,
    FIGURE_14,
    FIGURE_15,
    FIGURE_17,
    FIGURE_19,
    FIGURE_20,
    FIGURE_22,
)
