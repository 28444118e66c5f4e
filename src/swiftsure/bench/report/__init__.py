"""The report of a bench run: one HTML file for people, a table of 80 columns for the terminal."""

from swiftsure.bench.report.page import render_report, write_report
from swiftsure.bench.report.table import comparison_table, formulas_table, text_table

__all__ = ["comparison_table", "formulas_table", "render_report", "text_table", "write_report"]
