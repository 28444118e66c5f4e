"""The CPU back end: packs a model's weights, owns the key-value cache and runs the schedule as one compiled program."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from swiftsure import kernels
from swiftsure.engine.backend import Backend, RowBatch
from swiftsure.engine.numerics import (
    FULL_NUMERICS,
    INT8_KV,
    NUMERIC_LEVERS,
    ROW_GRID_4,
    ROW_GRID_8,
    ROW_INTEGERS,
    Numerics,
)
from swiftsure.engine.packed_store import PackedStore
from swiftsure.engine.pass_times import Piece, RawTimes, pieces_of
from swiftsure.errors import CapacityError, UnsupportedModelError, UsageError
from swiftsure.models.kv_size import SMALL_KV_BITS
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
from swiftsure.models.tensors import MATRIX_TYPES, TensorSource, block_columns, row_pieces

STRIP_ROWS = 16  # weights that share a matrix meet at a strip

Progress = Callable[[int, int], None]
"""Called with bytes packed so far and bytes in all."""


def require_runnable(schedule: Schedule) -> None:
    """Raises UnsupportedModelError for what no kernel here computes, so that ``check`` knows it without packing a weight."""
    if schedule.head_dim % 16 or not 16 <= schedule.head_dim <= 256:
        raise UnsupportedModelError(f"head_dim must be a multiple of 16 from 16 to 256, got {schedule.head_dim}")
    for op in schedule.ops:
        if isinstance(op, Rope) and not 1 <= op.theta < 1e30:
            raise UnsupportedModelError(f"the base of rotary frequencies must be at least 1 and below 1e30, got {op.theta}")


class CPUBackend(Backend):
    """One loaded model on this machine's processors. See :class:`swiftsure.engine.backend.Backend` for what every back end promises.

    Args:
        schedule: what to run.
        tensors: the weights; read once, not needed afterwards.
        isa: a name that ``kernels.resolve_isa`` gave.
        threads: the caller's thread included.
        kv_blocks: blocks of ``kernels.KV_BLOCK_SIZE`` positions in the cache; memory is taken as blocks are first used.
        max_rows: most rows of a pass; buffers are made for as many.
        max_logit_rows: most rows whose logits a pass hands back.
        shared: weights of another back end, by tensor, that are used as they are packed there.
        threads_of: a back end whose threads this one uses too, one run at a time; neither has run yet.
        numerics: which function: how matrices are packed and keys and values stored.
        progress: called after every few megabytes with bytes done and bytes in all.
        store: where packed weights are read from and kept; None: packed each time.

    Raises:
        UnsupportedModelError: a weight or shape that these kernels do not run, by name.
        CapacityError: the system has not enough memory.
        UsageError: an argument breaks a rule.
    """

    def __init__(
        self,
        schedule: Schedule,
        tensors: TensorSource,
        *,
        isa: str,
        threads: int,
        kv_blocks: int,
        max_rows: int = 256,
        max_logit_rows: int = 32,
        shared: Mapping[str, kernels.PackedMatrix] | None = None,
        threads_of: CPUBackend | None = None,
        numerics: Numerics = FULL_NUMERICS,
        progress: Progress | None = None,
        store: PackedStore | None = None,
    ) -> None:
        require_runnable(schedule)
        self._vocab_size = schedule.vocab_size
        self._schedule = schedule
        self._max_rows = max_rows
        self._max_logit_rows = max_logit_rows
        started = time.perf_counter()
        try:
            # Without layers nothing is stored, but a program's rows still name a block.
            layers = max(schedule.layers, 1)
            kv = kernels.KVCache(layers, schedule.kv_heads, schedule.head_dim, kernels.KV_BLOCK_SIZE, kv_blocks, numerics.kv_bits)
            program = kernels.Program(isa, threads, max_rows, max_logit_rows, kv)
            weights = _Weights(schedule, tensors, shared or {}, numerics.packing, progress)
            for name, width in schedule.buffers.items():
                program.buffer(name, width)
            for op in schedule.ops:
                _append(program, op, weights)
            weights.fill(threads, store)
            if threads_of is not None:
                program.share_threads(threads_of._running())
        except MemoryError as error:
            raise CapacityError(f"not enough memory for the weights and a key-value cache of {kv_blocks} blocks") from error
        except UsageError:
            raise
        except ValueError as error:
            raise UsageError(str(error)) from error
        self._kv_blocks = kv.blocks
        self._kv_bytes = kv.nbytes
        self._kv_bits = kv.bits
        self._isa = isa
        self._program: kernels.Program | None = program
        self._lookups = {op.weight: weights.matrix(op.weight) for op in schedule.ops if isinstance(op, Embed)}
        self._weight_bytes = weights.nbytes
        self._numerics = numerics.id
        matmuls = [matrix for op in schedule.ops if isinstance(op, Matmul) for matrix in weights.matrices(op.weights)]
        self._pass_bytes = sum(matrix.nbytes for matrix in matmuls)
        self._lever_uses = _lever_uses(schedule, weights, kv)
        self.pack_seconds = time.perf_counter() - started
        """Seconds from the first byte read to the last one packed."""

    @property
    def numerics(self) -> str:
        return self._numerics

    @property
    def isa(self) -> str:
        return self._isa

    @property
    def threads(self) -> int:
        return self._running().threads

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def max_rows(self) -> int:
        return self._max_rows

    @property
    def max_logit_rows(self) -> int:
        return self._max_logit_rows

    @property
    def kv_block_size(self) -> int:
        return kernels.KV_BLOCK_SIZE

    @property
    def kv_blocks(self) -> int:
        return self._kv_blocks

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights; a weight that two operations share counts once."""
        return self._weight_bytes

    @property
    def pass_bytes(self) -> int:
        return self._pass_bytes

    @property
    def lever_uses(self) -> Mapping[str, int]:
        return self._lever_uses

    @property
    def kv_bytes(self) -> int:
        """Bytes of the whole key-value cache, used or not."""
        return self._kv_bytes

    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        try:
            return self._running().run(batch.tokens, batch.positions, batch.sequences, batch.block_tables, batch.logit_rows, batch.features)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def hidden(self) -> NDArray[np.float32]:
        return self._running().selected_rows(self._schedule.head_input)

    @property
    def kv_bits(self) -> int:
        """Bits of a cached key or value."""
        return self._kv_bits

    def time_passes(self, on: bool) -> None:
        """From the next pass on, times what each thread does in it, or nothing (as at first). The logits are the same."""
        self._running().profile(on)

    def pieces(self) -> tuple[Piece, ...]:
        """What a timed pass is made of."""
        return pieces_of(self._schedule, self._running().pieces())

    def raw_times(self) -> RawTimes:
        """Of the last pass, which must have been timed."""
        planned_ns, wall_ns, shares, work = self._running().times()
        return RawTimes(planned_ns=planned_ns, wall_ns=wall_ns, shares=shares, work=work)

    def matrix(self, name: str) -> kernels.PackedMatrix:
        """A tensor whose rows are looked up, packed, for a back end that shares it."""
        self._running()
        return self._lookups[name]

    def close(self) -> None:
        self._program = None  # and with it the cache and the threads
        self._lookups = {}

    def _running(self) -> kernels.Program:
        if self._program is None:
            raise UsageError("the back end is closed")
        return self._program


