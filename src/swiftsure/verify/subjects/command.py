"""Any program as a subject: ``cmd:python base.py {input} {output}``, one process a case."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swiftsure.errors import SwiftsureError, UsageError
from swiftsure.verify.subjects import launcher
from swiftsure.verify.subjects.activation import NOT_ACTIVE_EXIT, UNKNOWN, LogProbe, last_words
from swiftsure.verify.subjects.base import Activation, Case, Output, Status, Trial
from swiftsure.verify.subjects.memory_limit import MemoryLimit, memory_words, open_limit
from swiftsure.verify.subjects.outputs import PHASES_FILE, OutputError, OutputLimits, read_outputs

KIND = "cmd"
_SMALLEST_LIMIT = 16 << 20
_GIT_S = 20.0
_LONGEST_PIN = 4 << 30  # bytes of a file that is hashed for the pins
_PHASE = re.compile(r"^PHASE name=(?P<name>\S+) s=(?P<s>[0-9.eE+-]+)\s*$", re.MULTILINE)
_REFUSED = re.compile(r"^REFUSED reason=(?P<reason>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """``environment`` is added to this process's own. ``folder`` gets logs and, with ``keep_outputs``, what was written; None: a folder
    that is removed at the end. ``probe_case`` is run once by ``start``, to learn what only a run can tell."""

    time_limit_s: float | None = 600.0
    memory_limit_bytes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    keep_outputs: bool = False
    log_bytes: int = 8 << 20
    limits: OutputLimits = field(default_factory=OutputLimits)
    probe: LogProbe = field(default_factory=LogProbe)
    probe_case: Case | None = None

    def __post_init__(self) -> None:
        if self.time_limit_s is not None and not 0 < self.time_limit_s < math.inf:
            raise UsageError(f"time_limit_s must be above 0, got {self.time_limit_s}")
        if self.memory_limit_bytes is not None and self.memory_limit_bytes < _SMALLEST_LIMIT:
            raise UsageError(f"memory_limit_bytes must be at least {_SMALLEST_LIMIT:,} (16 MiB), got {self.memory_limit_bytes:,}")


class CommandSubject:
    """Runs a program once a case, without a shell. ``{input}`` becomes the case's file, ``{output}`` a place to write to.

    The program may make a file or a folder of ``{output}``; where the command says ``{output}/name`` the folder is there already, and
    where it says ``{output}.npy`` the file may have that suffix. A case without a file has its request written to one, as JSON.

    What it may say on either stream, a line each: ``ACTIVE mode=...``, ``NOT ACTIVE mode=... reason=...`` (or exit code 3), ``REFUSED
    reason=...`` for an input that it declines, ``PHASE name=forward s=1.25``; phases may also stand in ``phases.json`` in the output.
    """

    def __init__(self, template: str, options: CommandOptions | None = None, *, spec: str | None = None) -> None:
        self.spec = spec if spec is not None else f"{KIND}:{template}"
        self._argv = split_command(template)
        self._options = options or CommandOptions()
        self._own: tempfile.TemporaryDirectory[str] | None = None
        self._limit: MemoryLimit | None = None
        self._runs = self._kills = 0

    def start(self) -> Activation:
        """Raises UsageError when there is no such program."""
        program = self._argv[0]
        if shutil.which(program, path=self._environment().get("PATH")) is None:
            raise UsageError(f"there is no program {program!r}")
        if self._options.folder is None:
            self._own = tempfile.TemporaryDirectory(prefix="swiftsure-cmd-")
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._options.memory_limit_bytes is not None:
            self._limit = open_limit(self._options.memory_limit_bytes)
        if self._options.probe_case is not None:
            return self.run(self._options.probe_case).activation or UNKNOWN
        return Activation(state="unknown", reason="each run tells")

    def run(self, case: Case) -> Trial:
        if self._options.folder is None and self._own is None:
            raise RuntimeError("run before start")
        place = self._place(case)
        end = self._launch(self._command(case, place), place)
        log = "\n".join((place / name).read_text(encoding="utf-8", errors="replace") for name in ("stdout.txt", "stderr.txt"))
        try:
            return self._trial(case, place, end, log)
        finally:
            if not self._options.keep_outputs:
                for path in _written(place):
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink()

    def pins(self) -> Mapping[str, Any]:
        """The command, digests of the program and of every file that it names, and the commit that those files are of."""
        program = shutil.which(self._argv[0], path=self._environment().get("PATH"))
        named = [Path(word) for word in (program, *self._argv[1:]) if word]
        scripts = [path for path in named[1:] if path.is_file()]
        limit = self._limit and {"bytes": self._limit.limit_bytes, "by": self._limit.by}
        return {
            "kind": KIND,
            "command": list(self._argv),
            "files": {str(path): _digest(path) for path in named if path.is_file()},
            "commit": _commit(scripts[0]) if scripts else None,
            "environment": dict(self._options.environment),
            "time_limit_s": self._options.time_limit_s,
            "memory_limit": limit,
            "logs": str(self._options.folder) if self._options.folder is not None else None,
        }

    def close(self) -> None:
        """Removes what ``start`` made. Arrays that trials hold stay readable."""
        if self._limit is not None:
            self._limit.close()
        if self._own is not None:
            self._own.cleanup()
            self._own = None

    @property
    def _folder(self) -> Path:
        folder = self._options.folder if self._own is None else Path(self._own.name)
        assert folder is not None
        return folder.resolve()

    def _place(self, case: Case) -> Path:
        """A new folder for one run, whatever earlier runs or the other side left in the same one."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", case.id)[:60]
        while True:
            self._runs += 1
            place = self._folder / f"{self._runs:05d}-{name}"
            try:
                place.mkdir(parents=True)
            except FileExistsError:
                continue
            return place

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._options.environment}

    def _command(self, case: Case, place: Path) -> list[str]:
        source = case.path.resolve() if case.path is not None else place / "request.json"
        if case.path is None:
            source.write_text(json.dumps(dict(case.request), ensure_ascii=False), encoding="utf-8")
        output = place / "output"
        if any("{output}/" in word for word in self._argv):
            output.mkdir()
        return [word.replace("{input}", str(source)).replace("{output}", str(output)) for word in self._argv]

    def _launch(self, argv: list[str], place: Path) -> dict[str, Any]:
        """Runs the launcher to its end. An interrupt here ends the program and everything that it started."""
        group = self._limit.group if self._limit is not None else None
        job = {
            "argv": argv,
            "cwd": None,
            "env": self._environment(),
            "stdout": str(place / "stdout.txt"),
            "stderr": str(place / "stderr.txt"),
            "log_bytes": self._options.log_bytes,
            "time_limit_s": self._options.time_limit_s,
            "memory_limit_bytes": self._options.memory_limit_bytes,
            "cgroup": str(group) if group is not None else None,
        }
        file = place / "job.json"
        file.touch(mode=0o600)  # it holds the environment
        file.write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-I", "-S", str(Path(launcher.__file__)), str(file)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                answer = process.stdout.read()
            except BaseException:
                process.stdin.close()  # the launcher ends the program when it sees this
                process.wait()
                raise
            finally:
                file.unlink()
        if process.returncode != 0:
            raise SwiftsureError(f"the launcher of {self.spec!r} ended with exit code {process.returncode}")
        end: dict[str, Any] = json.loads(answer)
        return end

    def _trial(self, case: Case, place: Path, end: dict[str, Any], log: str) -> Trial:
        activation = self._options.probe.read(log, end["exit_code"])
        status, reason = self._status(end, log)
        outputs: dict[str, Output] = {}
        phases_s: dict[str, float] = {}
        notes = _notes(end)
        if status == "ran":
            try:
                outputs = read_outputs(_output_of(place), self._options.limits)
                phases_s = _phases(log, place / "output" / PHASES_FILE)
            except OutputError as error:
                status, reason = "failed", f"output: {error}"
        if phases_s and sum(phases_s.values()) > end["wall_s"] + 1e-3:
            notes.append(f"phases add up to {sum(phases_s.values()):.3f} s of {end['wall_s']:.3f} s: left out")
            phases_s = {}
        if phases_s:
            phases_s["other"] = phases_s.get("other", 0.0) + max(0.0, end["wall_s"] - sum(phases_s.values()))
        return Trial(
            case=case,
            status=status,
            outputs=outputs,
            wall_s=end["wall_s"],
            phases_s=phases_s,
            peak_bytes=max(end["largest_process_bytes"], end["largest_tree_bytes"] or 0) or None,
            reason=reason,
            activation=activation,
            logs={name: place / f"{name}.txt" for name in ("stdout", "stderr")},
            notes=tuple(notes),
        )

    def _status(self, end: dict[str, Any], log: str) -> tuple[Status, str | None]:
        """What became of the program, and why."""
        limit_bytes = self._options.memory_limit_bytes
        within = f" under a limit of {limit_bytes:,} bytes" if limit_bytes is not None else ""
        if end["not_started"]:
            return "failed", f"could not be started: {end['not_started']}"
        if end["ended"] == "time":
            return "timed_out", f"ended after {self._options.time_limit_s:g} s, the time limit"
        if end["ended"] == "memory":
            return "out_of_memory", f"{end['held_bytes']:,} bytes held by its processes together{within}"
        if self._newly_killed():
            return "out_of_memory", f"ended by the kernel{within}"
        if end["exit_code"] == 0:
            return "ran", None
        if end["exit_code"] == NOT_ACTIVE_EXIT:
            return "refused", f"exit code 3: {last_words(log)}"
        if found := _REFUSED.search(log):
            return "refused", found["reason"].strip()
        how = f"exit code {end['exit_code']}" if end["signal"] is None else f"ended by {_signal_name(end['signal'])}"
        if said := memory_words(log, self._limit):
            return "out_of_memory", f"{how}{within}; it said {said!r}"
        return "failed", f"{how}{within}; last words: {last_words(log)}"

    def _newly_killed(self) -> bool:
        """Whether the kernel ended a process in the cgroup since the last call."""
        if self._limit is None:
            return False
        before, self._kills = self._kills, self._limit.kills()
        return self._kills > before


