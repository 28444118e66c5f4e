"""Which exact bytes a model is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A weights file that is present, with the pin that names its bytes."""

    name: str
    path: Path
    sha256: str  # of the whole file, lower-case hexadecimal
    source: str  # where it came from: "catalogue: ...", "path", "hf:org/name"
    version: str | None = None
    licence: str | None = None