class _Weights:
    """Hands out packed matrices, each made once, when the first operation asks for it; :meth:`fill` brings the bytes at the end.

    ``shared`` are packed already, by tensor. ``packing`` names the packed type of weights that matmuls read otherwise than the file
    has them.
    """

    def __init__(
        self,
        schedule: Schedule,
        tensors: TensorSource,
        shared: Mapping[str, kernels.PackedMatrix],
        packing: Mapping[str, str],
        progress: Progress | None,
    ) -> None:
        self._tensors = tensors
        self._packing = packing
        self._progress = progress
        self._arena = kernels.WeightArena()
        self.packed: dict[tuple[str, tuple[str, ...]], kernels.PackedMatrix] = {}  # by packed type and names
        self.packed |= {(matrix.type, (name,)): matrix for name, matrix in shared.items()}
        self._total = sum(tensors.info(name).nbytes for name in {name for op in schedule.ops for name in _weights_of(op)} - set(shared))
        self._done = 0
        self._vector_bytes = 0
        self._parts: list[tuple[kernels.PackedMatrix, int, str]] = []  # matrix, first row, tensor

    @property
    def nbytes(self) -> int:
        return self._arena.used_bytes + self._vector_bytes

    def vector(self, name: str) -> NDArray[np.float32]:
        info = self._tensors.info(name)
        if info.type != "F32" or len(info.shape) != 1:
            raise UnsupportedModelError(f"tensor '{name}' must be a vector of type F32, got {info.type} of shape {info.shape}")
        values = self._tensors.read(name).view(np.float32)
        self._vector_bytes += values.nbytes
        self._advance(info.nbytes)
        return values

    def fill(self, threads: int, store: PackedStore | None) -> None:
        """Reads the packed bytes of all matrices from ``store``, or packs them and keeps them there. Call once, after the last matrix."""
        contents = [f"{'+'.join(names)} {matrix.type} {matrix.n} {matrix.k}" for (_, names), matrix in self.packed.items()]
        if store is not None and store.read(self._arena, contents, threads=threads):
            if self._progress is not None:
                self._progress(self._total, self._total)
            return
        with ThreadPoolExecutor(threads) as pool:  # reading and packing leave the interpreter free
            packed = [
                pool.submit(self._pack, matrix, first_row, name, rows)
                for matrix, first_row, name in self._parts
                for rows in row_pieces(self._tensors.info(name), multiple=STRIP_ROWS)  # two threads never write one strip
            ]
            try:
                for done in packed:
                    self._advance(done.result())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if store is not None:
            store.keep(self._arena, contents)

    def _pack(self, matrix: kernels.PackedMatrix, first_row: int, name: str, rows: range | None) -> int:
        """Packs ``rows`` of a tensor whose first row is ``first_row`` of the matrix; returns the bytes read."""
        assert rows is not None, "a matrix has rows"
        source = self._tensors.info(name).type
        data = self._tensors.read(name, rows)
        matrix.pack_rows(first_row + rows.start, len(rows), data, None if matrix.type == source else source)
        return data.size

    def matrix(self, name: str) -> kernels.PackedMatrix:
        """A matrix whose rows are looked up: packed as the file has it."""
        return self._packed(self._tensors.info(name).type, (name,))

    def matrices(self, names: Sequence[str]) -> list[kernels.PackedMatrix]:
        """What a matmul reads: as few packed matrices as the types and the rows of ``names`` allow, in order."""
        return [self._packed(self._packed_type(run[0]), tuple(run)) for run in self._runs(names)]

    def _packed(self, packed_type: str, names: tuple[str, ...]) -> kernels.PackedMatrix:
        """The rows of all ``names`` below one another in one packed matrix; their types and widths agree."""
        found = self.packed.get((packed_type, names))
        if found is None:
            found = self.packed[packed_type, names] = self._allocate(packed_type, names)
        return found

    def _packed_type(self, name: str) -> str:
        return self._packing.get(name) or self._tensors.info(name).type

    def _runs(self, names: Sequence[str]) -> list[list[str]]:
        runs: list[list[str]] = []
        for (tensor_type, packed_type), group in groupby(names, key=lambda name: (self._tensors.info(name).type, self._packed_type(name))):
            run: list[str] = []
            for name in group:
                # A neighbour may follow only where a strip ends, and a matrix packed before is shared, not packed again.
                if run and (sum(self._rows(n) for n in run) % STRIP_ROWS or (packed_type, (name,)) in self.packed):
                    runs.append(run)
                    run = []
                run.append(name)
            if tensor_type not in MATRIX_TYPES:
                raise UnsupportedModelError(f"tensor '{run[0]}' has type {tensor_type}; supported: {', '.join(MATRIX_TYPES)}")
            runs.append(run)
        return runs

    def _rows(self, name: str) -> int:
        shape = self._tensors.info(name).shape
        if len(shape) != 2:
            raise UnsupportedModelError(f"tensor '{name}' must be a matrix, got shape {shape}")
        return shape[0]

    def _allocate(self, packed_type: str, names: tuple[str, ...]) -> kernels.PackedMatrix:
        info = self._tensors.info(names[0])
        rows = [self._rows(name) for name in names]
        k = info.shape[1]
        if info.type in MATRIX_TYPES and k % block_columns(info.type):
            raise UnsupportedModelError(
                f"tensor '{names[0]}' of type {info.type} must have a multiple of {block_columns(info.type)} columns, got {k}"
            )
        matrix = kernels.PackedMatrix(packed_type, sum(rows), k, self._arena)
        first = 0
        for name, count in zip(names, rows, strict=True):
            width = self._tensors.info(name).shape[1]
            if width != k:
                raise UnsupportedModelError(f"tensors '{names[0]}' and '{name}' multiply one input but have {k} and {width} columns")
            self._parts.append((matrix, first, name))
            first += count
        return matrix

    def _advance(self, nbytes: int) -> None:
        self._done = min(self._done + nbytes, self._total)  # a tied head that is packed apart is read twice
        if self._progress is not None:
            self._progress(self._done, self._total)


