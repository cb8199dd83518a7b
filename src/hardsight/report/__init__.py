"""Report: figures and one self-contained HTML page, made from a record alone: no model, no data, no network."""

from hardsight.report.gallery import write_figures
from hardsight.report.page import write_report
from hardsight.report.summary import write_summary_picture
from hardsight.report.view import samples_shown

__all__ = ["samples_shown", "write_figures", "write_report", "write_summary_picture"]
