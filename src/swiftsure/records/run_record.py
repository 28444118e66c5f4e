"""The run record: what ran, on what, with which evidence. One JSON file per run."""

from __future__ import annotations

import errno
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from swiftsure.records.machine import MachineFacts

SCHEMA = "swiftsure.run/1"


def utc_now() -> str:
    """The time of day as ISO 8601, for example ``2026-12-01T23:40:00+00:00``."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Everything another person needs to repeat a run and to judge its figures.

    ``pins`` names the model (source, version, sha256) and the libraries; ``levers`` carries each lever's state, occasions and evidence;
    ``phases_s`` sums to the end-to-end time; ``results`` is the command's own.
    """

    command: str
    status: str  # as on the EXIT line: ok, unproved or failed
    mode: str
    numerics: str
    isa: str
    threads: int
    pins: Mapping[str, Any]
    machine: MachineFacts
    levers: Mapping[str, Mapping[str, Any]]
    phases_s: Mapping[str, float]
    peak_rss_bytes: int | None
    results: Mapping[str, Any]
    thread_choice: Mapping[str, Any] | None = None  # what was seen of processors, and which limit decided
    arguments: Sequence[str] = ()
    created: str = field(default_factory=utc_now)

    @classmethod
    def of(cls, activation: Mapping[str, Any], **others: Any) -> RunRecord:
        """Of a run in one mode. ``activation``: what ``Activation.to_dict`` of the engine gives; ``others``: the other fields."""
        names = ("status", "mode", "numerics", "isa", "threads", "levers")
        return cls(**{name: activation[name] for name in names}, **others)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "created": self.created,
            "command": self.command,
            "arguments": list(self.arguments),
            "status": self.status,
            "mode": self.mode,
            "numerics": self.numerics,
            "isa": self.isa,
            "threads": self.threads,
            "thread_choice": None if self.thread_choice is None else dict(self.thread_choice),
            "pins": dict(self.pins),
            "machine": self.machine.to_dict(),
            "levers": {name: dict(evidence) for name, evidence in self.levers.items()},
            "phases_s": dict(self.phases_s),
            "peak_rss_bytes": self.peak_rss_bytes,
            "results": dict(self.results),
        }

    def write(self, path: str | Path) -> None:
        write_json(path, self.to_dict())


def write_json(path: str | Path, value: Any) -> None:
    """Writes JSON whole or not at all. Infinities and NaN become null: JSON has no word for them."""
    write_text(path, json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file aside and renames it into place, so that a reader never meets half of it."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """The same for bytes."""
    target = _target(path)
    handle, aside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, target)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def check_writable(path: str | Path) -> None:
    """Raises now the OSError that writing ``path`` would end with, so that nobody works for results that cannot be kept."""
    with tempfile.TemporaryFile(dir=_target(path).parent):
        pass


def _target(path: str | Path) -> Path:
    """The file to write, its folder made. Raises OSError that names what is in the way."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target.parent)) from None
    return target


def _umask() -> int:
    """The process's umask. Reading it means setting it; the value is put back at once."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value
