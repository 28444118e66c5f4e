"""The architectures this build can run: one file each, found here by the name GGUF gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from swiftsure.errors import UnsupportedModelError
from swiftsure.models import gemma3, llama, qwen2, qwen3
from swiftsure.models.config import ModelConfig
from swiftsure.models.model_file import ModelFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """``read_config`` checks metadata; what tensors there must be and the schedule follow from the config (``transformer.py``)."""

    name: str
    summary: str  # one sentence, for people
    read_config: Callable[[ModelFile], ModelConfig]


def _first_paragraph(docstring: str | None) -> str:
    return " ".join((docstring or "").split("\n\n")[0].split())


ARCHITECTURES: Mapping[str, Architecture] = {
    module.NAME: Architecture(name=module.NAME, summary=_first_paragraph(module.__doc__), read_config=module.read_config)
    for module in (gemma3, llama, qwen2, qwen3)
}


def architecture(name: str) -> Architecture:
    """Raises UnsupportedModelError, with the supported names, for any other."""
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(f"architecture '{name}' is not supported; supported: {', '.join(sorted(ARCHITECTURES))}")
    return ARCHITECTURES[name]
