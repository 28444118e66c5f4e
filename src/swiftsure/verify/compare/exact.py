"""Whether two sets of outputs are the same to the bit, and where they first part.

Compared are types, shapes, the order of names, and bits, never values: by value -0.0 would equal 0.0 and NaN would differ from itself.
Texts are compared by character, JSON by its leaves and by the order of its keys; a number of JSON is an integer or the bits of a float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from swiftsure.verify.compare import elements
from swiftsure.verify.compare.documents import compare_documents, compare_texts
from swiftsure.verify.compare.elements import Array
from swiftsure.verify.subjects.base import Output, Trial

Kind: TypeAlias = Literal["missing", "extra", "order", "type", "dtype", "shape", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place at which two outputs part.

    ``where`` is an index as in ``[3, 17]``, a path as in ``$.scores[2]``, or a place in a text; None where the whole output is meant.
    ``ulps``: representable values between two floats of one type; None for anything else and where a NaN is one of them.
    """

    output: str
    kind: Kind
    base: str
    candidate: str
    where: str | None = None
    ulps: int | None = None

    def describe(self) -> str:
        """One line for people."""
        place = f"{self.output} {self.where}" if self.where else self.output
        if self.kind == "missing":
            return f"{place}: only the baseline has it"
        if self.kind == "extra":
            return f"{place}: only the candidate has it"
        apart = f", {self.ulps:,} ulp{'' if self.ulps == 1 else 's'} apart" if self.ulps is not None else ""
        what = "" if self.kind == "value" else f"{self.kind} "
        return f"{place}: {what}{self.base} against {self.candidate}{apart}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputComparison:
    """One output. ``compared`` counts elements, characters of a text or leaves of JSON; bits are counted of arrays alone."""

    compared: int = 0
    differing: int = 0
    bits_compared: int = 0
    bits_differing: int = 0
    largest_ulps: int | None = None
    first: Difference | None = None

    @property
    def equal(self) -> bool:
        return self.first is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactComparison:
    """All outputs of one case. ``not_compared`` says why there was nothing to compare: one side did not run, or wrote nothing."""

    case: str
    outputs: Mapping[str, OutputComparison]
    first: Difference | None = None
    not_compared: str | None = None

    @property
    def equal(self) -> bool:
        return self.first is None and self.not_compared is None

    @property
    def compared(self) -> int:
        return sum(output.compared for output in self.outputs.values())

    @property
    def differing(self) -> int:
        return sum(output.differing for output in self.outputs.values())

    @property
    def bits_compared(self) -> int:
        return sum(output.bits_compared for output in self.outputs.values())

    @property
    def bits_differing(self) -> int:
        return sum(output.bits_differing for output in self.outputs.values())

    def describe(self) -> str:
        """One line for people, with the case, the place and the count."""
        if self.not_compared is not None:
            return f"case {self.case}: {self.not_compared}"
        if self.first is None:
            return f"case {self.case}: the same bits in {len(self.outputs)} outputs, {self.compared:,} elements"
        return f"case {self.case}: {self.first.describe()}; {self.differing:,} of {self.compared:,} elements differ"

    def to_dict(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "equal": self.equal,
            "compared": self.compared,
            "differing": self.differing,
            "bits_compared": self.bits_compared,
            "bits_differing": self.bits_differing,
            "first": asdict(self.first) if self.first else None,
            "not_compared": self.not_compared,
            "outputs": {name: asdict(output) for name, output in self.outputs.items()},
        }


def compare_trials(base: Trial, candidate: Trial) -> ExactComparison:
    """Compares two trials of one case. One that did not run, or that has no output, is never equal to another."""
    for who, trial in (("the baseline", base), ("the candidate", candidate)):
        if trial.status != "ran":
            words = f"{trial.status.replace('_', ' ')}: {trial.reason or 'no reason given'}"
            return ExactComparison(case=base.case.id, outputs={}, not_compared=f"{who} {words}")
    if not base.outputs:
        return ExactComparison(case=base.case.id, outputs={}, not_compared="the baseline has no output to compare")
    return compare_outputs(base.outputs, candidate.outputs, case=base.case.id)


