"""Mutations of a ``.safetensors`` file's header: places of tensors, shapes, types, names, its length; and of its data."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from hostile_files import lies
from hostile_files.folder_parts import FolderParts, Weights

WeightsMutation = Callable[[Weights, random.Random], None]
FolderMutation = Callable[[FolderParts, random.Random], None]

_DTYPES = (
    *("F32", "F16", "BF16", "F64", "I8", "U8", "BOOL", "I64", "U32", "C64", "F8_E4M3", "F8_E5M2", "F4", "I4", "E8M0", "f32", "F32 ", ""),
    *("Q4_0", "O", "\x1b[2J", "x" * 5000, None, 7, ["F32"], {"F32": 1}),
)
_NUMBERS = (*lies.COUNTS, -1, -(2**63), 0.5, 2.0, 1e400, float("nan"), True, None, "32", [32], {}, 10**400)


def _entry(weights: Weights, rng: random.Random) -> dict[str, Any]:
    """What the header says of some tensor, to be changed; an earlier mutation may have left no such object."""
    found = [entry for _, entry in weights.entries if isinstance(entry, dict)]
    return rng.choice(found) if found else {}


def stored_offsets(weights: Weights, rng: random.Random) -> None:
    """Ends before they begin, beyond the file, over another tensor, with a gap, wrapped."""
    entry, size = _entry(weights, rng), len(weights.data)
    offsets = entry.get("data_offsets")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        return
    begin, end = offsets
    entry["data_offsets"] = rng.choice(
        (
            [end, begin],
            [begin + 2, end + 2],
            [begin - 2, end - 2],
            [begin, end + rng.choice((-1, 1, 2, 2**32, 2**63, 2**64))],
            [begin + 2**64, end + 2**64],
            [2**64 - 8, 2**64 - 8 + end - begin],
            [size, size + end - begin],
            [0, end - begin],
            [begin, begin],
            [rng.choice(_NUMBERS), rng.choice(_NUMBERS)],
            [begin],
            [begin, end, end],
            rng.choice(_NUMBERS),
        )
    )


def stored_shape(weights: Weights, rng: random.Random) -> None:
    """Another product, one that wraps to the right one, dimensions that are no counts, and hundreds of them."""
    entry = _entry(weights, rng)
    shape = entry.get("shape")
    if not isinstance(shape, list) or not shape:
        return
    how = rng.randrange(6)
    if how == 0:
        shape[rng.randrange(len(shape))] = rng.choice(_NUMBERS)
    elif how == 1:
        entry["shape"] = rng.choice(([2**32, 2**32], [2**63, 2], [2**62, 4], [], [1] * 33, [1] * 900, [0], [0, 2**63 - 1], [2**16] * 4))
    elif how == 2 and type(shape[0]) is int:  # the product is right modulo 2**64
        shape[0] += rng.choice((2**64, 2**63, 2**32))
    elif how == 3:
        shape.reverse()
    elif how == 4:
        entry["shape"] = shape + [1] * rng.randint(1, 4)
    else:
        entry["shape"] = rng.choice(_NUMBERS)


def stored_type(weights: Weights, rng: random.Random) -> None:
    _entry(weights, rng)["dtype"] = rng.choice(_DTYPES)


def stored_type_and_shape(weights: Weights, rng: random.Random) -> None:
    """A lie of the same size: another type of as many bytes, or a shape of the same product."""
    entry = _entry(weights, rng)
    shape = entry.get("shape")
    if isinstance(shape, list) and len(shape) == 2 and all(type(n) is int for n in shape) and rng.random() < 0.5:
        entry["shape"] = rng.choice(([shape[1], shape[0]], [shape[0] * shape[1]], [1, shape[0] * shape[1]], [shape[0] * shape[1], 1]))
    else:
        entry["dtype"] = {"BF16": rng.choice(("F16", "I16", "U16")), "F16": "BF16", "F32": rng.choice(("I32", "U32"))}.get(
            str(entry.get("dtype")), "F16"
        )


def stored_field(weights: Weights, rng: random.Random) -> None:
    """A field left out, one too many, or an entry that is none."""
    if not weights.entries:
        return
    at = rng.randrange(len(weights.entries))
    name, entry = weights.entries[at]
    how = rng.randrange(3)
    if how == 0 and isinstance(entry, dict) and entry:
        del entry[rng.choice(sorted(entry))]
    elif how == 1 and isinstance(entry, dict):
        entry[rng.choice(("strides", "requires_grad", "", "dtype "))] = rng.choice((0, None, [1], "x" * 5000))
    else:
        weights.entries[at] = name, rng.choice((None, [], {}, "F32", 1, [[[]]], {"a": {"b": {}}}))


def stored_name(weights: Weights, rng: random.Random) -> None:
    """Names that others have, that say another place, or that are no names."""
    if not weights.entries:
        return
    at = rng.randrange(len(weights.entries))
    name, entry = weights.entries[at]
    others = [name.replace(".weight", ".bias"), name.replace("layers.0", "layers.1"), name.replace("layers.0", "layers.4294967296")]
    others += [name + "\x00", name.upper(), "", "__metadata__", "\ud800", rng.choice(weights.entries)[0], "lm_head.weight"]
    others += [rng.choice(lies.NAMES).decode(errors="replace"), "model.layers.0.self_attn.rotary_emb.inv_freq"]
    weights.entries[at] = rng.choice(others), entry


def stored_tensors_moved(weights: Weights, rng: random.Random) -> None:
    if not weights.entries:
        return
    at = rng.randrange(len(weights.entries))
    how = rng.randrange(4)
    if how == 0:
        del weights.entries[at]
    elif how == 1:
        weights.entries.append(weights.entries[at])
    elif how == 2:
        rng.shuffle(weights.entries)
    else:
        empty = {"dtype": "F32", "shape": [0], "data_offsets": [len(weights.data)] * 2}
        weights.entries += [(f"more.{i}", empty) for i in range(rng.choice((1, 400)))]


def stored_metadata(weights: Weights, rng: random.Random) -> None:
    odd = (None, 1, [], {}, {"a": 1}, {"a": None}, {"": ""}, {"format": "pt" * 5000}, {"a": {"b": "c"}}, {"\ud800": "\x1b[2J"}, "pt")
    weights.metadata = rng.choice((*odd, {str(i): "x" for i in range(5000)}))


def stored_length(weights: Weights, rng: random.Random) -> None:
    """The number of bytes that the header is said to have."""
    length, size = len(weights.header_text()), len(weights.build())
    near = (length - 1, length + 1, length + 8, length // 2, size, size - 8, size - 7, size - 9, 10**8, 10**8 + 1)
    weights.length = rng.choice((*lies.COUNTS, *near)) % 2**64


def stored_header_text(weights: Weights, rng: random.Random) -> None:
    """Another JSON, or none."""
    header = weights.header_text()
    at = rng.randrange(max(1, len(header)))
    how = rng.randrange(6)
    if how == 0:
        header = header[:at]
    elif how == 1:
        header = header[:at] + rng.choice((b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\xff", b"\x00", b"1e999", b" ")) + header[at:]
    elif how == 2:
        header = header[:at] + bytes([rng.randrange(256)]) + header[at + 1 :]
    elif how == 3:
        header += rng.choice((b" " * 8, b"\x00" * 8, b"{}", b"\n" * 5000, b"]"))
    elif how == 4:
        header = rng.choice((b"", b"[]", b"null", b"{" * 5000, b"[" * 5000, b'{"a":' * 3000, b'"', b"{}", b"\xef\xbb\xbf" + header))
    else:
        header = header.decode("latin-1").encode("utf-16")
    weights.header = header


def stored_data(weights: Weights, rng: random.Random) -> None:
    """The file cut short or longer than the header says, or weights that are no numbers."""
    size, how = len(weights.data), rng.randrange(3)
    if how == 0:
        weights.data = weights.data[: rng.choice((0, 1, size // 2, max(0, size - 1)))]
    elif how == 1:
        weights.tail = bytes(rng.choice((1, 2, 8, 4096)))
    elif size:
        data = bytearray(weights.data)
        start = rng.randrange(size)
        fill = rng.choice((b"\xc0\x7f", b"\x80\xff", b"\x00\x7c", b"\xff\xff", b"\x00\x00"))
        length = min(rng.choice((2, 64, 5000)), size - start)
        data[start : start + length] = (fill * length)[:length]
        weights.data = bytes(data)


def _of_some_file(mutation: WeightsMutation) -> FolderMutation:
    def mutate(parts: FolderParts, rng: random.Random) -> None:
        if parts.weights:
            mutation(parts.weights[rng.choice(sorted(parts.weights))], rng)

    mutate.__name__ = mutation.__name__
    return mutate


def index(parts: FolderParts, rng: random.Random) -> None:
    """An index that names other files: outside the folder, not there, of other tensors."""
    name = "model.safetensors.index.json"
    files = sorted(parts.weights)
    found = parts.objects.get(name)
    if not isinstance(found, dict) or not isinstance(found.get("weight_map"), dict) or not found["weight_map"]:
        parts.objects[name] = {"weight_map": {tensor: files[0] for tensor, _ in parts.weights[files[0]].entries}} if files else {}
        if "model.safetensors" in parts.weights:  # it would win over an index
            parts.weights["model-1.safetensors"] = parts.weights.pop("model.safetensors")
        return
    where = found["weight_map"]
    tensor = rng.choice(sorted(where))
    how = rng.randrange(4)
    if how == 0:
        odd = ("../model.safetensors", "/etc/passwd", "a\x00.safetensors", "x" * 300 + ".safetensors", "\ud800.safetensors", "model.bin")
        where[tensor] = rng.choice((*odd, "", ".safetensors", "C:\\a.safetensors", "missing.safetensors", *files, None, 1, [], {}))
    elif how == 1:
        del where[tensor]
    elif how == 2:
        where[rng.choice(("no.such.tensor", "", "\x1b[2J", "__metadata__"))] = rng.choice(files or [""])
    else:
        found[rng.choice(("weight_map", "metadata"))] = rng.choice((None, [], {}, 1, "a", {"a": {}}, json.loads("[" * 40 + "]" * 40)))


SAFETENSORS: tuple[FolderMutation, ...] = (
    *map(_of_some_file, (stored_offsets, stored_offsets, stored_shape, stored_shape, stored_type, stored_type_and_shape, stored_field)),
    *map(_of_some_file, (stored_name, stored_tensors_moved, stored_metadata, stored_length, stored_header_text, stored_data)),
    *(index, index),
)
