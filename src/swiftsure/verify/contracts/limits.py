"""Tolerances of one output: how far a candidate may be from the baseline, wherever it is farthest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from swiftsure.verify.compare.divergence import Divergence
from swiftsure.verify.contracts.tables import Table

AT_LEAST = frozenset({"top1_agreement", "ranking"})
"""Shares that may not fall; of everything else at most so much is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """At most so much of each; of ``top1_agreement`` and ``ranking`` at least so much. What is None is not limited.

    ``absolute``: largest |candidate - baseline| of an element; ``relative``: the same over the baseline's magnitude; ``_p99`` and ``_mean``
    over elements. KL(baseline || candidate) in nats. ``ranking``: share of neighbouring pairs in the baseline's order that keep it.
    """

    absolute: float | None = None
    absolute_p99: float | None = None
    absolute_mean: float | None = None
    relative: float | None = None
    relative_p99: float | None = None
    relative_mean: float | None = None
    kl_mean: float | None = None
    kl_p99: float | None = None
    kl_max: float | None = None
    top1_agreement: float | None = None
    perplexity_ratio: float | None = None
    ranking: float | None = None

    def broken_by(self, found: Divergence | Mapping[str, float]) -> list[str]:
        """Each broken limit in words. A figure that is absent breaks nothing, see ``unmeasured``."""
        figures = found.to_dict() if isinstance(found, Divergence) else found
        return [
            f"{name} {figures[name]:.4g} against a limit of {limit:g}"
            for name, limit in self.to_dict().items()
            if name in figures and not within(name, figures[name], limit)
        ]

    def unmeasured(self, found: Mapping[str, float]) -> list[str]:
        """Limits for which nothing was measured."""
        return [name for name in self.to_dict() if name not in found]

    def to_dict(self) -> dict[str, float]:
        """The limits that are set."""
        return {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name) is not None}


LIMIT_NAMES = tuple(field.name for field in fields(Limits))


def within(name: str, value: float, limit: float) -> bool:
    """A NaN is within nothing."""
    return value >= limit if name in AT_LEAST else value <= limit


def read_limits(table: Table) -> Limits:
    found = Limits(**{name: table.number(name, most=1.0 if name in AT_LEAST else float("inf")) for name in LIMIT_NAMES})
    table.done()
    return found
