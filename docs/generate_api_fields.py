"""Writes docs/api-fields.md from the table of fields that the code checks; ``--check`` only says whether the file is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from generated import write_or_check

from swiftsure.serve.apis.openai.fields import table_lines

PAGE = Path(__file__).with_name("api-fields.md")
INTRODUCTION = """# Fields of chat completions and completions

Generated from the code by `python docs/generate_api_fields.py`; a test keeps it up to date and holds it against the parameters of OpenAI's
Python SDK. `null` is always a field left out. A refused field answers 400 with its name in `param`, unless its value asks for what is done
anyway (an empty list of tools, `{"type": "text"}`); so does a field that is not in the table. Fields marked *ours* are not OpenAI's; its
SDK sends them from `extra_body`.
"""


def page() -> str:
    return "\n".join([INTRODUCTION, *table_lines()]) + "\n"


if __name__ == "__main__":
    sys.exit(
        write_or_check(
            PAGE, page(), sys.argv[1:], stale="docs/api-fields.md is not what the code checks: run python docs/generate_api_fields.py"
        )
    )
