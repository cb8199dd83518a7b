"""Studies: one file per table or figure, read top to bottom; each opens with its claim and its result.

`hardsight study list` names them, `run` computes what is missing, `table` prints ours beside the reference's.
"""

from hardsight.studies.framework import Options, Study, judge_study, read_results, run_study
from hardsight.studies.registry import get_study, studies

__all__ = ["Options", "Study", "get_study", "judge_study", "read_results", "run_study", "studies"]
