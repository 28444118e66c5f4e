"""From a number to a damaged file or folder: always the same one for the same number."""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hostile_files.folder_mutations import FOLDER
from hostile_files.folder_parts import Content, FolderParts, write_files
from hostile_files.gguf_mutations import BYTES, STRUCTURE
from hostile_files.gguf_parts import Parts
from hostile_files.model_mutations import MODEL
from hostile_files.safetensors_mutations import SAFETENSORS
from hostile_files.seeds import folder_seeds, gguf_seeds

_FOLDERS = 0.5  # of the inputs


@dataclass(frozen=True, slots=True)
class HostileInput:
    """One input: a GGUF file's bytes, or a folder's files. ``name`` says how it was made: from which model, then each mutation."""

    number: int
    name: str
    data: bytes | dict[str, Content]

    def write(self, folder: Path) -> Path:
        if isinstance(self.data, dict):
            return write_files(self.data, folder / "model")
        path = folder / "model.gguf"
        path.write_bytes(self.data)
        return path


def sound_parts(name: str) -> Parts:
    """A sound file's parts, for the caller to change."""
    parts: Parts = pickle.loads(_frozen(name, folder=False))
    return parts


def sound_folder(name: str) -> FolderParts:
    """A sound folder's parts, for the caller to change."""
    parts: FolderParts = pickle.loads(_frozen(name, folder=True))
    return parts


@lru_cache
def _frozen(name: str, *, folder: bool) -> bytes:
    """Copies are made several times faster from this than by copying."""
    return pickle.dumps(folder_seeds()[name] if folder else gguf_seeds()[name])


def sound_inputs() -> list[HostileInput]:
    """What all others are made from."""
    files = [HostileInput(-1, name, sound_parts(name).build()) for name in gguf_seeds()]
    return files + [HostileInput(-1, f"{name} folder", sound_folder(name).build()) for name in folder_seeds()]


def make_input(number: int) -> HostileInput:
    """Mostly one mutation, so that it is not hidden behind another; sometimes several."""
    rng = random.Random(number)
    return _make_folder(number, rng) if rng.random() < _FOLDERS else _make_file(number, rng)


def _make_file(number: int, rng: random.Random) -> HostileInput:
    """Sometimes the bytes are changed too, or alone."""
    base = rng.choice(sorted(gguf_seeds()))
    parts = sound_parts(base)
    steps = [base]
    kind = rng.random()
    if kind < 0.85:
        for _ in range(_how_many(rng)):
            mutation = rng.choice(MODEL if rng.random() < 0.5 else STRUCTURE)
            if parts.pairs and parts.tensors:
                mutation(parts, rng)
                steps.append(mutation.__name__)
    data = parts.build()
    if kind >= 0.85 or rng.random() < 0.05:
        change = rng.choice(BYTES)
        data = change(data, parts, rng)
        steps.append(change.__name__)
    return HostileInput(number, " + ".join(steps), data)


def _make_folder(number: int, rng: random.Random) -> HostileInput:
    base = rng.choice(sorted(folder_seeds()))
    parts = sound_folder(base)
    steps = [f"{base} folder"]
    for _ in range(_how_many(rng)):
        mutation = rng.choice(FOLDER if rng.random() < 0.6 else SAFETENSORS)
        mutation(parts, rng)
        steps.append(mutation.__name__)
    return HostileInput(number, " + ".join(steps), parts.build())


def _how_many(rng: random.Random) -> int:
    return 1 if rng.random() < 0.8 else rng.randint(2, 4)
