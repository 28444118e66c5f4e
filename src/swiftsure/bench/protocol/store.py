"""The folder of a bench: what was asked, and every exchange as soon as it has ended.

::

    bench.json        schema swiftsure.bench/1: settings, machine, target, the prompts' digest and names, the rounds; written aside, renamed
    round-1.jsonl     one exchange a line (rows.py), appended and synced one by one
    cells.jsonl       how the client fared in each part of a cell: round, row, users, part and the fields of ClientFacts

A process that dies can leave half a last line: it is dropped, with words, and its exchange is measured again. One process at a time has a
folder; a second is refused.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from swiftsure.bench.exchange import ClientFacts, Exchange
from swiftsure.bench.protocol.rows import facts_from_row, facts_row, from_row
from swiftsure.bench.protocol.writer import LineWriter
from swiftsure.errors import UsageError
from swiftsure.records.run_record import utc_now, write_json

SCHEMA = "swiftsure.bench/1"
HEAD = "bench.json"
CELLS = "cells.jsonl"
_LOCK = ".lock"

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """How the client fared in one part of a cell; a cell that was interrupted has several parts, and no facts of the one that was cut."""

    round: int
    row: str
    users: int
    part: int
    facts: ClientFacts
    prompts: tuple[str, ...] = ()  # of the exchanges of this part; empty: of all
    rate_per_s: float | None = None  # of an open loop
    ended: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A whole folder as it was read. ``head`` is bench.json; ``exchanges``: of all rounds, warm-up included, as they ended."""

    folder: Path
    head: Mapping[str, Any]
    exchanges: tuple[Exchange, ...]
    cells: tuple[CellFacts, ...]

    @property
    def rounds(self) -> tuple[int, ...]:
        return tuple(sorted({exchange.trial.round for exchange in self.exchanges}))


def round_file(number: int) -> str:
    return f"round-{number}.jsonl"


def read_bench(path: str | Path, *, say: Say = lambda words: None) -> Bench:
    """Reads a folder, or that of the given bench.json. ``say`` is told what was dropped. Raises UsageError that names file and line."""
    folder = Path(path).parent if Path(path).name == HEAD else Path(path)
    head = read_head(folder)
    exchanges: list[Exchange] = []
    for number in range(1, len(head["rounds"]) + 1):
        exchanges += (exchange for _, exchange in _read_lines(folder / round_file(number), from_row, say))
    cells = tuple(cell for _, cell in _read_lines(folder / CELLS, _cell_from_row, say))
    return Bench(folder=folder, head=head, exchanges=tuple(exchanges), cells=cells)


def read_head(folder: Path) -> dict[str, Any]:
    """bench.json. Raises UsageError where it is missing or not of this schema."""
    path = folder / HEAD
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{folder} holds no {HEAD}: it is not the folder of a bench") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        found = head.get("schema") if isinstance(head, dict) else type(head).__name__
        raise UsageError(f"{path} must be of schema {SCHEMA}, got {found!r:.100}")
    if not isinstance(head.get("rounds"), list):
        raise UsageError(f"{path} has no list of rounds")
    return head


