"""Studies: one file per table or figure, read top to bottom; each opens with its claim and its result.

`hardsight study list` names them, `run` computes what is missing, `table` prints ours beside the reference's.
"""

from hardsight_studies.framework import Options, Study
from hardsight_studies.registry import get_study, studies
from hardsight_studies.results_file import read_results
from hardsight_studies.running import judge_study, run_study

__all__ = ["Options", "Study", "get_study", "judge_study", "read_results", "run_study", "studies"]
