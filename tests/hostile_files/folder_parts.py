"""A folder of the transformers library taken apart, so that any part can be made to lie, and put together again."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_folders import framed

FILE_KINDS = ("directory", "pipe", "endless", "link to nothing", "link to itself")
Content = bytes | str  # a file's bytes, or one of FILE_KINDS in its place


@dataclass
class Weights:
    """A ``.safetensors`` file. ``entries`` are (name, what the header says of it), so that a name can be there twice; ``header`` replaces
    all of it, ``length`` the length stated before it."""

    entries: list[tuple[str, Any]]
    data: bytes
    metadata: Any = None
    header: bytes | None = None
    length: int | None = None
    tail: bytes = b""

    def build(self) -> bytes:
        return framed(self.header_text(), self.data + self.tail, length=self.length)

    def header_text(self) -> bytes:
        if self.header is not None:
            return self.header
        entries = [*([("__metadata__", self.metadata)] if self.metadata is not None else []), *self.entries]
        return ("{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in entries) + "}").encode()


@dataclass
class FolderParts:
    """``objects`` are the JSON files as values; ``raw`` holds files of any other content, in place of these or beside them."""

    objects: dict[str, Any]
    weights: dict[str, Weights]
    raw: dict[str, Content | None] = field(default_factory=dict)  # None: the file is not there

    def build(self) -> dict[str, Content]:
        """The files by name."""
        built: dict[str, Content | None] = {name: json.dumps(value).encode() for name, value in self.objects.items()}
        built |= {name: weights.build() for name, weights in self.weights.items()}
        return {name: content for name, content in (built | self.raw).items() if content is not None}


def take_folder_apart(folder: Path) -> FolderParts:
    """The parts of a sound folder."""
    parts = FolderParts({}, {})
    for path in sorted(folder.iterdir()):
        if path.suffix == ".json":
            parts.objects[path.name] = json.loads(path.read_text())
            continue
        built = path.read_bytes()
        end = 8 + int.from_bytes(built[:8], "little")
        header = json.loads(built[8:end])
        metadata = header.pop("__metadata__", None)
        parts.weights[path.name] = Weights(list(header.items()), built[end:], metadata)
    return parts


def write_files(files: dict[str, Content], folder: Path) -> Path:
    """Puts files, and what stands in place of some, into a new folder."""
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content == "directory":
            path.mkdir()
        elif content == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to({"endless": "/dev/zero", "link to nothing": "no-such-file", "link to itself": name}[content])
    return folder
