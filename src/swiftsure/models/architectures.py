"""The architectures this build can run: one file each, found here by the name GGUF gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from swiftsure.errors import UnsupportedModelError
from swiftsure.models import llama
from swiftsure.models.config import ModelConfig
from swiftsure.models.model_file import ModelFile
from swiftsure.models.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """``read_config`` checks metadata, ``unsupported_reasons`` checks tensors, ``write_schedule`` needs the config alone."""

    name: str
    read_config: Callable[[ModelFile], ModelConfig]
    unsupported_reasons: Callable[[ModelFile, ModelConfig], list[str]]
    write_schedule: Callable[[ModelConfig], Schedule]


ARCHITECTURES: dict[str, Architecture] = {
    llama.NAME: Architecture(
        name=llama.NAME,
        read_config=llama.read_config,
        unsupported_reasons=llama.unsupported_reasons,
        write_schedule=llama.write_schedule,
    ),
}


def architecture(name: str) -> Architecture:
    """Raises UnsupportedModelError, with the supported names, for any other."""
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(f"architecture '{name}' is not supported; supported: {', '.join(sorted(ARCHITECTURES))}")
    return ARCHITECTURES[name]
