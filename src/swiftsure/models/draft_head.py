"""A draft head: a small network that guesses the tokens after the next one from what the big model's last layer holds.

One step takes f, the normed last hidden row from whose logits a token t was drawn, and the embedding e of t in the big model (Hydra's
sequential heads: Ankner et al., 2024):

    x = W_feature f + W_token e
    x = x + W_down (silu(W_gate n) * W_up n),  n = rmsnorm(x) * norm          for every block
    f' = rmsnorm(x) * output_norm
    logits = f' . H[shortlist]

H is the big model's own output head, the shortlist its tokens that are worth guessing. The next step takes f' and the token guessed. There
is no attention and no cache: a head knows the text through f alone, and is made for one model file.

The file is a GGUF file of architecture ``swiftsure-draft-head``; docs/draft-heads.md lists its keys and tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelFileError, UnsupportedModelError, UsageError
from swiftsure.models.files import ModelFiles
from swiftsure.models.gguf_writer import metadata_entry, write_gguf
from swiftsure.models.model_file import ModelFile, open_model_file
from swiftsure.models.quantize import QUANTIZED_TYPES, encoded_bytes, quantize_rows
from swiftsure.models.schedule import Embed, GatedActivation, Input, Matmul, Op, RMSNorm, Schedule, SelectRows
from swiftsure.models.tensors import TensorInfo, TensorSource

NAME = "swiftsure-draft-head"
MATRIX_TYPES = ("Q8_0", "Q4_0", "BF16")
MAX_BLOCKS = 64
MAX_WIDTH = 1 << 20  # of anything: the schedule's products stay far from overflow

TARGET_EMBEDDING = "target.embedding"
"""The big model's embedding, which a back end shares rather than packs again."""

_PREFIX = "swiftsure.draft."
_TARGET_ROWS = "target.shortlist"  # the shortlist's rows of the big model's head


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHeadConfig:
    """What a head's file says of itself."""

    target_sha256: str  # of the model file that it was made for
    hidden: int
    blocks: int
    inner: int
    norm_eps: float


class DraftHead:
    """An open draft head: configuration, shortlist and tensors. Context manager; made by :func:`open_draft_head`."""

    def __init__(self, files: ModelFiles, file: ModelFile, config: DraftHeadConfig, shortlist: NDArray[np.int32]) -> None:
        self.files = files
        self.config = config
        self.shortlist = shortlist  # (S,) token ids, ascending
        self._file = file

    @property
    def weight_bytes(self) -> int:
        """Of the head's own matrices and norms; the shortlist's rows come from the big model."""
        return sum(self._file.info(name).nbytes for name in self._file.names())

    def schedule(self) -> Schedule:
        """One step: row by row, features and tokens to the logits of the shortlist."""
        config = self.config
        ops: list[Op] = [
            Input(out="features"),
            Embed(weight=TARGET_EMBEDDING, out="token"),
            Matmul(x="features", weights=("feature.weight",), out="x"),
            Matmul(x="token", weights=("token.weight",), out="x", accumulate=True),
        ]
        for block in range(config.blocks):
            at = f"blk.{block}"
            ops += [
                RMSNorm(x="x", weight=f"{at}.norm.weight", out="normed", eps=config.norm_eps),
                Matmul(x="normed", weights=(f"{at}.gate.weight", f"{at}.up.weight"), out="gate_up"),
                GatedActivation(kind="silu", x="gate_up", out="activated"),
                Matmul(x="activated", weights=(f"{at}.down.weight",), out="x", accumulate=True),
            ]
        ops += [
            SelectRows(x="x", out="selected"),
            RMSNorm(x="selected", weight="output_norm.weight", out="next", eps=config.norm_eps),
            Matmul(x="next", weights=(_TARGET_ROWS,), out="logits"),
        ]
        widths = dict.fromkeys(("features", "token", "x", "normed", "selected", "next"), config.hidden)
        return Schedule(
            ops=tuple(ops),
            buffers=widths | {"gate_up": 2 * config.inner, "activated": config.inner, "logits": len(self.shortlist)},
            logits_buffer="logits",
            vocab_size=len(self.shortlist),
            layers=0,
            kv_heads=1,
            head_dim=16,
            context_length=1,
        )

    def tensors(self, target: TensorSource, schedule: Schedule) -> TensorSource:
        """The head's tensors with those that it borrows from the big model, whose schedule this is."""
        return _HeadTensors(self._file, target, schedule, self.shortlist)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def is_draft_head(file: ModelFile) -> bool:
    return file.metadata.get("general.architecture") == NAME