def split_command(template: str) -> list[str]:
    """The words of a command as a shell would split them; nothing else of a shell is there. Raises UsageError."""
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise UsageError(f"the command {template!r} cannot be split into words: {error}") from None
    if not words:
        raise UsageError("a command must name a program, got nothing after cmd:")
    for place in ("{input}", "{output}"):
        if not any(place in word for word in words[1:]):
            raise UsageError(f"a command must have {place} among its arguments, got {template!r}")
    return words


def _written(place: Path) -> list[Path]:
    """What a run may have made of ``{output}``: the place itself, or files of that name with a suffix."""
    return sorted(path for path in place.glob("output*") if path.name == "output" or path.name.startswith("output."))


def _output_of(place: Path) -> Path:
    """The one file or folder that was written. Raises OutputError."""
    written = [path for path in _written(place) if not (path.is_dir() and not any(path.iterdir()))]
    if not written:
        raise OutputError("the program wrote nothing to {output}")
    if len(written) > 1:
        raise OutputError(f"the program wrote {', '.join(path.name for path in written)}; one file or folder is expected")
    return written[0]


def _phases(log: str, file: Path) -> dict[str, float]:
    """Seconds by phase, from PHASE lines and ``phases.json``; a name that is said again is added up. Raises OutputError."""
    phases: dict[str, float] = {}
    said: list[tuple[str, Any]] = [(found["name"], found["s"]) for found in _PHASE.finditer(log)]
    if file.is_file() and not file.is_symlink():
        try:
            stated = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise OutputError(f"{PHASES_FILE}: not JSON: {error}") from None
        if not isinstance(stated, dict):
            raise OutputError(f"{PHASES_FILE} must be an object of seconds by phase")
        said += stated.items()
    for name, value in said:
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = math.nan
        if isinstance(value, bool) or not 0 <= seconds < math.inf:
            raise OutputError(f"phase {name} must be seconds of at least 0, got {value!r}")
        phases[name] = phases.get(name, 0.0) + seconds
    return phases


def _notes(end: Mapping[str, Any]) -> list[str]:
    notes = []
    if end["left_behind"]:
        notes.append(f"the program left {end['left_behind']} processes behind, which were ended")
    for name, dropped in end["dropped_bytes"].items():
        if dropped:
            notes.append(f"{dropped:,} bytes in the middle of {name} were not kept")
    return notes


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _commit(script: Path) -> str | None:
    """The git commit of the repository that a script is in, ``-dirty`` behind it where files were changed; None outside of one."""
    git = ["git", "-C", str(script.resolve().parent)]
    try:
        head, changed = (
            subprocess.run([*git, *rest], capture_output=True, text=True, timeout=_GIT_S, check=True).stdout.strip()
            for rest in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changed else head


def _digest(path: Path) -> str:
    if path.stat().st_size > _LONGEST_PIN:
        return f"not hashed: {path.stat().st_size:,} bytes"
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
