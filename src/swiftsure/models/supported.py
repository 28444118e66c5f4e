"""Which architectures run from which formats of files: what docs/models.md shows, and what a test tries cell by cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from swiftsure.models.architectures import ARCHITECTURES
from swiftsure.models.hf_families import FAMILIES
from swiftsure.models.quantize import FLOAT_BYTES
from swiftsure.models.tensors import MATRIX_TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A kind of file with matrices of one type; a model may mix the types of its kind."""

    container: Literal["GGUF", "safetensors"]
    tensor_type: str  # as GGUF spells it


FORMATS = (
    *(Format(container="GGUF", tensor_type=tensor_type) for tensor_type in MATRIX_TYPES),
    *(Format(container="safetensors", tensor_type=tensor_type) for tensor_type in FLOAT_BYTES),
)


def model_types(architecture: str) -> tuple[str, ...]:
    """What ``config.json`` calls an architecture; empty where folders of it are not read."""
    return tuple(name for name, family in FAMILIES.items() if family.architecture == architecture)


def cell_name(architecture: str, form: Format) -> str:
    """A cell of the table, as the test of it is called."""
    return f"{architecture}-{form.container}-{form.tensor_type}"


def runs(architecture: str, form: Format) -> bool:
    """Whether a model of a known architecture runs from a format."""
    return architecture in ARCHITECTURES and (form.container == "GGUF" or bool(model_types(architecture)))
