"""Mutations of a GGUF file's structure: counts, lengths, types, offsets, shapes, places of tensors; and of its bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from gguf_bytes import ARRAY, STRING, U32, text, u32, u64
from hostile_files import lies
from hostile_files.gguf_parts import Pair, Parts, TensorLine, string_array

Mutation = Callable[[Parts, random.Random], None]
ByteMutation = Callable[[bytes, Parts, random.Random], bytes]


def counts(parts: Parts, rng: random.Random) -> None:
    off_by_few = rng.randint(-2, 2)
    if rng.random() < 0.5:
        parts.pair_count = rng.choice((*lies.COUNTS, max(0, len(parts.pairs) + off_by_few)))
    else:
        parts.tensor_count = rng.choice((*lies.COUNTS, max(0, len(parts.tensors) + off_by_few)))


def preamble(parts: Parts, rng: random.Random) -> None:
    if rng.random() < 0.5:
        parts.version = rng.choice((0, 1, 2, 4, 5, 255, 3 << 24, 2**31, 2**32 - 1))
    else:
        parts.magic = rng.choice(
            (b"GGUF", b"GGML", b"ggjt", b"FUGG", b"PK\x03\x04", b"\x80\x02}q", b"\x80\x04\x95\x00", b"\x00" * 4, b'{"a"')
        )


def key(parts: Parts, rng: random.Random) -> None:
    pair = rng.choice(parts.pairs)
    if rng.random() < 0.4:
        pair.raw = text(pair.key, length=rng.choice(lies.COUNTS)) + u32(pair.kind) + pair.value
    else:
        pair.key = rng.choice((*lies.NAMES, rng.choice(parts.pairs).key, pair.key + b"\x00", pair.key.upper(), pair.key[:-1]))


def value_kind(parts: Parts, rng: random.Random) -> None:
    """The bytes stay, their type is another."""
    rng.choice(parts.pairs).kind = rng.choice(lies.VALUE_KINDS)


def scalar(parts: Parts, rng: random.Random) -> None:
    pair = rng.choice(parts.pairs)
    pair.kind, pair.value = lies.any_scalar(rng)


def string(parts: Parts, rng: random.Random) -> None:
    pair = rng.choice(parts.pairs)
    pair.kind = STRING
    length = rng.choice(lies.COUNTS) if rng.random() < 0.5 else None
    pair.value = text(rng.choice(lies.STRINGS), length=length)


def array(parts: Parts, rng: random.Random) -> None:
    """An array whose type or length lies, or one of another kind."""
    arrays = [pair for pair in parts.pairs if pair.kind == ARRAY]
    pair = rng.choice(arrays or parts.pairs)
    how = rng.randrange(5)
    if how == 0 and pair.kind == ARRAY:
        pair.value = u32(rng.choice(lies.VALUE_KINDS)) + pair.value[4:]
    elif how == 1 and pair.kind == ARRAY:
        count = struct.unpack("<Q", pair.value[4:12])[0]
        pair.value = pair.value[:4] + u64(rng.choice((*lies.COUNTS, count + 1, max(count, 1) - 1))) + pair.value[12:]
    elif how == 2:
        pair.kind, pair.value = ARRAY, _nested(rng)
    elif how == 3:
        kind = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12))
        count = rng.choice((0, 1, 7, 300))
        pair.kind, pair.value = ARRAY, u32(kind) + u64(count) + b"".join(lies.scalar(kind, rng) for _ in range(count))
    else:
        values = [rng.choice(lies.STRINGS) for _ in range(rng.choice((0, 1, 5, 300)))]
        pair.kind, pair.value = ARRAY, string_array(values)


def _nested(rng: random.Random) -> bytes:
    if rng.random() < 0.3:  # deep
        depth = rng.choice((2, 3, 4, 50, 3000))
        return b"".join(u32(ARRAY) + u64(1) for _ in range(depth)) + u32(U32) + u64(1) + u32(7)
    width = rng.choice((1, 10, 2000))
    inner = rng.choice((u32(U32) + u64(0), u32(STRING) + u64(1) + text("a"), u32(99) + u64(0), u32(U32) + u64(2**62)))
    return u32(ARRAY) + u64(rng.choice((width, width, width + 1, 2**40))) + inner * width


def pairs_moved(parts: Parts, rng: random.Random) -> None:
    pair = rng.choice(parts.pairs)
    how = rng.randrange(4)
    if how == 0:
        parts.pairs.remove(pair)
    elif how == 1:
        parts.pairs.insert(rng.randrange(len(parts.pairs)), pair)
    elif how == 2:
        rng.shuffle(parts.pairs)
    else:
        parts.pairs.insert(rng.randrange(len(parts.pairs)), Pair(rng.choice(lies.NAMES), *lies.any_scalar(rng)))


def many_pairs(parts: Parts, rng: random.Random) -> None:
    """Entries that cost a reader more than they take in the file."""
    parts.pairs += [Pair(b"%x" % i, *rng.choice(((0, b"\x00"), (ARRAY, u32(0) + u64(0))))) for i in range(rng.choice((200, 5000)))]


def alignment(parts: Parts, rng: random.Random) -> None:
    value = rng.choice(lies.ALIGNMENTS)
    parts.replace(
        "general.alignment",
        *rng.choice(((U32, u32(value)), (10, u64(value)), (5, u32(value)), (STRING, text(str(value))), (6, u32(value)))),
    )
    if value and rng.random() < 0.5:
        parts.alignment = min(value, 1 << 16)


def dimensions(parts: Parts, rng: random.Random) -> None:
    """Shapes whose product wraps, or is another than the data's."""
    line = rng.choice(parts.tensors)
    how = rng.randrange(6)
    if how == 0:
        line.dims[rng.randrange(len(line.dims))] = rng.choice(lies.COUNTS)
    elif how == 1:
        line.dims = rng.choice(([2**32, 2**32], [2**31, 2**33], [2**63, 2], [2**16] * 4, [2**32, 2**31, 2], [32, 2**59], [2**40, 2**24]))
    elif how == 2:  # the product is right modulo 2**64 or 2**32
        line.dims = [line.dims[0] + rng.choice((2**32, 2**63, 2**61)), *line.dims[1:]]
    elif how == 3:
        line.dims = line.dims[::-1]
    elif how == 4:
        line.dim_count = rng.choice((0, 1, 2, 3, 4, 5, 8, 2**31, 2**32 - 1))
    else:
        line.dims = line.dims + [1] * rng.randint(1, 4) if rng.random() < 0.5 else [line.dims[0]]


