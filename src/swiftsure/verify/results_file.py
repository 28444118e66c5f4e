"""Scores of a task that was measured elsewhere: one file for each side, one item a line."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swiftsure.errors import UsageError
from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.judging.tasks import Item


def read_results(values: list[str] | None, contract: Contract) -> dict[str, list[Item]]:
    """``NAME=BASELINE_FILE,CANDIDATE_FILE`` for each task. CSV or JSON lines with id and score, and cluster and size where known.

    Other columns are not looked at. Raises UsageError for a task that the contract does not name, and for items that do not pair: a loss
    may hide in what is missing.
    """
    found: dict[str, list[Item]] = {}
    for value in values or ():
        name, _, files = value.partition("=")
        baseline, comma, candidate = files.partition(",")
        if not name or not baseline or not comma or not candidate:
            raise UsageError(f"--results takes NAME=BASELINE_FILE,CANDIDATE_FILE, got {value!r}")
        task = next((task for task in contract.tasks if task.name == name), None)
        if task is None:
            known = ", ".join(task.name for task in contract.tasks) or "none"
            raise UsageError(f"--results names task {name!r}; the contract's are {known}")
        if task.output is not None or name in found:
            raise UsageError(
                f"task {name} has its scores from {'an output' if task.output is not None else 'an earlier --results'} already"
            )
        found[name] = _paired(name, _read(Path(baseline)), _read(Path(candidate)), contract)
    return found


def _paired(name: str, base: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]], contract: Contract) -> list[Item]:
    alone = sorted(base.keys() ^ other.keys())
    if alone:
        raise UsageError(
            f"task {name}: {len(alone)} items have a score on one side alone, first {alone[0]!r}; both sides must answer the same"
        )
    return [
        Item(
            id=item,
            baseline=row["score"],
            candidate=other[item]["score"],
            cluster=row["cluster"],
            group=contract.range_of(row["size"]),
        )
        for item, row in base.items()
    ]


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows: Iterator[Any] | csv.DictReader[str]
        if path.suffix == ".csv":
            rows = csv.DictReader(io.StringIO(text))
        else:
            rows = (json.loads(line) for line in text.splitlines() if line.strip())
        return _checked(path, rows)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UsageError:
        raise
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{path} must be CSV (.csv) or JSON lines: {error}") from None


def _checked(path: Path, rows: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping) or row.get("id") in (None, "") or row.get("score") in (None, ""):
            raise UsageError(f"{path}, item {number}: id and score must be given")
        item = str(row["id"])
        if item in found:
            raise UsageError(f"{path}: item {item!r} comes twice")
        found[item] = {
            "score": _number(path, item, "score", row["score"]),
            "cluster": str(row["cluster"]) if row.get("cluster") not in (None, "") else None,
            "size": _number(path, item, "size", row["size"]) if row.get("size") not in (None, "") else None,
        }
    if not found:
        raise UsageError(f"{path} holds no item")
    return found


def _number(path: Path, item: str, name: str, value: object) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, str)) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{path}, item {item!r}: {name} must be a finite number, got {value!r}")
    return number