def open_draft_head(files: ModelFiles) -> DraftHead:
    """Raises ModelFileError for a damaged file and UnsupportedModelError for one of another kind; each message starts with the path."""
    file = open_model_file(files.path)
    try:
        if files.stamp is not None and file.stamp != files.stamp:
            raise ModelFileError("the file changed after its SHA-256 was taken")
        if not is_draft_head(file):
            raise UnsupportedModelError(
                f"general.architecture must be '{NAME}' in a draft head, got {file.metadata.get('general.architecture')!r}"
            )
        config = _read_config(file)
        _check_tensors(file, config)
        return DraftHead(files, file, config, _read_shortlist(file))
    except (ModelFileError, UnsupportedModelError) as error:
        file.close()
        message = str(error)
        raise type(error)(message if message.startswith(str(files.path)) else f"{files.path}: {message}") from None


def write_draft_head(
    path: Path, arrays: Mapping[str, NDArray[np.generic]], config: DraftHeadConfig, *, matrix_type: str = "Q4_0", force: bool = False
) -> int:
    """Packs a trained head into a file and returns its bytes.

    Args:
        path: ends in .gguf.
        arrays: the tensors of the file by name, matrices and norms as floats, ``shortlist`` as ascending token ids.
        config: what the head is.
        matrix_type: one of ``MATRIX_TYPES``. ``shortlist`` is stored as I32, norms as F32.
        force: replace a file that is there.

    Raises:
        UsageError: an array is missing, of another shape, not finite or none of a head; or ``path`` cannot be the file.
    """
    if matrix_type not in MATRIX_TYPES:
        raise UsageError(f"matrix_type must be one of {', '.join(MATRIX_TYPES)}, got {matrix_type!r}")
    shapes = _shapes(config)
    if set(arrays) != {*shapes, "shortlist"}:
        odd = sorted(set(arrays) ^ {*shapes, "shortlist"})
        raise UsageError(f"a head of {config.blocks} blocks has other arrays; missing or not known: {', '.join(odd)}")
    contents: dict[str, tuple[TensorInfo, NDArray[np.uint8]]] = {}
    for name, shape in shapes.items():
        values = np.ascontiguousarray(arrays[name], np.float32)
        if values.shape != shape or not np.isfinite(values).all():
            raise UsageError(f"array '{name}' must be finite and of shape {list(shape)}, got shape {list(values.shape)}")
        contents[name] = _encoded(name, values, matrix_type if len(shape) == 2 else "F32")
    ids = np.ascontiguousarray(arrays["shortlist"])
    if ids.ndim != 1 or not len(ids) or ids.dtype.kind not in "iu" or ids.min() < 0 or (np.diff(ids.astype(np.int64)) <= 0).any():
        raise UsageError("the shortlist must be one row of ascending token ids, at least one")
    raw = ids.astype("<i4").view(np.uint8)
    contents["shortlist"] = (TensorInfo("shortlist", "I32", ids.shape, raw.nbytes), raw)
    entries = [
        metadata_entry("general.architecture", NAME),
        metadata_entry(_PREFIX + "target_sha256", config.target_sha256),
        metadata_entry(_PREFIX + "hidden", config.hidden),
        metadata_entry(_PREFIX + "blocks", config.blocks),
        metadata_entry(_PREFIX + "inner", config.inner),
        metadata_entry(_PREFIX + "norm_eps", float(config.norm_eps)),
    ]
    return write_gguf(path, entries, [info for info, _ in contents.values()], lambda info: [contents[info.name][1]], force=force)


# --- reading -----------------------------------------------------------------------------------------------------------------------


def _read_config(file: ModelFile) -> DraftHeadConfig:
    meta = file.metadata
    config = DraftHeadConfig(
        target_sha256=meta.text(_PREFIX + "target_sha256").lower(),
        hidden=meta.integer(_PREFIX + "hidden"),
        blocks=meta.integer(_PREFIX + "blocks"),
        inner=meta.integer(_PREFIX + "inner"),
        norm_eps=meta.number(_PREFIX + "norm_eps"),
    )
    for name, value, most in (
        ("hidden", config.hidden, MAX_WIDTH),
        ("inner", config.inner, MAX_WIDTH),
        ("blocks", config.blocks, MAX_BLOCKS),
    ):
        least = 0 if name == "blocks" else 32
        if not least <= value <= most or (name != "blocks" and value % 32):
            rule = f"from {least} to {most}" + ("" if name == "blocks" else " and a multiple of 32")
            raise ModelFileError(f"metadata key '{_PREFIX}{name}' must be {rule}, got {value}")
    if not 0 <= config.norm_eps < 1 or not math.isfinite(config.norm_eps):
        raise ModelFileError(f"metadata key '{_PREFIX}norm_eps' must be at least 0 and below 1, got {config.norm_eps}")
    if len(config.target_sha256) != 64 or set(config.target_sha256) - set("0123456789abcdef"):
        raise ModelFileError(f"metadata key '{_PREFIX}target_sha256' must be 64 hexadecimal digits, got {config.target_sha256!r}")
    return config


