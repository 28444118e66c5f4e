"""Writes docs/verdicts.md: which test reaches which verdict by a real run; ``--check`` only says whether the page is up to date.

Read from the marks ``@pytest.mark.verdict(KIND, HOW)`` in tests/ and the parameters ``reached(KIND, HOW, ...)``; nothing is run. A
marked test takes the fixture ``promised``, which is the kind of its own mark, and asserts it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from generated import write_or_check

from swiftsure.verify.judging.verdict import EXIT_CODES, MEANINGS, STRONGEST_FIRST

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("verdicts.md")
INTRODUCTION = """# Verdicts, and the tests that reach them

Generated from the tests by `python docs/generate_verdicts.py`; a test keeps it up to date. Each line is a test that runs a baseline and a
candidate, programs or the engine itself, and asserts the verdict. Why there are seven, and which outweighs which:
[decision 18](decisions/0018-seven-verdicts.md).

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One mark: the kind, how it is reached, and the test that asserts it."""

    kind: str
    how: str
    test: str


def marked() -> list[Shown]:
    """In the order of files and lines. Raises ValueError for a mark that is no mark of a known verdict on a test that asserts it."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [shown for file in files if "mark.verdict(" in (text := file.read_text(encoding="utf-8")) for shown in _in_file(file, text)]


def _in_file(file: Path, text: str) -> Iterator[Shown]:
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        calls = [call for decorator in function.decorator_list for call in ast.walk(decorator) if _is_mark(call)]
        for call in sorted(calls, key=lambda call: call.lineno):
            place = f"{file.relative_to(ROOT)}::{function.name}"
            kind, how = (ast.literal_eval(argument) for argument in call.args[:2])
            if kind not in EXIT_CODES:
                raise ValueError(f"{place}: a verdict is one of {', '.join(EXIT_CODES)}, got {kind!r}")
            if "promised" not in {argument.arg for argument in function.args.args}:
                raise ValueError(f"{place}: a test with a mark of a verdict takes the fixture promised and asserts it")
            yield Shown(kind=kind, how=how, test=place)


def _is_mark(node: ast.AST) -> bool:
    """The mark itself, or a parameter that ``reached`` makes with it."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.mark.verdict", "reached")


def page() -> str:
    found = marked()
    missing = [kind for kind in STRONGEST_FIRST if not any(shown.kind == kind for shown in found)]
    if missing:
        raise ValueError(f"every verdict must be reached by a test, but none reaches {', '.join(missing)}")
    lines = [INTRODUCTION + "| verdict | exit code | meaning |", "|---|---:|---|"]
    lines += [f"| {kind} | {EXIT_CODES[kind]} | {MEANINGS[kind]} |" for kind in reversed(STRONGEST_FIRST)]
    lines += ["", "| verdict | how it is reached | test |", "|---|---|---|"]
    for kind in reversed(STRONGEST_FIRST):
        lines += [f"| {kind} | {shown.how} | `{shown.test}` |" for shown in found if shown.kind == kind]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    stale = "docs/verdicts.md is not what the tests show: run python docs/generate_verdicts.py"
    sys.exit(write_or_check(PAGE, page(), sys.argv[1:], stale=stale))