def _weights_of(op: Op) -> tuple[str, ...]:
    if isinstance(op, Matmul | AddBias):
        return op.weights
    return (op.weight,) if isinstance(op, Embed | RMSNorm | HeadNorm) else ()


def _lever_uses(schedule: Schedule, weights: _Weights, kv: kernels.KVCache) -> dict[str, int]:
    """Numeric lever -> matrices or layers of one pass, counted on what was packed, not on what was asked for."""
    uses = dict.fromkeys(NUMERIC_LEVERS, 0)
    for op in schedule.ops:
        if isinstance(op, Matmul):
            uses[ROW_INTEGERS] += sum(matrix.type in (ROW_GRID_4, ROW_GRID_8) for matrix in weights.matrices(op.weights))
    uses[INT8_KV] = schedule.layers if kv.bits == SMALL_KV_BITS else 0
    return {name: count for name, count in uses.items() if count}


def _append(program: kernels.Program, op: Op, weights: _Weights) -> None:
    match op:
        case Embed():
            program.embed(weights.matrix(op.weight), op.out, op.scale)
        case Input():
            program.input(op.out)
        case RMSNorm():
            program.rmsnorm(op.x, weights.vector(op.weight), op.out, op.eps, op.accumulate)
        case Matmul():
            program.matmul(op.x, weights.matrices(op.weights), op.out, op.accumulate)
        case AddBias():
            program.add_bias(op.x, np.concatenate([weights.vector(name) for name in op.weights]))
        case HeadNorm():
            program.head_norm(op.x, weights.vector(op.weight), op.offset, op.heads, op.head_dim, op.eps)
        case Rope():
            program.rope(op.x, op.offset, op.heads, op.head_dim, op.rotary_dim, op.theta, op.style, op.factors)
        case StoreKV():
            program.store_kv(op.x, op.k_offset, op.v_offset, op.layer)
        case Attention():
            program.attention(op.x, op.q_offset, op.out, op.layer, op.heads, op.scale, op.window)
        case GatedActivation():
            program.gated_activation(op.kind, op.x, op.out)
        case SelectRows():
            program.select_rows(op.x, op.out)
