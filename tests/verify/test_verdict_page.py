"""docs/verdicts.md is made of the tests' marks, and every verdict has one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GENERATOR = Path(__file__).parents[2] / "docs" / "generate_verdicts.py"


def test_the_page_of_verdicts_is_up_to_date() -> None:
    subprocess.run([sys.executable, str(GENERATOR), "--check"], check=True)
