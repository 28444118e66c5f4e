"""Where two texts, or two values that JSON holds, first part."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from swiftsure.verify.compare import elements

PlaceKind: TypeAlias = Literal["missing", "extra", "order", "type", "value"]
_AROUND = 12  # characters shown on either side of a differing one


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place that differs. ``where``: a path as in ``$.scores[2].name``, or a place in a text; both together for a text in JSON."""

    kind: PlaceKind
    where: str
    base: str
    candidate: str
    ulps: int | None = None


@dataclass(slots=True, kw_only=True)
class DocumentComparison:
    """``compared`` and ``differing`` count leaves of JSON, or characters of a text by position; the longer text counts."""

    compared: int = 0
    differing: int = 0
    largest_ulps: int | None = None
    first: Place | None = None

    def differ(self, place: Place) -> None:
        self.differing += 1
        self.first = self.first or place
        if place.ulps is not None:
            self.largest_ulps = max(self.largest_ulps or 0, place.ulps)


def compare_texts(base: str, candidate: str) -> DocumentComparison:
    """Compares character by character: no normalization, no line endings forgiven."""
    longest = max(len(base), len(candidate))
    if base == candidate:
        return DocumentComparison(compared=longest)
    a, b = (np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4") for text in (base, candidate))
    shared = min(len(a), len(b))
    changed = np.flatnonzero(a[:shared] != b[:shared])
    at = int(changed[0]) if changed.size else shared
    line = base.count("\n", 0, at) + 1
    column = at - (base.rfind("\n", 0, at) + 1) + 1
    place = Place(
        kind="value", where=f"character {at} (line {line}, column {column})", base=_around(base, at), candidate=_around(candidate, at)
    )
    return DocumentComparison(compared=longest, differing=changed.size + longest - shared, first=place)


def compare_documents(base: Any, candidate: Any) -> DocumentComparison:
    """Compares what JSON holds: 1, 1.0 and true are three values, floats are compared by their bits, and the order of keys counts."""
    found = DocumentComparison()
    stack: list[tuple[str, Any, Any]] = [("$", base, candidate)]
    while stack:  # not recursive: a file may nest deeper than Python calls
        path, a, b = stack.pop()
        if _type_of(a) != _type_of(b):
            found.compared += 1
            found.differ(Place(kind="type", where=path, base=_shown(a), candidate=_shown(b)))
        elif isinstance(a, Mapping):
            stack += reversed(_keys(path, a, b, found))
        elif isinstance(a, Sequence) and not isinstance(a, str):
            stack += reversed(_items(path, a, b, found))
        else:
            _leaf(path, a, b, found)
    return found


def _keys(path: str, a: Mapping[str, Any], b: Mapping[str, Any], found: DocumentComparison) -> list[tuple[str, Any, Any]]:
    for key in a:
        if key not in b:
            _absent(f"{path}.{key}", "missing", a[key], found)
    for key in b:
        if key not in a:
            _absent(f"{path}.{key}", "extra", b[key], found)
    if a.keys() == b.keys() and list(a) != list(b):
        found.compared += 1
        found.differ(Place(kind="order", where=path, base=", ".join(a), candidate=", ".join(b)))
    return [(f"{path}.{key}", a[key], b[key]) for key in a if key in b]


def _items(path: str, a: Sequence[Any], b: Sequence[Any], found: DocumentComparison) -> list[tuple[str, Any, Any]]:
    shared = min(len(a), len(b))
    for longer, kind in ((a, "missing"), (b, "extra")):
        for index in range(shared, len(longer)):
            _absent(f"{path}[{index}]", "missing" if kind == "missing" else "extra", longer[index], found)
    return [(f"{path}[{index}]", a[index], b[index]) for index in range(shared)]


def _absent(path: str, kind: Literal["missing", "extra"], value: Any, found: DocumentComparison) -> None:
    found.compared += 1
    base, candidate = (_shown(value), "nothing") if kind == "missing" else ("nothing", _shown(value))
    found.differ(Place(kind=kind, where=path, base=base, candidate=candidate))


def _leaf(path: str, a: Any, b: Any, found: DocumentComparison) -> None:
    found.compared += 1
    if isinstance(a, float):
        if struct.pack("<d", a) != struct.pack("<d", b):
            pair = np.array([a, b])
            ulps = None if np.isnan(pair).any() else int(elements.ulps_apart(pair[:1], pair[1:])[0])
            texts = [elements.text_of(pair, index) for index in (0, 1)]
            found.differ(Place(kind="value", where=path, base=texts[0], candidate=texts[1], ulps=ulps))
    elif isinstance(a, str) and a != b:
        place = compare_texts(a, b).first
        assert place is not None
        found.differ(Place(kind="value", where=f"{path}, {place.where}", base=place.base, candidate=place.candidate))
    elif a != b:
        found.differ(Place(kind="value", where=path, base=_shown(a), candidate=_shown(b)))


def _type_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Sequence):
        return "array"
    return type(value).__name__


def _shown(value: Any) -> str:
    kind = _type_of(value)
    if kind in ("object", "array"):
        return f"{kind} of {len(value)}"
    if kind == "text":
        return _around(value, 0)
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 4000 else f"integer of {value.bit_length()} bits"
    return f"{kind} {text}"


def _around(text: str, at: int) -> str:
    if at >= len(text):
        return "the end"
    begin, end = max(0, at - _AROUND), at + _AROUND
    return f"{'…' if begin else ''}{text[begin:end]!r}{'…' if end < len(text) else ''}"