def tensor_type(parts: Parts, rng: random.Random) -> None:
    rng.choice(parts.tensors).kind = rng.choice(lies.TYPE_IDS)


def offset(parts: Parts, rng: random.Random) -> None:
    """Outside the file, not aligned, or on another tensor."""
    line, other = rng.choice(parts.tensors), rng.choice(parts.tensors)
    end = len(parts.data)
    near = (end, end - 32, end // 2 // 32 * 32, other.offset, other.offset + 32, other.offset - 32, line.offset + 1, line.offset + 32)
    line.offset = rng.choice((*lies.COUNTS, *near))


def tensor_name(parts: Parts, rng: random.Random) -> None:
    line = rng.choice(parts.tensors)
    if rng.random() < 0.3:
        line.raw = text(line.name, length=rng.choice(lies.COUNTS)) + line.encoded()[8 + len(line.name) :]
    else:
        line.name = rng.choice((*lies.NAMES, rng.choice(parts.tensors).name))


def tensors_moved(parts: Parts, rng: random.Random) -> None:
    line = rng.choice(parts.tensors)
    how = rng.randrange(4)
    if how == 0:
        parts.tensors.remove(line)
    elif how == 1:
        parts.tensors.insert(rng.randrange(len(parts.tensors)), line)
    elif how == 2:
        other = rng.choice(parts.tensors)
        line.offset, other.offset = other.offset, line.offset
    else:
        parts.tensors += [TensorLine(b"t%d" % i, [1], 24, len(parts.data) - 32) for i in range(rng.choice((1, 400)))]


def data_cut(parts: Parts, rng: random.Random) -> None:
    size = len(parts.data)
    how = rng.randrange(3)
    if how == 0:
        parts.data = parts.data[: rng.choice((0, 1, size // 2, size - 1, size - 32))]
    elif how == 1:
        parts.tail = bytes(rng.choice((1, 31, 4096)))
    else:
        parts.data = parts.data[rng.choice((1, 8, 32)) :]


def data_noise(parts: Parts, rng: random.Random) -> None:
    """Weights that are no numbers: NaN and infinite scales, or noise."""
    data = bytearray(parts.data)
    for _ in range(rng.choice((1, 4, 40)) if data else 0):
        start = rng.randrange(len(data))
        length = min(rng.choice((2, 4, 64, 5000)), len(data) - start)
        fill = rng.choice(
            (b"\x00", b"\xff", b"\x00\x7c", b"\x00\xfc", b"\x00\x7e", b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f", b"\xff\xff\x7f\x7f")
        )
        data[start : start + length] = rng.randbytes(length) if rng.random() < 0.3 else (fill * length)[:length]
    parts.data = bytes(data)


STRUCTURE: tuple[Mutation, ...] = (
    *(counts, preamble, key, value_kind, scalar, string, array, pairs_moved, many_pairs, alignment),
    *(dimensions, tensor_type, offset, tensor_name, tensors_moved, data_cut, data_noise),
)


def flip(built: bytes, parts: Parts, rng: random.Random) -> bytes:
    """Some bytes, mostly of the header: it is small beside the data."""
    data = bytearray(built)
    end = parts.borders[-4] if rng.random() < 0.8 else len(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        at = rng.randrange(end)
        data[at] = rng.choice((data[at] ^ (1 << rng.randrange(8)), rng.randrange(256), 0, 255))
    return bytes(data)


def cut_at_border(built: bytes, parts: Parts, rng: random.Random) -> bytes:
    return built[: max(0, rng.choice(parts.borders) + rng.choice((-1, 0, 0, 1, 4)))]


def cut_anywhere(built: bytes, parts: Parts, rng: random.Random) -> bytes:
    return built[: rng.randrange(parts.borders[-4] if rng.random() < 0.7 else len(built))]


def bytes_moved(built: bytes, parts: Parts, rng: random.Random) -> bytes:
    """A piece of the header left out, doubled or overwritten by another."""
    end = parts.borders[-4]
    start, source = rng.randrange(end), rng.randrange(end)
    length = rng.choice((1, 2, 4, 8, 12, 100))
    piece = built[source : source + length]
    how = rng.randrange(3)
    if how == 0:
        return built[:start] + built[start + length :]
    return built[:start] + piece + built[start + (length if how == 1 else 0) :]


def noise(built: bytes, parts: Parts, rng: random.Random) -> bytes:
    keep = rng.choice((0, 4, 8, 24, rng.choice(parts.borders)))
    return built[:keep] + rng.randbytes(rng.choice((0, 1, 24, 500, 20000)))


BYTES: tuple[ByteMutation, ...] = (flip, flip, flip, cut_at_border, cut_anywhere, bytes_moved, noise)
