"""Where the inputs of a verification come from: a folder of files, a file of prompts, or the texts of the contract."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from swiftsure.errors import UsageError
from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.proving.builtin import builtin_workload
from swiftsure.verify.proving.workload import SAMPLING_FIELDS, Prompt, read_prompts
from swiftsure.verify.subjects.base import Case

LIST_FILE = "cases.csv"
_COLUMNS = ("file", "size", "cluster")


def cases_in_folder(folder: Path, unit: str) -> list[Case]:
    """One case for each file, in the order of names. ``cases.csv`` there, with columns file, size and cluster, chooses and describes them.

    Without it a size is the file's where the contract counts bytes, and unknown otherwise. Raises UsageError.
    """
    if not folder.is_dir():
        raise UsageError(f"--inputs takes a folder of input files, got {str(folder)!r}")
    listed = folder / LIST_FILE
    if listed.is_file():
        return _listed(folder, listed)
    unnamed = next((path for path in folder.iterdir() if not path.name.isprintable()), None)
    if unnamed is not None:  # bytes that are not UTF-8 come as surrogates, which no report can hold
        raise UsageError(f"names of input files must be printable UTF-8, got {unnamed.name!a}")
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    if not files:
        raise UsageError(f"the folder {str(folder)!r} holds no input file")
    return [Case(id=path.name, path=path, size=float(path.stat().st_size) if unit == "bytes" else None) for path in files]


def _listed(folder: Path, listed: Path) -> list[Case]:
    try:
        rows = list(csv.DictReader(io.StringIO(listed.read_text(encoding="utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{listed} cannot be read: {error}") from None
    if not rows:
        raise UsageError(f"{listed} lists no case")
    return [_row(folder, row, f"{LIST_FILE} line {number}") for number, row in enumerate(rows, start=2)]


def _row(folder: Path, row: Mapping[str | None, Any], where: str) -> Case:
    unknown = [name for name in row if name not in _COLUMNS]
    if unknown or not row.get("file"):
        raise UsageError(f"{where}: columns are {', '.join(_COLUMNS)}, and file must be given")
    path = folder / row["file"]
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        raise UsageError(f"{where}: there is no file {row['file']!r} in {folder}")
    try:
        size = float(row["size"]) if row.get("size") else None
    except ValueError:
        size = math.nan
    if size is not None and not 0 <= size < math.inf:
        raise UsageError(f"{where}: size must be a number of at least 0, got {row['size']!r}")
    return Case(id=row["file"], path=path, size=size, cluster=row.get("cluster") or None)


def cases_of_prompts(path: Path, unit: str, count_tokens: Callable[[str], int] | None = None) -> list[Case]:
    """One case for each prompt. ``count_tokens``: of a text; sizes are unknown without it where the contract counts tokens."""
    return [_prompt_case(prompt, unit, count_tokens) for prompt in read_prompts(path)]


def cases_of_the_workload(unit: str, count_tokens: Callable[[str], int] | None = None) -> list[Case]:
    """The prompts of ``swiftsure prove``, for two sides of the built-in engine whose user gave none. Sizes as in ``cases_of_prompts``."""
    return [_prompt_case(prompt, unit, count_tokens) for prompt in builtin_workload()]


def _prompt_case(prompt: Prompt, unit: str, count_tokens: Callable[[str], int] | None) -> Case:
    text = prompt.text if prompt.text is not None else "\n".join(message["content"] for message in prompt.messages or ())
    asked: dict[str, Any] = {"messages": [dict(message) for message in prompt.messages]} if prompt.messages else {"prompt": prompt.text}
    asked |= {name: getattr(prompt, name) for name in SAMPLING_FIELDS if getattr(prompt, name) is not None}
    size = None
    if unit == "tokens" and count_tokens is not None:
        size = float(count_tokens(text))
    elif unit in ("bytes", "characters"):
        size = float(len(text.encode() if unit == "bytes" else text))
    return Case(id=prompt.name, size=size, cluster=prompt.kind if prompt.kind != "prompts" else None, request=asked)


def token_counter(model: str, *, offline: bool) -> Callable[[str], int]:
    """Counts a text's tokens as the model does, without its chat template. Raises as ``models.catalogue.resolve`` and ``open_model``."""
    from swiftsure.models.catalogue import resolve
    from swiftsure.models.model import open_model

    with open_model(resolve(model, offline=offline)) as opened:
        tokenizer = opened.tokenizer
    return lambda text: len(tokenizer.encode(text, special=False))


def cases_of_texts(contract: Contract) -> list[Case]:
    """Each text of the contract up to each of its sizes, scored: logits of every position, for a language model that offers them."""
    return [
        Case(id=f"{name} to {size:g}", size=float(size), cluster=name, request={"score": text, "tokens": int(size)})
        for name, text in contract.texts.items()
        for size in contract.sizes
    ]
