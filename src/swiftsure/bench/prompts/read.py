"""A user's own prompts from a file: its form is told from its ending and its first record.

``.txt``      prompts apart by lines of ``---``; a file without such a line is one prompt (blank lines belong to prompts)
``.jsonl``    one prompt a line: ``{"messages": [...]}``, ``{"prompt": "..."}`` or ``{"text": "..."}``, beside it ``name``, ``kind``,
              ``max_tokens`` and fields of a request; or a line of an OpenAI request log: such a body, or one under ``body`` or ``request``
``.json``     ShareGPT: an array of ``{"conversations": [{"from": "human", "value": "..."}, ...]}``; or an array of what jsonl has a line of

Nothing is executed, and everything has a bound. Errors name the file and the line or entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftsure.bench.exchange import Prompt
from swiftsure.bench.prompts.entries import Lengths, prompt_of_entry
from swiftsure.errors import UsageError, quotable

MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_PROMPTS = 10_000
DEFAULT_MAX_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPrompts:
    """``left_out``: entries of the file beyond the limit of the set. ``not_sent``: fields of entries that are no request's."""

    prompts: tuple[Prompt, ...]
    left_out: int
    not_sent: tuple[str, ...] = ()


def read_prompts(path: Path, *, limit: int, max_tokens: int | None = None) -> OwnPrompts:
    """The first ``limit`` prompts of the file. ``max_tokens`` overrules what the file says; without either, an answer may have 512.

    Raises UsageError that states the rule and the place.
    """
    if not 1 <= limit <= MAX_PROMPTS:
        raise UsageError(f"the number of prompts must lie in 1..{MAX_PROMPTS}, got {limit}")
    size = _size(path)
    if size > MAX_FILE_BYTES:
        raise UsageError(f"{path} has {size} bytes; prompts are read from files of at most {MAX_FILE_BYTES}")
    lengths = Lengths(most=max_tokens, default=DEFAULT_MAX_TOKENS)
    prompts: list[Prompt] = []
    names: set[str] = set()
    not_sent: set[str] = set()
    count = 0
    for place, entry in _entries(path):
        count += 1
        if len(prompts) == limit:
            continue
        try:
            prompt, unsent = prompt_of_entry(entry, name=f"{path.stem[:60]}-{count}", lengths=lengths)
        except UsageError as error:
            raise UsageError(f"{path}, {place}: {error}") from None
        if prompt.name in names:
            raise UsageError(f"{path}, {place}: a prompt named {quotable(prompt.name)!r} was there before; names tell prompts apart")
        names.add(prompt.name)
        not_sent |= unsent
        prompts.append(prompt)
    if not prompts:
        raise UsageError(f"{path} holds no prompt")
    return OwnPrompts(prompts=tuple(prompts), left_out=count - len(prompts), not_sent=tuple(sorted(not_sent)))


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; prompts are read from a .txt, .jsonl or .json file")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is a pipe or a device; prompts are read from a .txt, .jsonl or .json file")
        return path.stat().st_size
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    ending = path.suffix.lower()
    if ending == ".txt":
        return _paragraphs(path)
    if ending in (".jsonl", ".ndjson"):
        return _lines(path)
    if ending == ".json":
        return _array(path)
    raise UsageError(f"{path}: prompts are read from .txt, .jsonl or .json files, got {ending or 'no ending'!r}")


def _paragraphs(path: Path) -> Iterator[tuple[str, str]]:
    part: list[str] = []
    first = 1
    for number, line in enumerate([*_text(path).splitlines(), "---"], 1):
        if line.strip() != "---":
            part.append(line)
            continue
        if text := "\n".join(part).strip():
            yield f"line {first}", text
        part, first = [], number + 1


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            place = f"line {number}"
            if len(line) > MAX_LINE_BYTES:
                raise UsageError(f"{path}, {place}: a line has at most {MAX_LINE_BYTES} bytes")
            if line.strip():
                yield place, _parsed(line, f"{path}, {place}")


def _array(path: Path) -> Iterator[tuple[str, Any]]:
    found = _parsed(_text(path).encode("utf-8", "surrogatepass"), str(path))
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise UsageError(f"{path} must hold an array of prompts, got {type(found).__name__}")
    for number, entry in enumerate(found, 1):
        yield f"entry {number}", entry


def _parsed(data: bytes, place: str) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        at = f" (line {error.lineno})" if error.lineno > 1 else ""
        raise UsageError(f"{place}: not JSON: {error.msg} at column {error.colno}{at}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: not JSON: {quotable(str(error))}") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + error.object[: error.start].count(b"\n")
        raise UsageError(f"{path}, line {line}: not UTF-8: {error.reason}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
