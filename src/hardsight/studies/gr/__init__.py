"""Gradient Rescaling (Wang et al. 2019): which examples to emphasise under label noise."""

from hardsight.studies.framework import Study

STUDIES: tuple[Study, ...] = ()
