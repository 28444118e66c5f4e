"""How far answers of mode fast may be from default: the tolerances of its contract, on what was really served.

Of each row that a token was drawn from, the engine that served it keeps the likeliest tokens with their log probabilities, and default
says what it makes of the same rows. All other tokens count as one, so a divergence found is a lower bound of that of whole rows: it never
accuses falsely, and what it does not see is spread over tokens that neither side would have chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

BEST = 20  # tokens of each row that are kept
_LEAST = 1e-12  # probability of all other tokens together, so that none is never

BestTokens: TypeAlias = tuple[Sequence[int], Sequence[float]]
"""Token ids and natural log probabilities of one row, the likeliest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Of KL(default || fast) in nats: the largest of one row, and mean and 99th percentile over all rows audited so far.
    ``top1_agreement``: least share of rows with the same likeliest token. What is said of many rows is judged from ``least_rows`` on. The
    values are those of ``verify/contracts/fast.toml``."""

    kl_mean: float = 0.02
    kl_p99: float = 0.10
    kl_max: float = 1.0
    top1_agreement: float = 0.90
    least_rows: int = 1000


def divergence(served: BestTokens, default: Sequence[float]) -> float:
    """KL(default || served) in nats over the tokens of ``served`` and all others as one; ``default``: log probabilities of the same tokens.

    Not finite where either side is not.
    """
    _, values = served
    if not all(map(math.isfinite, (*values, *default))):
        return math.inf
    within = sum(math.exp(p) * (p - q) for p, q in zip(default, values, strict=True))
    p_rest, q_rest = (max(_LEAST, 1.0 - sum(map(math.exp, logs))) for logs in (default, values))
    return max(0.0, within + p_rest * math.log(p_rest / q_rest))


class Distance:
    """What audits of one model found so far."""

    def __init__(self, tolerance: Tolerance) -> None:
        self.rows = self.agreeing = self.beyond_p99 = 0
        self.kl_sum = 0.0
        self._tolerance = tolerance

    def add(self, served: Sequence[BestTokens], default: Sequence[tuple[Sequence[float], int]]) -> list[dict[str, Any]]:
        """One answer's rows, and of each what default says: log probabilities of the served tokens, and its own likeliest token. Returns
        what breaks the tolerance: its name, the value found, the limit, and for one row its index."""
        if len(served) != len(default) or not served:
            raise ValueError(f"an answer of {len(served)} rows was compared with {len(default)}")
        limits, found = self._tolerance, []
        worst, index = -1.0, 0
        for i, (row, (values, likeliest)) in enumerate(zip(served, default, strict=True)):
            kl = divergence(row, values)
            self.rows += 1
            self.agreeing += row[0][0] == likeliest
            self.beyond_p99 += kl > limits.kl_p99
            self.kl_sum += kl
            if kl > worst:
                worst, index = kl, i
        if worst > limits.kl_max:
            found.append({"name": "kl_max", "value": worst, "limit": limits.kl_max, "output_index": index})
        if self.rows >= limits.least_rows:
            if self.kl_mean > limits.kl_mean:
                found.append({"name": "kl_mean", "value": self.kl_mean, "limit": limits.kl_mean})
            if self.beyond_p99 > 0.01 * self.rows:
                found.append(
                    {"name": "kl_p99", "value": self.beyond_p99 / self.rows, "limit": 0.01, "of": f"rows beyond {limits.kl_p99:g}"}
                )
            if self.top1_agreement < limits.top1_agreement:
                found.append({"name": "top1_agreement", "value": self.top1_agreement, "limit": limits.top1_agreement})
        return found

    @property
    def kl_mean(self) -> float:
        return self.kl_sum / self.rows if self.rows else 0.0

    @property
    def top1_agreement(self) -> float:
        return self.agreeing / self.rows if self.rows else 1.0
