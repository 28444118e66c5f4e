"""Tensors of a model in narrower types than its file holds, made when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelFileError, UnsupportedModelError, UsageError
from swiftsure.models.quantize import DEFAULT_METHOD, FLOAT_BYTES, METHODS, QUANTIZED_TYPES, dequantize_rows, encoded_bytes, quantize_rows
from swiftsure.models.tensors import EMBEDDING, HEAD, TensorInfo, TensorSource, byte_span

_PIECE_VALUES = 1 << 18  # weights worked on at a time by one thread: 1 MB of floats


class Requantized:
    """A :class:`~swiftsure.models.tensors.TensorSource` that gives some tensors of ``source`` in another type.

    ``info`` tells the new type and its exact bytes at once; ``read`` quantizes when it is called (about 60 to 110 ns of processor time a
    weight with ``search``, 10 with ``rtn``, shared by ``threads``) each time, so a back end packs from it as from a file. Tensors outside
    the plan are the source's own bytes. The bytes are a pure function of source, type and method.

    Args:
        source: closed by :meth:`close` with this.
        plan: tensor name -> Q8_0, Q4_0, Q4_1, or F32. From F32, F16 and BF16 any of these; from Q8_0 (lossy on lossy) Q4_0 and Q4_1.
            :func:`requantization_plan` writes one for a whole model.
        method: ``search`` or ``rtn``, see :mod:`swiftsure.models.quantize`.
        threads: processor threads that share the work of one tensor; never changes a bit.

    Raises:
        UsageError: an argument breaks a rule.
        ModelFileError: ``plan`` names a tensor that is not there.
        UnsupportedModelError: a tensor's type or width does not allow what the plan says.
    """

    def __init__(self, source: TensorSource, plan: Mapping[str, str], *, method: str = DEFAULT_METHOD, threads: int = 1) -> None:
        if method not in METHODS:
            raise UsageError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        if threads < 1:
            raise UsageError(f"threads must be at least 1, got {threads}")
        self._source = source
        self._method = method
        self._threads = threads
        self._infos = {name: planned_info(source.info(name), kind) for name, kind in plan.items()}

    def names(self) -> Iterable[str]:
        return self._source.names()

    def info(self, name: str) -> TensorInfo:
        return self._infos.get(name) or self._source.info(name)

    def read(self, name: str, rows: range | None = None) -> NDArray[np.uint8]:
        if name not in self._infos:
            return self._source.read(name, rows)
        data = np.empty(byte_span(self._infos[name], rows)[1], np.uint8)
        at = 0
        for piece, _ in self.pieces(name, rows):
            data[at : at + piece.size] = piece.reshape(-1)
            at += piece.size
        return data

    def pieces(self, name: str, rows: range | None = None) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.float32]]]:
        """The tensor, or ``rows`` of it, in order, some rows at a time: their new bytes, and the source's values they stand for, float32
        (rows, k).

        Holds a few megabytes, however large the tensor. ``name`` must be in the plan.
        """
        before, after = self._source.info(name), self._infos[name]
        k = before.shape[-1]
        row_bytes = before.nbytes * k // before.elements
        rows = range(before.shape[0]) if rows is None and len(before.shape) > 1 else rows
        step = max(1, _PIECE_VALUES * before.shape[0] // before.elements)
        pieces = [rows[at : at + step] for at in range(0, len(rows), step)] if rows else [None]

        def make(piece: range | None) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
            values = dequantize_rows(before.type, self._source.read(name, piece).reshape(-1, row_bytes), k)
            if after.type == "F32":
                return values.astype("<f4").view(np.uint8), values
            try:
                return quantize_rows(after.type, values, method=self._method), values
            except ModelFileError as error:
                raise ModelFileError(f"tensor '{name}': {error}") from None

        if self._threads == 1 or len(pieces) == 1:
            yield from map(make, pieces)
            return
        with ThreadPoolExecutor(self._threads) as pool:
            batch = 2 * self._threads  # so that memory stays bounded when the taker is slow
            for at in range(0, len(pieces), batch):
                yield from pool.map(make, pieces[at : at + batch])

    def close(self) -> None:
        self._source.close()


def planned_info(info: TensorInfo, kind: str) -> TensorInfo:
    """What ``info`` becomes as ``kind``. Raises UsageError for no such kind, UnsupportedModelError where the tensor does not allow it."""
    if kind not in (*QUANTIZED_TYPES, "F32"):
        raise UsageError(f"tensor '{info.name}' can become {', '.join(QUANTIZED_TYPES)} or F32, not {kind!r}")
    lossy = info.type == "Q8_0" and kind in ("Q4_0", "Q4_1")
    if info.type not in FLOAT_BYTES and not lossy:
        raise UnsupportedModelError(
            f"tensor '{info.name}' has type {info.type}, which cannot become {kind}: "
            f"weights must be F32, F16 or BF16, or Q8_0 on the way to four bits"
        )
    if kind == "F32":
        return TensorInfo(info.name, kind, info.shape, 4 * info.elements)
    if len(info.shape) < 2:
        raise UnsupportedModelError(f"tensor '{info.name}' must be a matrix to be quantized, got shape {list(info.shape)}")
    if info.shape[-1] % 32:
        raise UnsupportedModelError(f"tensor '{info.name}' must have rows of a multiple of 32 to become {kind}, got {info.shape[-1]}")
    return TensorInfo(info.name, kind, info.shape, encoded_bytes(kind, info.shape))


def requantization_plan(
    source: TensorSource, kind: str | None, *, head: str | None = None, embedding: str | None = None, requantize: bool = False
) -> dict[str, str]:
    """A plan for :class:`Requantized`: every matrix to ``kind``, the head and the embedding to types of their own if given.

    ``kind`` None leaves the layers as they are; ``head`` and ``embedding`` None follow ``kind``. A model whose head is its embedding has
    one tensor for both: ``head`` and ``embedding`` may then not disagree. Vectors and norms stay or become F32. A matrix that has its type
    already is left alone.

    Raises UsageError when the types disagree, UnsupportedModelError for a tensor that cannot follow the plan, also for 8-bit weights that
    would be requantized while ``requantize`` is false.
    """
    for what, asked in (("type", kind), ("head", head), ("embedding", embedding)):
        if asked is not None and asked not in QUANTIZED_TYPES:
            raise UsageError(f"{what} must be one of {', '.join(QUANTIZED_TYPES)}, got {asked!r}")
    names = list(source.names())
    if HEAD not in names:
        if None not in (head, embedding) and head != embedding:
            raise UsageError(f"the head of this model is its embedding, one tensor, which cannot be {head} and {embedding} at once")
        embedding = head if embedding is None else embedding
    own = {HEAD: head, EMBEDDING: embedding}
    plan = {}
    for name in names:
        info = source.info(name)
        wanted = own.get(name) or kind if len(info.shape) > 1 else "F32"
        if wanted is None or wanted == info.type or (len(info.shape) == 1 and info.type not in FLOAT_BYTES):
            continue
        planned_info(info, wanted)
        if info.type == "Q8_0" and not requantize:
            raise UnsupportedModelError(
                f"tensor '{name}' has type Q8_0 already: to {wanted} it would be rounded twice, and that must be allowed (requantize)"
            )
        plan[name] = wanted
    return plan
