"""Writes docs/api-fields.md from the tables of fields that the code checks; ``--check`` only says whether the file is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from generated import write_or_check

from swiftsure.serve.apis.anthropic import fields as messages
from swiftsure.serve.apis.openai.fields import table_lines
from swiftsure.serve.apis.responses import fields as responses

PAGE = Path(__file__).with_name("api-fields.md")
INTRODUCTION = """# Fields of requests

Generated from the code by `python docs/generate_api_fields.py`; tests keep it up to date and hold it against the parameters of OpenAI's and
Anthropic's Python SDKs. `null` is always a field left out. A refused field answers 400 with its name in `param`, unless its value asks
for what is done anyway (an empty list of tools, `{"type": "text"}`); so does a field that is in no table. Fields marked *ours* are not
OpenAI's; its SDK sends them from `extra_body`.

## Chat completions and completions
"""


def page() -> str:
    return "\n".join([INTRODUCTION, *table_lines(), *_lines("Responses", responses), *_lines("Messages", messages)]) + "\n"


def _lines(title: str, fields: ModuleType) -> Iterator[str]:
    """Of an interface whose guide, docs/server.md, says how its fields are honoured."""
    yield from ("", f"## {title}", "")
    yield f"Honoured, as [server.md](server.md) says: {', '.join(f'`{name}`' for name in sorted(fields.HONOURED))}."
    yield from ("", "| field | what happens | |", "|---|---|---|")
    for treatment, table in (("harmless", fields.HARMLESS), ("refused", fields.REFUSED)):
        for name, why in sorted(table.items()):
            yield f"| `{name}` | {treatment} | {why} |"


if __name__ == "__main__":
    sys.exit(
        write_or_check(
            PAGE, page(), sys.argv[1:], stale="docs/api-fields.md is not what the code checks: run python docs/generate_api_fields.py"
        )
    )
