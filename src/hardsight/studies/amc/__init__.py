"""AMC-Loss (Choi et al. 2020): features on the sphere, and what the network looks at."""

from hardsight.studies.framework import Study

STUDIES: tuple[Study, ...] = ()