class BenchFolder:
    """The folder while it is written. Open it as a context; ``append`` may be called from any thread."""

    def __init__(self, folder: Path, head: Mapping[str, Any], *, say: Say = lambda words: None) -> None:
        """``head``: settings, target, prompts and so on of a new bench; of one that is there, what it must agree with is checked before."""
        self.folder = folder
        self._say = say
        self._lock = _lock(folder)
        known = read_head(folder) if (folder / HEAD).exists() else None
        self.head: dict[str, Any] = known if known is not None else {"schema": SCHEMA, "created": utc_now(), **head, "rounds": []}
        self.is_new = known is None
        self._writer: LineWriter | None = None
        self.cells: tuple[CellFacts, ...] = ()  # of all rounds, as they were when a round was begun
        self._parts: Counter[tuple[int, str, int, float | None]] = Counter()  # written of each cell

    def __enter__(self) -> BenchFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._close_round()
        finally:
            os.close(self._lock)

    def write_head(self) -> None:
        write_json(self.folder / HEAD, self.head)

    @property
    def rounds_ended(self) -> int:
        return sum(entry.get("ended") is not None for entry in self.head["rounds"])

    @property
    def round_under_way(self) -> bool:
        return self.rounds_ended < len(self.head["rounds"])

    def open_round(self, *, at: str | None = None) -> None:
        """A new round, unless one is under way. ``at``: the time of day it was wanted at."""
        if not self.round_under_way:
            entry = {"round": len(self.head["rounds"]) + 1, "started": utc_now(), "ended": None}
            self.head["rounds"].append(entry if at is None else entry | {"at": at})
            self.write_head()

    def begin_round(self) -> tuple[int, tuple[Exchange, ...]]:
        """The number of the round that is under way, or of a new one, and what it has measured so far."""
        self.open_round()
        number = len(self.head["rounds"])
        path = self.folder / round_file(number)
        whole = _drop_torn_line(path, from_row, self._say)
        self.cells = tuple(_drop_torn_line(self.folder / CELLS, _cell_from_row, self._say))
        self._parts = Counter((cell.round, cell.row, cell.users, cell.rate_per_s) for cell in self.cells)
        self._writer = LineWriter(path)
        return number, tuple(whole)

    def append(self, exchange: Exchange) -> None:
        """Returns at once; the line is on disk a moment later, or the next call raises what went wrong."""
        if self._writer is None:
            raise RuntimeError("no round is under way")
        self._writer.put(exchange)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def add_cell(
        self, *, round: int, row: str, users: int, prompts: Iterable[str], facts: ClientFacts, rate_per_s: float | None = None
    ) -> None:
        """Appends the facts of one part of a cell, after all its exchanges are on disk."""
        self.flush()
        place = (round, row, users, rate_per_s)
        self._parts[place] += 1
        cell = {"round": round, "row": row, "users": users, "rate_per_s": rate_per_s, "part": self._parts[place], "prompts": list(prompts)}
        cell |= {"ended": utc_now(), **facts_row(facts)}
        with open(self.folder / CELLS, "ab") as file:
            file.write((json.dumps(cell, ensure_ascii=False) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    def end_round(self) -> None:
        self._close_round()
        self.head["rounds"][-1]["ended"] = utc_now()
        self.write_head()

    def _close_round(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _lock(folder: Path) -> int:
    """A lock that the system drops with the process, however it ends. Raises UsageError where another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise UsageError(f"another process is measuring into {folder}; one at a time") from None
        raise
    return handle


def _cell_from_row(row: Mapping[str, Any]) -> CellFacts:
    try:
        place = {name: row[name] for name in ("round", "row", "users", "part")}
        more = {"prompts": tuple(row.get("prompts", ())), "rate_per_s": row.get("rate_per_s"), "ended": row.get("ended", "")}
        return CellFacts(**place, facts=facts_from_row(row), **more)
    except KeyError as error:
        raise UsageError(f"the cell has no {error.args[0]}") from None


def _read_lines(path: Path, parse: Callable[[Mapping[str, Any]], T], say: Say) -> Iterable[tuple[int, T]]:
    """(the byte after the line, what it says) of every whole line. A last line without its end is told to ``say`` and left out."""
    if not path.exists():
        return
    end = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                say(f"{path}: the last line was cut off in writing and is dropped; its exchange is measured again")
                return
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("not an object")
                value = parse(row)
            except (ValueError, RecursionError, UsageError) as error:
                raise UsageError(f"{path}, line {number}: {error}") from None
            end += len(line)
            yield end, value


def _drop_torn_line(path: Path, parse: Callable[[Mapping[str, Any]], T], say: Say) -> list[T]:
    """What the whole lines say; the file is cut behind the last of them, so that the next line begins on its own."""
    lines = list(_read_lines(path, parse, say))
    end = lines[-1][0] if lines else 0
    if path.exists() and path.stat().st_size > end:
        os.truncate(path, end)
    return [value for _, value in lines]
