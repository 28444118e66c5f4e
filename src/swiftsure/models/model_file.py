"""What the rest of Swiftsure asks of an open weights file, whatever its format."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from swiftsure.models.files import FileStamp
from swiftsure.models.gguf import GGUFFile, Metadata
from swiftsure.models.hf_folder import HFFolder
from swiftsure.models.tensors import TensorSource


class ModelFile(TensorSource, Protocol):
    """An open file, or folder of files, with tensors and metadata under GGUF's names and keys. Context manager.

    An architecture reads every format through this; the one thing that it must ask is ``permuted_rope``.
    """

    @property
    def path(self) -> Path: ...

    @property
    def format(self) -> str:
        """For people: "GGUF 3"."""

    @property
    def size(self) -> int:
        """Bytes of all files."""

    @property
    def stamp(self) -> FileStamp:
        """Of the files when they were opened."""

    @property
    def metadata(self) -> Metadata:
        """Configuration (and in a GGUF file the vocabulary) under GGUF's keys."""

    @property
    def permuted_rope(self) -> bool:
        """Whether query and key rows stand as GGUF's converter permutes them for the llama family, whose rotation then pairs neighbours
        ("interleaved"). Otherwise they stand as trained with the transformers library, and pair across the halves of a head ("halves")."""

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Why this build cannot run it, as far as its format's own words say; its metadata may then lack what they could not say."""

    def __contains__(self, name: str) -> bool: ...

    def check_unchanged(self) -> None:
        """Raises ModelFileError if a file was written to since it was opened, so that what was read may be of either state."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def open_model_file(path: Path) -> ModelFile:
    """Opens what lies at ``path``.

    Raises ModelNotFoundError, ModelFileError or UnsupportedModelError; each message starts with the path.
    """
    return HFFolder(path) if path.is_dir() else GGUFFile(path)
