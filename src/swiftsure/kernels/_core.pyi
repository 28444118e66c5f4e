"""
The compiled core of Swiftsure: kernels, static programs, sampling and drafting.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def built_isas() -> list[str]:
    """Instruction sets that this build has kernels for, best first."""

def supported_isas() -> list[str]:
    """Instruction sets of this build that this machine runs, best first."""

def rmsnorm(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], eps: float) -> NDArray[numpy.float32]: ...

def gated_activation(isa: str, kind: str, gate: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], up: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]: ...

def rope(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], position: int, rotary_dim: int, theta: float, style: str, factors: Sequence[float] = []) -> NDArray[numpy.float32]: ...

def attention(isa: str, q: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], keys: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], block_size: int, kv_bits: int = 16, window: int | None = None) -> NDArray[numpy.float32]:
    """
    One row of queries (heads, head_dim) over keys and values (length, head_dim) of one key-value head, or the last `window` of them.
    """

class WeightArena:
    """Memory on huge pages that many packed matrices share."""

    def __init__(self) -> None: ...

    @property
    def used_bytes(self) -> int: ...

    def clear(self) -> None:
        """Zeroes what was handed out."""

    def write(self, fd: int, offset: int) -> int:
        """
        Writes used_bytes bytes to a file and returns their checksum. Raises OSError.
        """

    def read(self, fd: int, offset: int, threads: int) -> int:
        """
        Fills the arena from such a file and returns the checksum of what was read. Raises OSError, also where the file ends early.
        """

class PackedMatrix:
    """
    Weights of shape (n, k) in the order the kernels stream them; zero until packed.
    """

    def __init__(self, type: str, n: int, k: int, arena: WeightArena | None = None) -> None: ...

    def pack_rows(self, first_row: int, rows: int, data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], source_type: str | None = None) -> None:
        """
        Packs `rows` rows from the bytes of a model file. R8 and R4 take any type that files have, named by `source_type`.
        """

    @property
    def type(self) -> str: ...

    @property
    def n(self) -> int: ...

    @property
    def k(self) -> int: ...

    @property
    def strips(self) -> int:
        """Strips of 16 rows; the last may be short."""

    @property
    def row_scales(self) -> NDArray[numpy.float32]:
        """What the integers of each row of an R8 or R4 matrix count in, (n,)."""

    @property
    def nbytes(self) -> int: ...

def matmul(isa: str, weights: PackedMatrix, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], strip_begin: int, strip_end: int, accumulate: bool, out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """
    out[:, 16 * strip_begin : 16 * strip_end] (+)= x @ weights.T, on one thread.
    """

def quantize(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> tuple[NDArray[numpy.int16], NDArray[numpy.float32], NDArray[numpy.int32]]:
    """
    Rows as integers: q (rows, k), scale (rows, k / 32) and sum of q (rows, k / 32).
    """

def quantize_grid(isa: str, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> tuple[NDArray[numpy.int8], NDArray[numpy.float32], NDArray[numpy.int32]]:
    """
    Rows as integers with one scale each: high and low digits (rows, 2, k filled up to a multiple of 64), scale (rows,) and 128 times the sums of the digits (rows, 2).
    """

def unpack_row(isa: str, weights: PackedMatrix, row: int) -> NDArray[numpy.float32]:
    """One row of the matrix as floats."""

class KVCache:
    """
    Keys and values of all layers in blocks of positions: int16 or int8, one float scale per head vector.
    """

    def __init__(self, layers: int, kv_heads: int, head_dim: int, block_size: int, blocks: int, bits: int = 16) -> None: ...

    @property
    def bits(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    @property
    def blocks(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def read_block(self, layer: int, kv_head: int, block: int) -> tuple[NDArray[numpy.int16], NDArray[numpy.float32], NDArray[numpy.int16], NDArray[numpy.float32]]:
        """
        Copies of keys (head_dim, block_size), key scales, values (block_size, head_dim) and value scales; int8 widened to int16.
        """

class Program:
    """
    A static program: one method per operation of a schedule, then one run per step.
    """

    def __init__(self, isa: str, threads: int, max_rows: int, max_logit_rows: int, kv: KVCache) -> None: ...

    def buffer(self, name: str, width: int) -> None: ...

    def embed(self, weight: PackedMatrix, out: str, scale: float = 1.0) -> None: ...

    def input(self, out: str) -> None: ...

    def share_threads(self, other: Program) -> None:
        """
        Both programs run on the same threads, one at a time. Before the first run of either; ends the building.
        """

    def rmsnorm(self, x: str, weight: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], out: str, eps: float, accumulate: bool = False) -> None: ...

    def matmul(self, x: str, weights: Sequence[PackedMatrix], out: str, accumulate: bool) -> None: ...

    def add_bias(self, x: str, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def head_norm(self, x: str, weight: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], offset: int, heads: int, head_dim: int, eps: float) -> None: ...

    def rope(self, x: str, offset: int, heads: int, head_dim: int, rotary_dim: int, theta: float, style: str, factors: Sequence[float] = []) -> None: ...

    def store_kv(self, x: str, k_offset: int, v_offset: int, layer: int) -> None: ...

    def attention(self, x: str, q_offset: int, out: str, layer: int, heads: int, scale: float, window: int | None = None) -> None: ...

    def gated_activation(self, kind: str, x: str, out: str) -> None: ...

    def select_rows(self, x: str, out: str) -> None: ...

    def run(self, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], sequences: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], block_tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], logit_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], features: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None) -> NDArray[numpy.float32]:
        """
        Runs one step; returns (wanted, logits width), a view that the next run overwrites. features: (rows, width), what `input` reads.
        """

    def selected_rows(self, buffer: str) -> NDArray[numpy.float32]:
        """
        What the last run left in a buffer that is written after select_rows: (wanted, width), a view that the next run overwrites.
        """

    def pieces(self) -> list[tuple[int, str, int]]:
        """
        What is timed: (stage, name, bytes of packed weights that a matmul reads) in the order of the work, "quantize" before the matmul that asked for it and "merge" after its attention; all others in the order they were appended.
        """

    def profile(self, on: bool) -> None:
        """
        Times every piece of the runs to come on every thread, or nothing (as at first); the results are the same. Ends the building.
        """

    def times(self) -> tuple[int, int, NDArray[numpy.int64], NDArray[numpy.int64]]:
        """
        Of the last run, in nanoseconds since it began: when its plan was made and when it was over; (threads, stages, 3) begin of the first chunk, end of the last and number of chunks; (threads, pieces) time spent.
        """

    @property
    def isa(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def buffer_bytes(self) -> int: ...

def argmax(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int: ...

def gumbel_argmax(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], temperature: float, seed: int, choice: int, position: int) -> int: ...

def log_sum_exp(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> float: ...

def log_probs(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float64]: ...

def top_log_probs(isa: str, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], count: int) -> tuple[NDArray[numpy.int32], NDArray[numpy.float64]]: ...

def philox4x32(isa: str, counter: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], key: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.uint32]: ...

def gumbel_of_words(isa: str, words: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]: ...

class Sampler:
    def __init__(self, vocab_size: int, *, isa: str, temperature: float, top_p: float, top_k: int, min_p: float, seed: int, choice: int, repetition_penalty: float, presence_penalty: float, frequency_penalty: float, logit_bias: Mapping[int, float]) -> None: ...

    def prime(self, prompt_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def accept(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], draft: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.int32]: ...

    def process(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]: ...

    @property
    def position(self) -> int: ...

class DraftSampler:
    def __init__(self, vocab_size: int, *, isa: str, temperature: float, top_p: float, top_k: int, min_p: float, seed: int, choice: int, shortlist: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def choose(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], position: int) -> tuple[int, float]: ...

class Drafter:
    def __init__(self, *, isa: str, max_ngram: int, temperature: float, seed: int, choice: int) -> None: ...

    def extend(self, ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def observe(self, ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def draft(self, max_tokens: int) -> tuple[NDArray[numpy.int32], list[float]]: ...

    @property
    def match_length(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...

    def __len__(self) -> int: ...

class TextStore:
    def __init__(self, capacity: int) -> None: ...

    def add(self, ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def find(self, ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], max_match: int, max_tokens: int) -> tuple[int, NDArray[numpy.int32]]: ...

    def clear(self) -> None: ...

    @property
    def memory_bytes(self) -> int: ...

    def __len__(self) -> int: ...

def hash_row(isa: str, row: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> bytes:
    """
    128 bits of all bits of a row of floats, the same on every instruction set.
    """

def read_passes(bytes: int, threads: int, passes: int) -> list[float]:
    """
    Seconds of each pass that reads a buffer of `bytes` bytes once with `threads` threads.
    """

def arithmetic_passes(kind: str, isa: str, threads: int, passes: int) -> list[float]:
    """
    Additions and multiplications per second, on registers alone, of each pass with `threads` threads: float32 (fma), or the integer products that matmuls over quantized weights are made of.
    """
