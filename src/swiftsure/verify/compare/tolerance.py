"""How far two outputs are apart in numbers, and where they are farthest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftsure.verify.compare import elements
from swiftsure.verify.compare.documents import compare_texts
from swiftsure.verify.compare.elements import Array
from swiftsure.verify.subjects.base import Output

_EXACT_QUANTILES = 1 << 24
"""A 99th percentile of more elements than this is taken of evenly spaced ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Over all elements. ``where``: of the largest; ``base`` and ``candidate`` are the values there."""

    largest: float
    p99: float
    mean: float
    where: str
    base: float | complex
    candidate: float | complex


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """``absolute``: |candidate - baseline|; ``relative``: the same over |baseline|, infinite where only the baseline is 0.

    Equal infinities, and NaN on both sides, are no distance; a NaN on one side alone is a distance of NaN, which is within no limit and
    counts as the largest. ``differing`` counts elements with any distance.
    """

    elements: int
    differing: int
    absolute: Spread
    relative: Spread

    def figures(self) -> dict[str, float]:
        """By the names under which contracts limit them."""
        found: dict[str, float] = {}
        for name, spread in (("absolute", self.absolute), ("relative", self.relative)):
            found |= {name: spread.largest, f"{name}_p99": spread.p99, f"{name}_mean": spread.mean}
        return found

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        for name in ("absolute", "relative"):
            values[name] |= {side: str(values[name][side]) for side in ("base", "candidate")}
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDistance:
    """One output. ``distance`` is None where there are no numbers to compare, and ``reason`` says why; texts have ``text_kept``, the
    share of characters by position that are the same."""

    distance: Distance | None = None
    text_kept: float | None = None
    reason: str | None = None


def compare_numbers(base: Output, candidate: Output) -> OutputDistance:
    """Arrays of numbers of one shape, of any types; JSON whose structure agrees and whose leaves are numbers or equal; texts."""
    if isinstance(base, str) and isinstance(candidate, str):
        found = compare_texts(base, candidate)
        return OutputDistance(text_kept=1 - found.differing / found.compared if found.compared else 1.0)
    if isinstance(base, np.ndarray) and isinstance(candidate, np.ndarray):
        for side in (base, candidate):
            if not elements.is_number(side):
                return OutputDistance(reason=f"elements of type {elements.type_name(side)} are no numbers")
        if base.shape != candidate.shape:
            return OutputDistance(reason=f"shape {base.shape} against {candidate.shape}")
        if base.size == 0:
            return OutputDistance(reason="there is no element")
        return OutputDistance(distance=array_distance(base, candidate))
    try:
        leaves = list(_paired_leaves(base, candidate))
    except ValueError as error:
        return OutputDistance(reason=str(error))
    if not leaves:
        return OutputDistance(reason="there is no number")
    paths, a, b = zip(*leaves, strict=True)
    return OutputDistance(distance=array_distance(np.array(a, np.float64), np.array(b, np.float64), paths=paths))


def array_distance(base: Array, candidate: Array, *, paths: Sequence[str] | None = None) -> Distance:
    """Distance of two arrays of numbers of one shape, at least one element; they may lie on disk. ``paths`` name flat elements."""
    tallies = [_Tally(base.size), _Tally(base.size)]
    differing = 0
    for (start, a), (_, b) in zip(elements.chunks(base), elements.chunks(candidate), strict=True):
        distance = _distances(a, b)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            relative = np.where(distance == 0, 0.0, distance / np.abs(elements.as_float64(a)))
        differing += int((distance != 0).sum())
        for tally, values in zip(tallies, (distance, relative), strict=True):
            tally.add(start, values, a, b)
    absolute, related = (tally.spread(paths, base.shape) for tally in tallies)
    return Distance(elements=base.size, differing=differing, absolute=absolute, relative=related)


def _distances(a: Array, b: Array) -> NDArray[np.float64]:
    """|b - a| of flat elements; whole numbers are subtracted as such, since float64 knows those up to 2**53 alone."""
    if a.dtype.kind in "iu" and b.dtype == a.dtype:
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        native = [part.astype(part.dtype.newbyteorder("=")) for part in (a, b)]
        low, high = np.minimum(*native), np.maximum(*native)
        whole: NDArray[np.float64] = (high.astype(unsigned) - low.astype(unsigned)).astype(np.float64)  # wraps to the true distance
        return whole
    x, y = elements.as_float64(a), elements.as_float64(b)
    with np.errstate(invalid="ignore", over="ignore"):
        found: NDArray[np.float64] = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(y - x))
    return found


class _Tally:
    """Largest, mean and 99th percentile of values that arrive in parts."""

    def __init__(self, size: int) -> None:
        self._stride = -(-size // _EXACT_QUANTILES)
        self._kept: list[NDArray[np.float64]] = []
        self._sum = 0.0
        self._size = size
        self._largest, self._at = -1.0, 0
        self._pair: tuple[float | complex, float | complex] = (0.0, 0.0)

    def add(self, start: int, values: NDArray[np.float64], a: Array, b: Array) -> None:
        self._kept.append(values[-start % self._stride :: self._stride].copy())
        with np.errstate(invalid="ignore", over="ignore"):
            self._sum += float(values.sum())
        at = int(values.argmax())  # of a NaN, if there is one
        if not np.isnan(self._largest) and (np.isnan(values[at]) or values[at] > self._largest):
            self._largest, self._at = float(values[at]), start + at
            self._pair = (elements.as_float64(a[at : at + 1])[0].item(), elements.as_float64(b[at : at + 1])[0].item())

    def spread(self, paths: Sequence[str] | None, shape: tuple[int, ...]) -> Spread:
        where = paths[self._at] if paths is not None else elements.index_text(self._at, shape)
        return Spread(
            largest=self._largest,
            p99=_p99(np.concatenate(self._kept)),
            mean=self._sum / self._size,
            where=where,
            base=self._pair[0],
            candidate=self._pair[1],
        )


def _p99(values: NDArray[np.float64]) -> float:
    """The smallest value that 99 % of all do not exceed: one that occurs, so that an infinity beside it does not spread."""
    return float(np.quantile(values, 0.99, method="inverted_cdf"))


def _paired_leaves(base: Any, candidate: Any) -> Iterator[tuple[str, float, float]]:
    """Path and both values of every number in two documents. Raises ValueError where they differ in anything but numbers."""
    stack: list[tuple[str, Any, Any]] = [("$", base, candidate)]
    while stack:
        path, a, b = stack.pop()
        if _is_number(a) and _is_number(b):
            try:
                yield path, float(a), float(b)
            except OverflowError:
                raise ValueError(f"{path}: an integer beyond float64") from None
        elif isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
            stack += [(f"{path}.{key}", a[key], b[key]) for key in reversed(list(a))]
        elif _is_list(a) and _is_list(b) and len(a) == len(b):
            stack += [(f"{path}[{index}]", a[index], b[index]) for index in reversed(range(len(a)))]
        elif type(a) is not type(b) or a != b:
            raise ValueError(f"{path} differs in more than a number")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
