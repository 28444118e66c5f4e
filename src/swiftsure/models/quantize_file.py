"""A model's file in narrower types: another GGUF file, and how far its weights are from those it was made of."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelFileError, UnsupportedModelError, UsageError
from swiftsure.models.cache import Progress
from swiftsure.models.files import ModelFiles
from swiftsure.models.gguf import GGUFFile
from swiftsure.models.gguf_writer import metadata_entry, require_new, write_gguf
from swiftsure.models.quantize import DEFAULT_METHOD, dequantize_rows
from swiftsure.models.requantized import Requantized, requantization_plan
from swiftsure.models.tensors import TensorInfo, row_pieces

PROVENANCE_KEY = "swiftsure.quantize.provenance"
# GGUF's number for "mostly this type" and the version of its block layouts.
_FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "BF16": 32}
_LAYOUT_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedTensor:
    """One tensor of the plan. ``relative_l2``: distance of its values from the source's over the length of these; None when they are 0."""

    name: str
    shape: tuple[int, ...]
    source_type: str
    type: str
    source_bytes: int
    bytes: int
    relative_l2: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeReport:
    """What was made of what. ``requantized`` names tensors that were 8-bit already and are rounded a second time."""

    source: str
    source_sha256: str
    output: str
    method: str
    source_bytes: int
    output_bytes: int
    tensors: tuple[QuantizedTensor, ...]
    copied: int  # tensors taken over as they are
    requantized: tuple[str, ...]
    relative_l2: float | None  # over all weights of the plan
    worst: str | None  # the tensor with the largest relative_l2
    wall_s: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def quantize_file(
    files: ModelFiles,
    output: Path,
    kind: str | None,
    *,
    head: str | None = None,
    embedding: str | None = None,
    method: str = DEFAULT_METHOD,
    requantize: bool = False,
    force: bool = False,
    threads: int = 1,
    version: str,
    progress: Progress | None = None,
) -> QuantizeReport:
    """Writes ``files`` with its matrices in other types to ``output``, whole or not at all.

    Metadata is copied entry by entry but for ``general.file_type`` and ``general.quantization_version``; ``PROVENANCE_KEY`` gets a JSON
    text that names the source's SHA-256, ``version`` of this tool and the method. Vectors stay, or become, F32. For ``kind``, ``head``,
    ``embedding`` and ``requantize`` see :func:`swiftsure.models.requantized.requantization_plan`. ``progress``: bytes read and in all.

    Raises UsageError and UnsupportedModelError where the arguments or the source break a rule, ModelFileError for weights that are damaged
    or not finite, CapacityError when the disk is too small, OSError when it cannot be written.
    """
    started = perf_counter()
    if files.path.is_dir():
        raise UnsupportedModelError(f"{files.path}: only GGUF files are quantized to GGUF files")
    if output.exists() and output.samefile(files.path):
        raise UsageError(f"source and output must be different files, and both are '{files.path}'")
    require_new(output, force=force)
    with GGUFFile(files.path) as file:
        if files.stamp is not None and file.stamp != files.stamp:
            raise ModelFileError(f"{files.path}: the file changed after its digest was taken")
        try:
            if (parts := file.metadata.integer("split.count", 1)) > 1:
                raise UnsupportedModelError(f"the file is one of {parts} parts of a model; only models in one file are supported")
            plan = requantization_plan(file, kind, head=head, embedding=embedding, requantize=requantize)
            if not plan:
                raise UsageError("every tensor has its type already; there is nothing to quantize")
            source = Requantized(file, plan, method=method, threads=threads)
            job = _Job(file, source, plan, progress)
            infos = [source.info(name) for name in file.names()]
            provenance = {"source_sha256": files.sha256, "tool": f"swiftsure {version}", "method": method}
            entries = _entries(file, infos, json.dumps(provenance))
            size = write_gguf(output, entries, infos, job.content, alignment=file.alignment, force=force)
        except (ModelFileError, UnsupportedModelError) as error:
            message = str(error)
            raise type(error)(message if message.startswith(str(files.path)) else f"{files.path}: {message}") from None
        return job.report(files, output, method, size, perf_counter() - started)


def _entries(file: GGUFFile, infos: list[TensorInfo], provenance: str) -> list[bytes]:
    weights = Counter[str]()
    for info in infos:
        weights[info.type] += info.elements
    values: dict[str, int | str] = {"general.quantization_version": _LAYOUT_VERSION, PROVENANCE_KEY: provenance}
    mostly = weights.most_common(1)[0][0]
    if mostly in _FILE_TYPES:  # else the source's own number still holds
        values["general.file_type"] = _FILE_TYPES[mostly]
    kept = [key for key in file.metadata if key not in values]
    return [file.metadata_entry(key) for key in kept] + [metadata_entry(key, value) for key, value in values.items()]


class _Job:
    """Gives the writer its bytes and measures them on the way."""

    def __init__(self, file: GGUFFile, source: Requantized, plan: dict[str, str], progress: Progress | None) -> None:
        self._file = file
        self._source = source
        self._plan = plan
        self._progress = progress
        self._total = sum(file.info(name).nbytes for name in file.names())
        self._done = 0
        self._squares: dict[str, tuple[float, float]] = {}  # of the error and of the weights

    def content(self, info: TensorInfo) -> Iterator[NDArray[np.uint8]]:
        before = self._file.info(info.name)
        if info.name not in self._plan:
            for rows in row_pieces(before):
                yield self._file.read(info.name, rows)
            self._advance(before.nbytes)
        else:
            error, size = 0.0, 0.0
            for encoded, values in self._source.pieces(info.name):
                error += _square_sum(dequantize_rows(info.type, encoded, info.shape[-1]) - values)
                size += _square_sum(values)
                yield encoded
                self._advance(before.nbytes * values.size // info.elements)
            self._squares[info.name] = (error, size)
        self._file.check_unchanged()  # the digest in the output must name the bytes that it was made of

    def _advance(self, nbytes: int) -> None:
        self._done += nbytes
        if self._progress is not None:
            self._progress(self._done, self._total)

    def report(self, files: ModelFiles, output: Path, method: str, size: int, wall_s: float) -> QuantizeReport:
        tensors = tuple(self._tensor(name) for name in self._plan)
        error, weights = (math.fsum(pair[part] for pair in self._squares.values()) for part in (0, 1))
        known = [tensor for tensor in tensors if tensor.relative_l2 is not None]
        return QuantizeReport(
            source=str(files.path),
            source_sha256=files.sha256,
            output=str(output),
            method=method,
            source_bytes=self._file.size,
            output_bytes=size,
            tensors=tensors,
            copied=sum(1 for _ in self._file.names()) - len(tensors),
            requantized=tuple(tensor.name for tensor in tensors if tensor.source_type == "Q8_0"),
            relative_l2=_ratio(error, weights),
            worst=max(known, key=lambda tensor: tensor.relative_l2 or 0.0).name if known else None,
            wall_s=wall_s,
        )

    def _tensor(self, name: str) -> QuantizedTensor:
        before, after = self._file.info(name), self._source.info(name)
        return QuantizedTensor(
            name=name,
            shape=before.shape,
            source_type=before.type,
            type=after.type,
            source_bytes=before.nbytes,
            bytes=after.nbytes,
            relative_l2=_ratio(*self._squares[name]),
        )


def _square_sum(values: NDArray[np.float32]) -> float:
    """In float32 within a row, in float64 over rows."""
    rows = np.square(values).sum(axis=1)
    return float(rows.sum(dtype=np.float64))


def _ratio(error: float, size: float) -> float | None:
    return math.sqrt(error / size) if size > 0 else None
