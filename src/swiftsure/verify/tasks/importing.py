"""Results of tasks that were scored elsewhere: lm-eval's samples (``--log_samples``), this suite's own items, any CSV or JSON lines.

A file of JSON lines whose first object has ``doc_id`` is lm-eval's; the id of an item is then its ``doc_id``, with ``doc_hash`` where
there is one, so that two runs on different data do not pair. Otherwise columns are named by the caller, or are those of this suite.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftsure.errors import UsageError
from swiftsure.verify.tasks.items import ItemResult

LM_EVAL_METRICS = ("acc", "exact_match", "pass@1", "f1", "acc_norm", "em", "mcc", "bleu", "rouge1", "score")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Where each value stands. ``score``: None is ``score``, or for lm-eval its first known metric. ``cluster``, ``group``, ``task``: taken
    where they are."""

    id: str = "id"
    score: str | None = None
    cluster: str = "cluster"
    group: str = "group"
    task: str = "task"


def read_results(path: str | Path, columns: Columns | None = None) -> list[ItemResult]:
    """The items of one file. Raises UsageError that names the file, the line and the rule."""
    source, columns = Path(path), columns or Columns()
    if source.suffix not in (".jsonl", ".json", ".csv"):
        raise UsageError(f"results are .jsonl, .json or .csv, got {source.name}")
    try:
        text = source.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the results {source} cannot be read: {error}") from None
    rows = _csv_rows(text) if source.suffix == ".csv" else _json_rows(text, source)
    found = [_item(row, columns, f"{source}, line {number}", source.stem) for number, row in rows]
    if not found:
        raise UsageError(f"{source} holds no results")
    return found


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines())
    for row in reader:
        yield reader.line_num, row


def _json_rows(text: str, source: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if source.suffix == ".json" and text.lstrip().startswith("["):
        try:
            rows = list(enumerate(json.loads(text), start=1))
        except ValueError as error:
            raise UsageError(f"{source} is not JSON: {error}") from None
    else:
        rows = [(number, _line(line, source, number)) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    for number, row in rows:
        if not isinstance(row, dict):
            raise UsageError(f"{source}, line {number}: a result must be an object, got {str(row)[:40]!r}")
        yield number, row


def _line(line: str, source: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source}, line {number} is not JSON: {error}") from None


def _item(row: Mapping[str, Any], columns: Columns, where: str, file_task: str) -> ItemResult:
    foreign = "doc_id" in row and columns.id not in row
    name = f"{row['doc_id']}{':' + str(row['doc_hash'])[:12] if row.get('doc_hash') else ''}" if foreign else row.get(columns.id)
    if name is None or name == "":
        raise UsageError(f"{where}: there is no id under {columns.id!r}; columns are {', '.join(map(str, row))}")
    metric = columns.score or (_metric(row, where) if foreign else "score")
    if metric not in row:
        raise UsageError(f"{where}: there is no score under {metric!r}; columns are {', '.join(map(str, row))}")
    # lm-eval writes one file a task and run, its name ends with the time of the run: not a name that pairs
    task = str(row.get(columns.task) or ("" if foreign else file_task if columns.task in row else ""))
    if foreign and row.get("filter"):
        task = f"{task}/{row['filter']}".strip("/")
    return ItemResult(
        task=str(row.get(columns.group) or task),
        id=str(name),
        cluster=str(row.get(columns.cluster) or name),
        score=_score(row[metric], f"{where}: {metric}"),
        size=_whole(row.get("size")),
        wall_s=float(row["wall_s"]) if row.get("wall_s") not in (None, "") else None,
        reason=row.get("reason") or None,
    )


def _metric(row: Mapping[str, Any], where: str) -> str:
    for metric in LM_EVAL_METRICS:
        if metric in row:
            return metric
    raise UsageError(f"{where}: none of the known metrics {', '.join(LM_EVAL_METRICS)} is there; name one. Columns are {', '.join(row)}")


def _score(value: Any, where: str) -> float:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return float(value.strip().lower() == "true")
    try:
        score = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{where} must be a number, got {str(value)[:40]!r}") from None
    if not math.isfinite(score):
        raise UsageError(f"{where} must be finite, got {value}")
    return score


def _whole(value: Any) -> int | None:
    return None if value in (None, "") else int(float(value))
