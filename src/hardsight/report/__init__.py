"""Report: figures and one self-contained HTML page, made from a record alone: no model, no data, no network."""

from hardsight.report.alignment_page import write_alignment_page
from hardsight.report.figures import write_summary_picture
from hardsight.report.record_page import write_figures, write_report
from hardsight.report.view import samples_shown

__all__ = ["samples_shown", "write_alignment_page", "write_figures", "write_report", "write_summary_picture"]
