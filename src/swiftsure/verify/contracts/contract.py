"""A contract: which promise a candidate owes, on what, within which limits, who answers for it and when to go back.

The text is digested before anything is measured, so that what must be preserved is decided first. One loader reads the contracts of users
and those of Swiftsure's own modes, which lie beside this file.
"""

from __future__ import annotations

import datetime
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

from swiftsure.errors import UsageError
from swiftsure.verify.contracts import sections
from swiftsure.verify.contracts.limits import Limits
from swiftsure.verify.contracts.sections import ActivationProbe, BigRules, ExactRules, MemoryRules, Pins, Recovery, TaskRules, TimeRules
from swiftsure.verify.contracts.tables import Table

Kind: TypeAlias = Literal["exact", "fast", "big", "upstream"]
KINDS: tuple[Kind, ...] = ("exact", "fast", "big", "upstream")
WITHIN_LIMITS: tuple[Kind, ...] = ("fast", "upstream")
"""Kinds that limit how far outputs may be apart."""
LOGITS = "logits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """``sizes``: ends of the ranges of input sizes, ascending, in ``unit``. ``outputs``: limits by name of output; ``*`` is every other.

    ``texts``: name to text, for distributions of a language model. ``digest``: SHA-256 of the contract's text.
    """

    kind: Kind
    name: str = ""
    owner: str | None = None
    recheck: datetime.date | None = None
    unit: str = "bytes"
    sizes: tuple[float, ...] = ()
    pins: Pins = field(default_factory=Pins)
    environment: Mapping[str, str] = field(default_factory=dict)
    exact: ExactRules = field(default_factory=ExactRules)
    outputs: Mapping[str, Limits] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[TaskRules, ...] = ()
    big: BigRules = field(default_factory=BigRules)
    time: TimeRules = field(default_factory=TimeRules)
    memory: MemoryRules = field(default_factory=MemoryRules)
    activation: ActivationProbe = field(default_factory=ActivationProbe)
    recovery: Recovery = field(default_factory=Recovery)
    digest: str = ""
    source: str = ""

    @property
    def limits(self) -> Limits:
        """Those of the next-token distributions."""
        return self.limits_of(LOGITS)

    def limits_of(self, output: str) -> Limits:
        """By name, else those of ``*``; without limits where neither is there."""
        return self.outputs.get(output) or self.outputs.get("*") or Limits()

    @property
    def has_tolerances(self) -> bool:
        return any(limits.to_dict() for limits in self.outputs.values())

    def ranges(self, tokens: int) -> list[tuple[int, int, int]]:
        """``(size, begin, end)`` of the ranges of positions that a text of so many tokens reaches; the last may be short."""
        found = [(int(size), int(begin), min(int(size), tokens)) for begin, size in pairwise((0, *self.sizes))]
        return [(size, begin, end) for size, begin, end in found if begin < end]

    def range_of(self, size: float | None) -> str:
        """The range of an input of this size in words, for example ``129 to 512 tokens``."""
        if size is None or not self.sizes:
            return "all sizes"
        for below, end in pairwise((0.0, *self.sizes)):
            if size <= end:
                return f"up to {end:,g} {self.unit}" if below == 0 else f"over {below:,g} to {end:,g} {self.unit}"
        return f"over {self.sizes[-1]:,g} {self.unit}"


def load_contract(mode: str, text: str | None = None) -> Contract:
    """The contract of one of Swiftsure's modes, or ``upstream``, from ``text`` or from the file beside this one. Raises UsageError."""
    source = text if text is not None else resources.files(__package__).joinpath(f"{mode}.toml").read_text(encoding="utf-8")
    contract = parse_contract(source, f"the contract of mode {mode}")
    if not contract.sizes or not contract.limits.to_dict():
        raise UsageError(f"the contract of mode {mode} needs sizes and limits of the output {LOGITS}")
    return contract


def read_contract(path: str | Path) -> Contract:
    """The contract in a file. Raises UsageError for a file that is not there or not understood."""
    try:
        source = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no contract {str(path)!r}; swiftsure verify init fast -o FILE writes one to fill in") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the contract {str(path)!r} cannot be read: {error}") from None
    return parse_contract(source, str(path))


def digest_of(source: str) -> str:
    return "sha256:" + hashlib.sha256(source.encode()).hexdigest()


def parse_contract(source: str, name: str = "the contract") -> Contract:
    """Reads TOML text; ``name`` stands before every message. Raises UsageError."""
    try:
        return _parse(source)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {error}") from None
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _parse(source: str) -> Contract:
    table = Table(tomllib.loads(source))
    kind = table.choice("kind", KINDS)
    contract = Contract(
        kind=next(known for known in KINDS if known == kind),
        name=table.text("name") or "",
        owner=table.text("owner"),
        recheck=table.date("recheck"),
        unit=table.text("unit") or "bytes",
        sizes=table.sizes("sizes"),
        pins=sections.read_pins(table.table("pins")),
        environment=table.variables("environment"),
        exact=sections.read_exact(table.table("exact")),
        outputs=sections.read_outputs(table.table("upstream" if kind == "upstream" else "fast")),
        texts=_texts(table.words("texts")),
        tasks=sections.read_tasks(table.tables("task")),
        big=sections.read_big(table.table("big")),
        time=sections.read_time(table.table("time")),
        memory=sections.read_memory(table.table("memory")),
        activation=sections.read_activation(table.table("activation")),
        recovery=sections.read_recovery(table.table("recovery")),
        digest=digest_of(source),
        source=source,
    )
    table.done()
    for other in KINDS:
        if other != kind and table.has(other):
            raise UsageError(f"a contract keeps the promises apart: its kind is {kind}, but it has a table {other}")
    return contract


def _texts(files: Mapping[str, str]) -> dict[str, str]:
    """Texts of ``verify/data`` by the file's name, or of a path."""
    folder = resources.files("swiftsure.verify").joinpath("data")
    found = {}
    for name, file in files.items():
        try:
            found[name] = (folder.joinpath(file) if "/" not in file else Path(file)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"texts.{name}: {file!r} cannot be read: {error}") from None
    return found


def template(kind: str) -> str:
    """A commented contract to fill in. Raises UsageError for a kind that there is not."""
    if kind not in KINDS:
        raise UsageError(f"a contract is one of {', '.join(KINDS)}, got {kind!r}")
    return resources.files(__package__).joinpath("templates", f"{kind}.toml").read_text(encoding="utf-8")
