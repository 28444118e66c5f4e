"""How far a candidate's outputs are from the baseline's, in the figures that a contract limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftsure.verify.compare.divergence import compare_logits
from swiftsure.verify.contracts.contract import LOGITS, Contract
from swiftsure.verify.contracts.limits import Limits
from swiftsure.verify.subjects.base import Output, Trial

IDENTIFIERS = frozenset({"token_ids"})
"""Numbers without a distance between them."""

_DISTRIBUTION = ("kl_mean", "kl_p99", "kl_max", "top1_agreement", "perplexity_ratio")


def figures_between(base: Trial, candidate: Trial, contract: Contract) -> dict[str, dict[str, float]]:
    """By output that both sides have as numbers of one shape. An output that is missing here cannot be measured within a tolerance."""
    found = {}
    for name, value in base.outputs.items():
        if name in IDENTIFIERS:
            continue
        other = candidate.outputs.get(name)
        a, b = as_numbers(value), as_numbers(other)
        if a is None or b is None or a.shape != b.shape or a.size == 0:
            continue
        limits = contract.limits_of(name)
        wants_kl = name == LOGITS or any(key in limits.to_dict() for key in _DISTRIBUTION)
        distributions = distribution_figures(a, b, base.outputs.get("token_ids")) if wants_kl and a.ndim == 2 and a.shape[1] > 1 else {}
        found[name] = element_figures(a, b, limits) | distributions
    return found


def as_numbers(output: Output | None) -> NDArray[Any] | None:
    """A numeric array, or the numbers of a JSON document in its order, where all its leaves are numbers; else None."""
    if isinstance(output, np.ndarray):
        return output if output.dtype.kind in "biuf" else None
    if output is None or isinstance(output, str):
        return None
    leaves: list[float] = []
    return np.array(leaves) if _leaves(output, leaves) else None


def _leaves(value: object, into: list[float]) -> bool:
    if isinstance(value, Mapping):
        return all(_leaves(value[key], into) for key in sorted(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(_leaves(item, into) for item in value)
    if isinstance(value, (int, float)):
        into.append(float(value))
        return True
    return False


def element_figures(a: NDArray[Any], b: NDArray[Any], limits: Limits) -> dict[str, float]:
    """Over elements. Equal infinities and NaN in the same places are no distance; a NaN on one side alone makes every figure NaN."""
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(y - x))
        relative = np.where(distance == 0, 0.0, distance / np.abs(x))
    found: dict[str, float] = {}
    for name, values in (("absolute", distance), ("relative", relative)):
        found |= {name: float(values.max()), f"{name}_p99": float(np.quantile(values, 0.99)), f"{name}_mean": float(values.mean())}
    if limits.ranking is not None:
        found["ranking"] = ranking_kept(a.astype(np.float64), b.astype(np.float64))
    return found


def ranking_kept(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """The share of neighbours in ``a``'s order along the last axis that ``b`` leaves in that order; ties of ``a`` do not count."""
    order = np.argsort(a, axis=-1, kind="stable")
    steps_a = np.diff(np.take_along_axis(a, order, -1), axis=-1)
    steps_b = np.diff(np.take_along_axis(b, order, -1), axis=-1)
    counted = steps_a > 0
    return float((steps_b[counted] > 0).mean()) if counted.any() else 1.0


def distribution_figures(a: NDArray[Any], b: NDArray[Any], token_ids: Output | None) -> dict[str, float]:
    """Of logits ``(positions, vocabulary)``. The perplexity ratio needs as many token ids, and is left out without them."""
    ids = as_numbers(token_ids)
    known = ids is not None and ids.shape == (len(a),)
    rows = compare_logits(a, b, ids if known and ids is not None else np.zeros(len(a), np.int64)).over(0, len(a)).to_dict()
    return {name: float(rows[name]) for name in _DISTRIBUTION if known or name != "perplexity_ratio"}
