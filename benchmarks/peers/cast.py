"""The contenders' processes: prepared, started one after the other, loaded, and ended together."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, Self

from benchmarks.peers.contract import Contender, Environment, Place
from benchmarks.peers.environments import python_for
from benchmarks.peers.process import LOAD_S, PeerError, Worker


@dataclass(slots=True, kw_only=True)
class Member:
    """A contender and its process. ``reason``: why it does not take part."""

    contender: Contender
    adapter: str
    worker: Worker | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    startup_s: float | None = None
    reason: str | None = None


class Cast:
    """All contenders of the chosen adapters. A context manager: every process ends with the block."""

    def __init__(self, modules: dict[str, ModuleType], pythons: dict[str, Path], *, cache: Path, model_path: Path, folder: Path) -> None:
        self._modules, self._cache = modules, cache
        self._model_path, self._folder = model_path, folder
        self._stack = ExitStack()
        self._pythons: dict[str, Path] = {}
        self.members: list[Member] = []
        for adapter, module in modules.items():
            reason = self._prepare(adapter, module, pythons)
            self.members += [Member(contender=contender, adapter=adapter, reason=reason) for contender in module.CONTENDERS]

    def _prepare(self, adapter: str, module: ModuleType, pythons: dict[str, Path]) -> str | None:
        """The environment and the model in the peer's own format; the reason when one of them cannot be had."""
        try:
            self._pythons[adapter] = python_for(adapter, module.ENVIRONMENT, pythons, cache=self._cache)
            if hasattr(module, "prepare"):
                worker = self._start(f"{adapter} prepare", adapter)
                try:
                    worker.ask("prepare", answer_s=LOAD_S, adapter=module.__name__, place=asdict(self._place(adapter)))
                finally:
                    worker.close()
        except PeerError as error:
            print(error, file=sys.stderr)
            return error.reason
        return None

    def _place(self, adapter: str) -> Place:
        made = self._cache / "models" / adapter / self._folder.name
        made.mkdir(parents=True, exist_ok=True)
        return Place(model_path=str(self._model_path), folder=str(self._folder), cache=str(made))

    def _start(self, name: str, adapter: str) -> Worker:
        environment: Environment | None = self._modules[adapter].ENVIRONMENT
        log = self._cache / f"{name.replace(' ', '-')}.log"
        return Worker(name, self._pythons[adapter], log=log, variables=environment.variables if environment else {})

    def load(self, member: Member, ids: Sequence[int], *, threads: int, context: int) -> None:
        """Starts the process and waits for its first token; ``startup_s`` is the time of that. What fails becomes the member's reason."""
        if member.reason is not None:
            return
        try:
            worker = self._start(member.contender.name, member.adapter)
            self._stack.callback(worker.close)
            module, place = self._modules[member.adapter].__name__, asdict(self._place(member.adapter))
            asked = {"variant": member.contender.variant, "place": place, "threads": threads, "context": context}
            member.facts = worker.ask("load", answer_s=LOAD_S, adapter=module, **asked)
            worker.ask("generate", ids=list(ids), max_tokens=1)
            member.startup_s = perf_counter() - worker.started
            worker.ask("generate", ids=list(ids), max_tokens=8)  # warm-up: what engines do once is not a turn's time
            member.worker = worker
        except PeerError as error:
            print(error, file=sys.stderr)
            member.reason = error.reason

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
