"""A GGUF file with some of its metadata and tensors changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray


def edited(
    path: Path,
    target: Path,
    *,
    keys: Mapping[str, Any] | None = None,
    drop_keys: Collection[str] = (),
    tensors: Mapping[str, NDArray[np.float32]] | None = None,
    drop_tensors: Collection[str] = (),
) -> Path:
    """Copies ``path`` to ``target``: ``keys`` are set (their GGUF type follows the Python type), ``tensors`` are float32."""
    reader = gguf.GGUFReader(path)
    changed = dict(keys or {})
    writer = gguf.GGUFWriter(target, changed.pop("general.architecture", reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in drop_keys or name in changed:
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    for name, value in changed.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            kinds = {bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32}
            writer.add_key_value(name, value, kinds.get(type(value), gguf.GGUFValueType.STRING))
    replaced = tensors or {}
    for tensor in reader.tensors:
        if tensor.name not in drop_tensors and tensor.name not in replaced:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    for name, array in replaced.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
