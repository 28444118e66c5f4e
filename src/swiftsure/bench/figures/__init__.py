"""The figures of a bench run: from exchanges to medians with intervals, each with its formula."""

from swiftsure.bench.figures.checks import Finding
from swiftsure.bench.figures.definitions import DEFINITIONS, Definition
from swiftsure.bench.figures.estimate import Estimate
from swiftsure.bench.figures.group import Group
from swiftsure.bench.figures.reading import Reading
from swiftsure.bench.figures.settings import Cell, Prices, Settings, Slo
from swiftsure.bench.figures.summary import Summary, load_summary, summarize

__all__ = [
    "DEFINITIONS",
    "Cell",
    "Definition",
    "Estimate",
    "Finding",
    "Group",
    "Prices",
    "Reading",
    "Settings",
    "Slo",
    "Summary",
    "load_summary",
    "summarize",
]
