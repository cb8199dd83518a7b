"""Gradient Rescaling (Wang et al. 2019): which examples to emphasise under label noise."""

from hardsight_studies.framework import Study
from hardsight_studies.gr.auto import AUTO_KNOBS
from hardsight_studies.gr.clothing1m import TABLE6
from hardsight_studies.gr.figure1 import FIGURE1
from hardsight_studies.gr.human_noise import HUMAN_NOISE
from hardsight_studies.gr.mars import TABLE7
from hardsight_studies.gr.protocol import PROTOCOL
from hardsight_studies.gr.table1 import TABLE1
from hardsight_studies.gr.table2 import TABLE2
from hardsight_studies.gr.table3 import TABLE3
from hardsight_studies.gr.table4 import TABLE4
from hardsight_studies.gr.table5 import TABLE5
from hardsight_studies.gr.table11 import TABLE11
from hardsight_studies.gr.table12 import TABLE12

STUDIES: tuple[Study, ...] = (
    TABLE1,
    FIGURE1,
    TABLE2,
    PROTOCOL,
    TABLE3,
    TABLE4,
    TABLE5,
    TABLE6,
    TABLE7,
    TABLE11,
    TABLE12,
    HUMAN_NOISE,
    AUTO_KNOBS,
)
