"""Long texts that several commands measure on."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources


@lru_cache(maxsize=1)
def opticks() -> str:
    """130 paragraphs of Newton's Opticks (fourth edition, 1730; public domain) that need no figure, a blank line between them."""
    return resources.files("swiftsure.records").joinpath("data", "opticks.txt").read_text(encoding="utf-8").strip()
