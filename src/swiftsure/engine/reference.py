"""A schedule run in float64: the truth that numeric paths are measured against, and a slow back end that needs no compiled core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swiftsure.engine.backend import RowBatch
from swiftsure.errors import UsageError
from swiftsure.kernels import reference as ref
from swiftsure.models.schedule import (
    AddBias,
    Attention,
    Embed,
    GatedActivation,
    HeadNorm,
    Input,
    Matmul,
    Op,
    RMSNorm,
    Rope,
    Schedule,
    SelectRows,
    StoreKV,
)
from swiftsure.models.tensors import TensorSource

Float64 = NDArray[np.float64]


class KeyValues(Protocol):
    """Keys and values of one sequence, float64."""

    def store(self, layer: int, positions: NDArray[np.int64], keys: Float64, values: Float64) -> None:
        """``keys`` and ``values``: (rows, kv_heads, head_dim)."""

    def load(self, layer: int, length: int) -> tuple[Float64, Float64]:
        """Positions 0 .. length - 1: two arrays (length, kv_heads, head_dim)."""


class _Weights:
    """Exactly dequantized tensors, each kept after its first use."""

    def __init__(self, tensors: TensorSource) -> None:
        self._tensors = tensors
        self._kept: dict[str, Float64] = {}
        self.bytes_read = 0

    def __getitem__(self, name: str) -> Float64:
        if name not in self._kept:
            info = self._tensors.info(name)
            data = self._tensors.read(name)
            self.bytes_read += data.size
            self._kept[name] = ref.dequantize(info.type, data, tuple(info.shape))
        return self._kept[name]


class _Pass:
    """One pass over rows of one sequence: the buffers and where each operation writes."""

    def __init__(
        self,
        schedule: Schedule,
        weights: _Weights,
        kv: KeyValues,
        tokens: NDArray[np.int64],
        positions: NDArray[np.int64],
        selected: NDArray[np.int64],
        features: Float64 | None = None,
    ) -> None:
        self._schedule, self._weights, self._kv = schedule, weights, kv
        self._tokens, self._positions, self._selected, self._features = tokens, positions, selected, features
        self._buffers: dict[str, Float64] = {}

    def run(self) -> Float64:
        for op in self._schedule.ops:
            _RUNNERS[type(op)](self, op)
        return self._buffers[self._schedule.logits_buffer]

    @property
    def hidden(self) -> Float64:
        """What the logits were computed from."""
        return self._buffers[self._schedule.head_input]

    def _heads(self, buffer: str, offset: int, heads: int, head_dim: int) -> Float64:
        columns = self._buffers[buffer][:, offset : offset + heads * head_dim]
        return columns.reshape(-1, heads, head_dim)

    def _embed(self, op: Embed) -> None:
        self._buffers[op.out] = ref.embed(self._weights[op.weight], self._tokens) * op.scale

    def _input(self, op: Input) -> None:
        assert self._features is not None, "a schedule that reads features runs with them"
        self._buffers[op.out] = self._features

    def _rmsnorm(self, op: RMSNorm) -> None:
        out = ref.rmsnorm(self._buffers[op.x], self._weights[op.weight], op.eps)
        self._buffers[op.out] = self._buffers[op.out] + out if op.accumulate else out

    def _matmul(self, op: Matmul) -> None:
        x = self._buffers[op.x]
        out = np.concatenate([ref.matmul(x, self._weights[name]) for name in op.weights], axis=1)
        self._buffers[op.out] = self._buffers[op.out] + out if op.accumulate else out

    def _replace_heads(self, op: Rope | HeadNorm, heads: Float64) -> None:
        self._buffers[op.x][:, op.offset : op.offset + op.heads * op.head_dim] = heads.reshape(len(heads), -1)

    def _add_bias(self, op: AddBias) -> None:
        self._buffers[op.x] = ref.add_bias(self._buffers[op.x], [self._weights[name] for name in op.weights])

    def _head_norm(self, op: HeadNorm) -> None:
        heads = self._heads(op.x, op.offset, op.heads, op.head_dim)
        self._replace_heads(op, ref.rmsnorm(heads, self._weights[op.weight], op.eps))

    def _rope(self, op: Rope) -> None:
        heads = self._heads(op.x, op.offset, op.heads, op.head_dim)
        turned = ref.rope(heads, self._positions, rotary_dim=op.rotary_dim, theta=op.theta, style=op.style, factors=op.factors)
        self._replace_heads(op, turned)

    def _store_kv(self, op: StoreKV) -> None:
        kv_heads, head_dim = self._schedule.kv_heads, self._schedule.head_dim
        keys = self._heads(op.x, op.k_offset, kv_heads, head_dim)
        values = self._heads(op.x, op.v_offset, kv_heads, head_dim)
        self._kv.store(op.layer, self._positions, keys, values)

    def _attention(self, op: Attention) -> None:
        q = self._heads(op.x, op.q_offset, op.heads, self._schedule.head_dim)
        keys, values = self._kv.load(op.layer, int(self._positions[-1]) + 1)
        out = ref.attention(q, keys, values, self._positions, op.scale, op.window)
        self._buffers[op.out] = out.reshape(len(q), -1)

    def _gated_activation(self, op: GatedActivation) -> None:
        x = self._buffers[op.x]
        width = x.shape[1] // 2
        self._buffers[op.out] = ref.gated_activation(op.kind, x[:, :width], x[:, width:])

    def _select_rows(self, op: SelectRows) -> None:
        self._buffers[op.out] = self._buffers[op.x][self._selected]


_RUNNERS: dict[type[Op], Callable[[_Pass, Any], None]] = {
    Embed: _Pass._embed,
    Input: _Pass._input,
    RMSNorm: _Pass._rmsnorm,
    Matmul: _Pass._matmul,
    AddBias: _Pass._add_bias,
    HeadNorm: _Pass._head_norm,
    Rope: _Pass._rope,
    StoreKV: _Pass._store_kv,
    Attention: _Pass._attention,
    GatedActivation: _Pass._gated_activation,
    SelectRows: _Pass._select_rows,
}


def run_rows(schedule: Schedule, tensors: TensorSource, tokens: ArrayLike, features: ArrayLike) -> tuple[Float64, Float64]:
    """Logits and the hidden rows behind them of a schedule without a cache: (n, vocab_size) and (n, hidden) for n tokens with features."""
    ids, values = np.asarray(tokens, np.int64), np.asarray(features, np.float64)
    rows = np.arange(len(ids))
    one = _Pass(schedule, _Weights(tensors), _WholeSequence(), ids, rows, rows, values)
    return one.run(), one.hidden


class _WholeSequence:
    """The keys and values of a single pass from position 0."""

    def __init__(self) -> None:
        self._layers: dict[int, tuple[Float64, Float64]] = {}

    def store(self, layer: int, positions: NDArray[np.int64], keys: Float64, values: Float64) -> None:
        # A copy: the pass may overwrite the buffer these are views of.
        self._layers[layer] = (keys.copy(), values.copy())

    def load(self, layer: int, length: int) -> tuple[Float64, Float64]:
        keys, values = self._layers[layer]
        return keys[:length], values[:length]


class ReferenceModel:
    """A schedule over exactly dequantized weights, every operation in float64. Keeps 8 bytes a weight."""

    def __init__(self, schedule: Schedule, tensors: TensorSource) -> None:
        self._schedule = schedule
        self._weights = _Weights(tensors)

    def logits(self, token_ids: ArrayLike) -> Float64:
        """Logits of every position of one sequence: (n, vocab_size)."""
        tokens = np.asarray(token_ids, dtype=np.int64).reshape(-1)
        _check_tokens(tokens, self._schedule.vocab_size)
        if not 0 < len(tokens) <= self._schedule.context_length:
            raise UsageError(f"a sequence must have 1 to {self._schedule.context_length} tokens, got {len(tokens)}")
        rows = np.arange(len(tokens), dtype=np.int64)
        return _Pass(self._schedule, self._weights, _WholeSequence(), tokens, rows, rows).run()


def _check_tokens(tokens: NDArray[np.int64], vocab_size: int) -> None:
    bad = tokens[(tokens < 0) | (tokens >= vocab_size)]
    if bad.size:
        raise UsageError(f"token ids must be from 0 to {vocab_size - 1}, got {bad[0]}")


class _BlockedSequence:
    """One sequence's keys and values, seen through its block table."""

    def __init__(self, cache: Float64, table: NDArray[np.int64]) -> None:
        self._cache = cache  # (2, layers, blocks, block_size, kv_heads, head_dim)
        self._table = table  # (table_width,)

    def store(self, layer: int, positions: NDArray[np.int64], keys: Float64, values: Float64) -> None:
        block_size = self._cache.shape[3]
        blocks, offsets = self._table[positions // block_size], positions % block_size
        self._cache[0, layer, blocks, offsets] = keys
        self._cache[1, layer, blocks, offsets] = values

    def load(self, layer: int, length: int) -> tuple[Float64, Float64]:
        block_size = self._cache.shape[3]
        blocks = self._table[: -(-length // block_size)]
        keys, values = (side[layer, blocks].reshape(-1, *self._cache.shape[4:])[:length] for side in self._cache)
        return keys, values


class ReferenceBackend:
    """The seam of :mod:`swiftsure.engine.backend` in float64 NumPy: for tests, and for reading beside the compiled back end.

    Runs row by row, so that every product has the same shape whatever shares the pass. What is left of variance (NumPy adds in an order
    that follows the alignment of its buffers) stays near 1e-16 and is all but always lost in the float32 that comes out.
    """

    numerics = "float64"
    isa = "numpy"
    threads = 1

    def __init__(
        self,
        schedule: Schedule,
        tensors: TensorSource,
        *,
        kv_blocks: int,
        kv_block_size: int = 32,
        max_rows: int = 256,
        max_logit_rows: int = 32,
    ) -> None:
        self._schedule = schedule
        self._weights = _Weights(tensors)
        self._cache = np.full((2, schedule.layers, kv_blocks, kv_block_size, schedule.kv_heads, schedule.head_dim), np.nan)
        self.vocab_size = schedule.vocab_size
        self.max_rows = max_rows
        self.max_logit_rows = max_logit_rows
        self.kv_block_size = kv_block_size
        self.kv_blocks = kv_blocks
        self._logits = np.zeros((max_logit_rows, schedule.vocab_size), dtype=np.float32)
        self._hidden = np.zeros((0, 0), dtype=np.float32)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the tensors used so far, as in the file."""
        return self._weights.bytes_read

    @property
    def pass_bytes(self) -> int:
        return self.weight_bytes

    @property
    def lever_uses(self) -> Mapping[str, int]:
        return {}

    @property
    def kv_bytes(self) -> int:
        return self._cache.nbytes

    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        """Runs one step; see :class:`swiftsure.engine.backend.Backend`."""
        self._check(batch)
        wanted = {int(row): index for index, row in enumerate(batch.logit_rows)}
        hidden: list[Float64] = []
        tables = batch.block_tables.astype(np.int64)
        for row, (token, position, sequence) in enumerate(zip(batch.tokens, batch.positions, batch.sequences, strict=True)):
            kv = _BlockedSequence(self._cache, tables[sequence])
            selected = np.zeros(1 if row in wanted else 0, dtype=np.int64)
            tokens, positions = np.array([token], dtype=np.int64), np.array([position], dtype=np.int64)
            one = _Pass(self._schedule, self._weights, kv, tokens, positions, selected)
            logits = one.run()
            if row in wanted:
                self._logits[wanted[row]] = logits[0]
                hidden.append(one.hidden[0])
        self._hidden = np.array(hidden, dtype=np.float32)
        return self._logits[: len(wanted)]

    def hidden(self) -> NDArray[np.float32]:
        return self._hidden

    def _check(self, batch: RowBatch) -> None:
        rows, wanted = len(batch.tokens), len(batch.logit_rows)
        if not 0 < rows <= self.max_rows:
            raise UsageError(f"a pass must have 1 to {self.max_rows} rows, got {rows}")
        if wanted > self.max_logit_rows:
            raise UsageError(f"a pass hands back at most {self.max_logit_rows} rows of logits, got {wanted}")
        _check_tokens(batch.tokens.astype(np.int64), self.vocab_size)
        last = int(batch.positions.max())
        if last >= self._schedule.context_length:
            raise UsageError(f"positions must be below the context length {self._schedule.context_length}, got {last}")

    def close(self) -> None:
        """Nothing to free."""
