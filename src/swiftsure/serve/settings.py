"""What a server is set to. Values are checked once, here; every message states the rule and the value."""

from __future__ import annotations

import hashlib
import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from swiftsure.engine.scheduler import Tier
from swiftsure.engine.scheduling import Scheduling
from swiftsure.errors import UsageError
from swiftsure.serve.audit.tolerance import Tolerance
from swiftsure.serve.jobs import TIERS
from swiftsure.serve.parsing.choose import Formats

_SHORTEST_KEY = 16  # characters: shorter ones are guessed


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """One model to serve: ``name`` is what clients write in ``model``, ``load`` the keywords of :func:`swiftsure.load`, ``formats`` what
    its tool calls and reasoning are read by."""

    name: str
    source: str
    mode: str
    load: Mapping[str, Any] = field(default_factory=dict)
    formats: Formats = field(default_factory=Formats)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """What may be under way in a tier, waiting included: requests, and tokens that they can come to."""

    requests: int
    tokens: int

    def __post_init__(self) -> None:
        for name in ("requests", "tokens"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError(f"the limit of {name} must be at least 1, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Price per million tokens of the standard tier; priority costs ``multiple`` times as much."""

    input: float = 0.0
    output: float = 0.0
    multiple: float = 6.0

    def __post_init__(self) -> None:
        for name in ("input", "output", "multiple"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise UsageError(f"a price must be at least 0, got {name}={value}")

    def cost(self, *, prompt_tokens: int, output_tokens: int, tier: Tier) -> float:
        """In the currency of the prices."""
        plain = (prompt_tokens * self.input + output_tokens * self.output) / 1e6
        return plain * (self.multiple if tier == "priority" else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key by the SHA-256 of its text, and the tiers that it may use."""

    name: str
    sha256: bytes
    tiers: frozenset[Tier] = frozenset(TIERS)


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """A file of keys: a line each, ``NAME KEY [TIER,TIER]``; blank lines and lines from # on are left out.

    Raises UsageError for a file that cannot be read, holds no key, or breaks a rule; a message never quotes a key.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "they are not UTF-8"
        raise UsageError(f"the keys in {path} cannot be read: {reason}") from None
    keys: list[ApiKey] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) not in (2, 3):
            raise UsageError(f"{path}, line {number}: a key is NAME KEY [TIER,TIER], got {len(words)} words")
        if len(words[1]) < _SHORTEST_KEY:
            raise UsageError(f"{path}, line {number}: a key must have at least {_SHORTEST_KEY} characters, got {len(words[1])}")
        tiers = frozenset(words[2].split(",")) if len(words) == 3 else frozenset(TIERS)
        if unknown := tiers - set(TIERS):
            raise UsageError(f"{path}, line {number}: tiers are {', '.join(TIERS)}, got {', '.join(sorted(map(str, unknown)))}")
        if any(key.name == words[0] for key in keys):
            raise UsageError(f"{path}, line {number}: two keys bear the name {words[0]!r}")
        keys.append(
            ApiKey(name=words[0], sha256=hashlib.sha256(words[1].encode()).digest(), tiers=frozenset(t for t in TIERS if t in tiers))
        )
    if not keys:
        raise UsageError(f"{path} holds no key: everyone would be kept out")
    return tuple(keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Which finished answers are computed once more, and what follows from one that differs.

    share: of requests, above 0 and at most 1. tolerance: what mode fast is held to, other modes to bits. records: the folder for records
    of differences. on_fail: ``stop`` refuses requests from then on, ``default`` goes on in mode default. most_requests, most_tokens: that
    may wait. idle_s: the process ends when not needed so long.
    """

    share: float
    records: Path
    on_fail: Literal["stop", "default"] = "stop"
    most_requests: int = 256
    most_tokens: int = 1_000_000
    idle_s: float = 60.0
    tolerance: Tolerance = field(default_factory=Tolerance)

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"the share of requests to audit must be above 0 % and at most 100 %, got {100 * self.share:g} %")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Everything that a server is started with.

    keys: empty lets everyone in, which beyond a loopback address takes ``open_to_all``. deadline_s: most seconds of a request, waiting
    included. max_body_bytes: of a request. arrival_s: within which one must have come, head and body. scheduling: of each model's engine.
    drain_s: how long running answers may go on after SIGTERM. log_prompts: whether logs may hold what users wrote. log_json: log lines are
    JSON.
    """

    models: tuple[ModelSettings, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    standard: LaneLimits = LaneLimits(requests=256, tokens=1_000_000)
    priority: LaneLimits = LaneLimits(requests=8, tokens=100_000)
    scheduling: Scheduling = field(default_factory=Scheduling)
    prices: Prices = Prices()
    keys: tuple[ApiKey, ...] = ()
    open_to_all: bool = False
    deadline_s: float = 600.0
    max_body_bytes: int = 16 * 2**20
    arrival_s: float = 60.0
    drain_s: float = 30.0
    log_prompts: bool = False
    log_json: bool = False
    audit: AuditSettings | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError("a server needs at least one model")
        names = [model.name for model in self.models]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"two models are served under the name {name!r}; give them names of their own with NAME=MODEL")
        for model in self.models:
            if self.audit is not None and model.mode not in ("default", "exact", "fast"):
                raise UsageError(
                    f"audits compare with mode default: bits of default and exact, tolerances of fast; mode {model.mode} has neither"
                )
        if not 0 <= self.port <= 65_535:
            raise UsageError(f"a port must be between 0 and 65535, got {self.port}")
        if not (self.keys or self.open_to_all or is_loopback(self.host)):
            raise UsageError(f"{self.host} can be reached from other machines: give --api-keys FILE, or --open to let everyone in")
        for name, low in (("deadline_s", 0.0), ("arrival_s", 0.0), ("drain_s", 0.0), ("max_body_bytes", 1024)):
            value = getattr(self, name)
            if not low <= value < math.inf or (name == "deadline_s" and value == 0):
                raise UsageError(f"{name} must be a number of at least {low:g}, got {value}")

    def lane(self, tier: Tier) -> LaneLimits:
        return self.priority if tier == "priority" else self.standard


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
