"""Gradient Rescaling (Wang et al. 2019): which examples to emphasise under label noise."""

from hardsight.studies.framework import Study
from hardsight.studies.gr.protocol import PROTOCOL
from hardsight.studies.gr.table3 import TABLE3

STUDIES: tuple[Study, ...] = (PROTOCOL, TABLE3)