def _shapes(config: DraftHeadConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden, config.inner
    shapes: dict[str, tuple[int, ...]] = {"feature.weight": (hidden, hidden), "token.weight": (hidden, hidden)}
    for block in range(config.blocks):
        shapes |= {
            f"blk.{block}.norm.weight": (hidden,),
            f"blk.{block}.gate.weight": (inner, hidden),
            f"blk.{block}.up.weight": (inner, hidden),
            f"blk.{block}.down.weight": (hidden, inner),
        }
    return shapes | {"output_norm.weight": (hidden,)}


def _check_tensors(file: ModelFile, config: DraftHeadConfig) -> None:
    shapes = _shapes(config)
    for name in file.names():
        if name not in shapes and name != "shortlist":
            raise UnsupportedModelError(f"tensor '{name}' is none that a draft head of {config.blocks} blocks computes with")
    for name, shape in shapes.items():
        info = file.info(name)
        types = MATRIX_TYPES if len(shape) == 2 else ("F32",)
        if info.shape != shape:
            raise ModelFileError(f"tensor '{name}' has shape {list(info.shape)}, but the metadata calls for {list(shape)}")
        if info.type not in types:
            raise UnsupportedModelError(f"tensor '{name}' has type {info.type}; supported: {', '.join(types)}")


def _read_shortlist(file: ModelFile) -> NDArray[np.int32]:
    info = file.info("shortlist")
    if info.type != "I32" or len(info.shape) != 1 or not 1 <= info.shape[0] <= MAX_WIDTH:
        raise ModelFileError(
            f"tensor 'shortlist' must be one row of 1 to {MAX_WIDTH} values of type I32, got {info.type} of shape {list(info.shape)}"
        )
    ids = file.read("shortlist").view("<i4").astype(np.int32)
    if ids[0] < 0 or (ids[1:] <= ids[:-1]).any():
        raise ModelFileError("tensor 'shortlist' must hold token ids in ascending order")
    return ids


def _encoded(name: str, values: NDArray[np.float32], tensor_type: str) -> tuple[TensorInfo, NDArray[np.uint8]]:
    if tensor_type in QUANTIZED_TYPES:
        raw = quantize_rows(tensor_type, values)
        assert raw.nbytes == encoded_bytes(tensor_type, values.shape)
    elif tensor_type == "BF16":  # the upper half, rounded to nearest, ties to even
        bits = values.view(np.uint32)
        raw = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").view(np.uint8)
    else:
        raw = values.astype("<f4").view(np.uint8)
    return TensorInfo(name, tensor_type, values.shape, raw.nbytes), raw


class _HeadTensors:
    """The tensors of a head's file, the big model's embedding, and the rows of its output head that the shortlist names."""

    def __init__(self, file: ModelFile, target: TensorSource, schedule: Schedule, shortlist: NDArray[np.int32]) -> None:
        self._file = file
        self._target = target
        self._shortlist = shortlist
        self._embedding = next(op.weight for op in schedule.ops if isinstance(op, Embed))
        last = next(op for op in reversed(schedule.ops) if isinstance(op, Matmul))
        self._head = last.weights[0]

    def names(self) -> Iterable[str]:
        return (*self._file.names(), TARGET_EMBEDDING, _TARGET_ROWS)

    def info(self, name: str) -> TensorInfo:
        if name == TARGET_EMBEDDING:
            found = self._target.info(self._embedding)
            return TensorInfo(name, found.type, found.shape, found.nbytes)
        if name == _TARGET_ROWS:
            found = self._target.info(self._head)
            rows = len(self._shortlist)
            return TensorInfo(name, found.type, (rows, found.shape[1]), found.nbytes // found.shape[0] * rows)
        return self._file.info(name)

    def read(self, name: str, rows: range | None = None) -> NDArray[np.uint8]:
        if name == TARGET_EMBEDDING:
            return self._target.read(self._embedding, rows)
        if name == _TARGET_ROWS:
            wanted = self._shortlist if rows is None else self._shortlist[rows.start : rows.stop]
            runs = np.split(wanted, np.flatnonzero(np.diff(wanted) > 1) + 1)  # rows that neighbour in the big model too
            return np.concatenate([self._target.read(self._head, range(int(run[0]), int(run[-1]) + 1)) for run in runs])
        return self._file.read(name, rows)

    def close(self) -> None:
        """The files are closed by those who opened them."""
