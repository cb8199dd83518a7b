"""Report: figures and one self-contained HTML page, made from a record alone: no model, no data, no network."""

from hardsight.report.alignment_page import write_alignment_page
from hardsight.report.record_page import samples_shown, write_figures, write_report

__all__ = ["samples_shown", "write_alignment_page", "write_figures", "write_report"]
