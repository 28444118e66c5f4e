"""How far a candidate's outputs are from the baseline's, in the figures that a contract limits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftsure.verify.compare.divergence import compare_logits
from swiftsure.verify.compare.ranking import compare_rankings
from swiftsure.verify.compare.tolerance import compare_numbers
from swiftsure.verify.contracts.contract import LOGITS, Contract
from swiftsure.verify.contracts.limits import Limits
from swiftsure.verify.subjects.base import Output, Trial

IDENTIFIERS = frozenset({"token_ids"})
"""Numbers without a distance between them."""

_DISTRIBUTION = ("kl_mean", "kl_p99", "kl_max", "top1_agreement", "perplexity_ratio")


def figures_between(base: Trial, candidate: Trial, contract: Contract) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Figures by output that both sides have as numbers of one structure; and why others have none. Texts are in neither."""
    found: dict[str, dict[str, float]] = {}
    reasons: dict[str, str] = {}
    for name, value in base.outputs.items():
        other = candidate.outputs.get(name)
        if name in IDENTIFIERS or other is None:
            continue
        measured = compare_numbers(value, other)
        if measured.distance is not None:
            found[name] = measured.distance.figures() | _array_figures(name, value, other, contract.limits_of(name), base)
        elif measured.reason is not None:
            reasons[name] = measured.reason
    return found, reasons


def _array_figures(name: str, value: Output, other: Output, limits: Limits, base: Trial) -> dict[str, float]:
    """What costs more than distances is measured where it is limited; distributions also of what is called logits."""
    if not isinstance(value, np.ndarray) or not isinstance(other, np.ndarray):
        return {}
    figures: dict[str, float] = {}
    if limits.ranking is not None and value.ndim > 0:
        figures["ranking"] = compare_rankings(value, other).neighbours_kept_worst
    wanted = name == LOGITS or any(key in limits.to_dict() for key in _DISTRIBUTION)
    if wanted and value.ndim == 2 and value.shape[1] > 1:
        figures |= distribution_figures(value, other, base.outputs.get("token_ids"))
    return figures


def distribution_figures(a: NDArray[Any], b: NDArray[Any], token_ids: Output | None) -> dict[str, float]:
    """Of logits ``(positions, vocabulary)``. The perplexity ratio needs as many token ids, and is left out without them."""
    ids = token_ids if isinstance(token_ids, np.ndarray) and token_ids.shape == (len(a),) else None
    rows = compare_logits(a, b, ids if ids is not None else np.zeros(len(a), np.int64)).over(0, len(a)).to_dict()
    return {name: float(rows[name]) for name in _DISTRIBUTION if ids is not None or name != "perplexity_ratio"}
