"""What the figures are asked for: limits of a goodput, prices, the hardware's bound, and what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swiftsure.bench.exchange import ClientFacts
from swiftsure.errors import UsageError

SLO_NAMES = ("ttft", "first_answer", "itl", "tpot", "e2e", "decode")
"""What a limit may be set on. Seconds, and an upper limit, but for ``decode``: tokens/s, and a lower limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits that an exchange must keep to count as good: ``ttft``, ``first_answer``, ``tpot``, ``e2e`` in seconds, ``itl`` in seconds for
    the 95th percentile of the exchange's own gaps, ``decode`` in tokens/s at least."""

    limits: Mapping[str, float]

    @classmethod
    def parse(cls, text: str) -> Slo:
        """``ttft=0.3,itl=0.05``. Raises UsageError for an unknown name, a value that is no number above 0, and a name given twice."""
        limits: dict[str, float] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or name not in SLO_NAMES:
                raise UsageError(f"a limit must read NAME=VALUE with one of the names {', '.join(SLO_NAMES)}, got {part!r}")
            if name in limits:
                raise UsageError(f"each limit may be given once, got {name} twice")
            limits[name] = _above_zero(f"the limit on {name}", value)
        if not limits:
            raise UsageError(f"a service level must name at least 1 limit, as in ttft=0.3,itl=0.05, got {text!r}")
        return cls(limits=limits)

    def __str__(self) -> str:
        return ", ".join(f"{name} {'>=' if name == 'decode' else '<='} {value:g}" for name, value in self.limits.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """In ``currency`` for a million tokens. ``cached``: of prompt tokens read from a cache; None: they cost what others cost."""

    prompt: float
    output: float
    cached: float | None = None
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name, value in (("prompt", self.prompt), ("output", self.output), ("cached", self.cached)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise UsageError(f"the price of {name} tokens must be a number of at least 0, got {value}")

    def cost(self, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Of one exchange, in ``currency``."""
        cached = self.prompt if self.cached is None else self.cached
        fresh = max(prompt_tokens - cached_tokens, 0)
        return (fresh * self.prompt + cached_tokens * cached + output_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``hardware_gb_per_s``: what the stated hardware reads from memory in a second, over all its chips, in units of 1e9 bytes;
    ``model_bytes``: what one token makes it read. ``context_tokens``: how many tokens the context row adds, where usage does not say.

    ``about`` says what was measured, as plain JSON: ``target``, ``prompts_sha256``, ``protocol`` (what two runs must share to be
    compared) and whatever else the page shall name.
    """

    slo: Slo | None = None
    prices: Prices | None = None
    hardware_gb_per_s: float | None = None
    model_bytes: int | None = None
    context_tokens: int | None = None
    seed: int = 0
    resamples: int = 1000
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("hardware_gb_per_s", "model_bytes", "context_tokens"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} must be a number above 0, got {value}")
        if self.resamples < 100:
            raise UsageError(f"resamples must be at least 100, got {self.resamples}")

    @property
    def bound_tokens_per_s(self) -> float | None:
        """Decoding reads all active weights once a token, so bandwidth / bytes bounds one user's speed without speculation."""
        if self.hardware_gb_per_s is None or self.model_bytes is None:
            return None
        return self.hardware_gb_per_s * 1e9 / self.model_bytes

    def to_dict(self) -> dict[str, Any]:
        prices = self.prices
        return {
            "slo": None if self.slo is None else dict(self.slo.limits),
            "prices": None if prices is None else {name: getattr(prices, name) for name in prices.__slots__},
            "hardware_gb_per_s": self.hardware_gb_per_s,
            "model_bytes": self.model_bytes,
            "context_tokens": self.context_tokens,
            "seed": self.seed,
            "resamples": self.resamples,
            "about": dict(self.about),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Settings:
        values = dict(plain)
        if values.get("slo") is not None:
            values["slo"] = Slo(limits=values["slo"])
        if values.get("prices") is not None:
            values["prices"] = Prices(**values["prices"])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """How the client fared during one load: the exchanges with this round, row, users and rate. A load that was cut off has none."""

    round: int
    row: str
    users: int
    rate_per_s: float | None = None
    facts: ClientFacts


def _above_zero(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{name} must be a number above 0, got {text!r}")
    return value