def compare_outputs(base: Mapping[str, Output], candidate: Mapping[str, Output], *, case: str = "") -> ExactComparison:
    """Compares outputs by name, in the baseline's order; names, and their order, count."""
    outputs: dict[str, OutputComparison] = {}
    for name, value in base.items():
        if name in candidate:
            outputs[name] = compare_output(name, value, candidate[name])
        else:
            outputs[name] = _absent(name, value, "missing")
    outputs |= {name: _absent(name, value, "extra") for name, value in candidate.items() if name not in base}
    first = next((output.first for output in outputs.values() if output.first is not None), None)
    if first is None and list(base) != list(candidate):
        first = Difference(output="names", kind="order", base=", ".join(base), candidate=", ".join(candidate))
    return ExactComparison(case=case, outputs=outputs, first=first)


def compare_output(name: str, base: Output, candidate: Output) -> OutputComparison:
    """Compares two outputs of one name."""
    if isinstance(base, np.ndarray) and isinstance(candidate, np.ndarray):
        return compare_arrays(name, base, candidate)
    kinds = [_kind_of(value) for value in (base, candidate)]
    if kinds[0] != kinds[1]:
        return _whole(name, "type", kinds[0], kinds[1], 1)
    texts = isinstance(base, str) and isinstance(candidate, str)
    found = compare_texts(str(base), str(candidate)) if texts else compare_documents(base, candidate)
    if found.first is None:
        return OutputComparison(compared=found.compared, differing=found.differing)
    place = found.first
    first = Difference(output=name, kind=place.kind, where=place.where, base=place.base, candidate=place.candidate, ulps=place.ulps)
    return OutputComparison(compared=found.compared, differing=found.differing, largest_ulps=found.largest_ulps, first=first)


def compare_arrays(name: str, base: Array, candidate: Array) -> OutputComparison:
    """Compares two arrays, a part at a time: type with its byte order, shape, then bits. The layout in memory does not count."""
    if base.dtype != candidate.dtype:
        return _whole(name, "dtype", elements.type_name(base), elements.type_name(candidate), base.size)
    if base.shape != candidate.shape:
        return _whole(name, "shape", str(base.shape), str(candidate.shape), base.size)
    count, bits, ulps, first = 0, 0, [], None
    for (start, a), (_, b) in zip(elements.chunks(base), elements.chunks(candidate), strict=True):
        changed = elements.differing(a, b)
        if changed.size:
            a, b = a[changed], b[changed]
            count, bits = count + changed.size, bits + elements.bits_differing(a, b)
            ulps += [int(distances.max()) for distances in (_ulps(a, b),) if distances.size]
            first = first or _first(name, a, b, start + int(changed[0]), base.shape)
    return OutputComparison(
        compared=base.size,
        differing=count,
        bits_compared=base.size * base.dtype.itemsize * 8,
        bits_differing=bits,
        largest_ulps=max(ulps, default=None),
        first=first,
    )


def _first(name: str, a: Array, b: Array, flat: int, shape: tuple[int, ...]) -> Difference:
    """The difference at element 0 of ``a`` and ``b``, which is element ``flat`` of the whole."""
    distances = _ulps(a[:1], b[:1])
    return Difference(
        output=name,
        kind="value",
        where=elements.index_text(flat, shape),
        base=elements.text_of(a, 0),
        candidate=elements.text_of(b, 0),
        ulps=int(distances[0]) if distances.size else None,
    )


def _ulps(a: Array, b: Array) -> Array:
    """Distances of the pairs in which both are floats and neither is a NaN."""
    if not elements.is_float(a):
        return np.empty(0, np.uint64)
    numbers = ~(np.isnan(elements.as_float64(a)) | np.isnan(elements.as_float64(b)))
    return elements.ulps_apart(a[numbers], b[numbers])


def _whole(name: str, kind: Kind, base: str, candidate: str, size: int) -> OutputComparison:
    """Outputs that cannot be laid beside each other: everything differs."""
    first = Difference(output=name, kind=kind, base=base, candidate=candidate)
    return OutputComparison(compared=size, differing=size, first=first)


def _absent(name: str, value: Output, kind: Kind) -> OutputComparison:
    words = [_kind_of(value), "nothing"]
    base, candidate = words if kind == "missing" else reversed(words)
    return _whole(name, kind, base, candidate, value.size if isinstance(value, np.ndarray) else 1)


def _kind_of(value: Output) -> str:
    if isinstance(value, np.ndarray):
        return f"{elements.type_name(value)} array"
    if isinstance(value, str):
        return "text"
    return "JSON object" if isinstance(value, Mapping) else "JSON array"
