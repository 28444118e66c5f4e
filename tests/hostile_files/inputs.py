"""From a number to a damaged file: always the same one for the same number."""

from __future__ import annotations

import copy
import random
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hostile_files.gguf_mutations import BYTES, STRUCTURE
from hostile_files.gguf_parts import Parts, take_apart
from hostile_files.model_mutations import MODEL
from tiny_models import TinyModel, TinySpec

_SMALL = {"layers": 1, "heads": 2, "kv_heads": 1, "hidden": 32, "intermediate": 32, "vocab": 280, "context": 64}
_WIDE = {**_SMALL, "hidden": 256, "head_dim": 128, "intermediate": 256, "vocab": 96}

SOUND: dict[str, TinySpec] = {
    "q4_1": TinySpec(**_SMALL, type="Q4_1"),
    "mixed": TinySpec(**_SMALL | {"layers": 2}, types={"attn_k": "Q8_0", "attn_v": "BF16", "ffn_up": "F32", "head": "Q4_0"}, tied=False),
    "f16": TinySpec(**_SMALL | {"hidden": 40, "intermediate": 24}, type="F16"),
    "q5": TinySpec(**_SMALL, type="Q5_0", types={"ffn_down": "Q5_1"}),
    "super-blocks": TinySpec(**_WIDE, type="Q4_K", types={"ffn_down": "Q6_K", "attn_v": "Q5_K"}),
}


@dataclass(frozen=True, slots=True)
class HostileInput:
    """One input. ``name`` says how it was made."""

    number: int
    name: str
    data: bytes

    def write(self, folder: Path) -> Path:
        path = folder / "model.gguf"
        path.write_bytes(self.data)
        return path


def sound_parts(name: str) -> Parts:
    """A sound file's parts, for the caller to change."""
    return copy.deepcopy(_sound_parts()[name])


@lru_cache
def _sound_parts() -> dict[str, Parts]:
    with tempfile.TemporaryDirectory() as folder:
        return {name: take_apart(TinyModel(spec).write_gguf(Path(folder) / "sound.gguf").read_bytes()) for name, spec in SOUND.items()}


def sound_files() -> dict[str, bytes]:
    """What all inputs are made from."""
    return {name: sound_parts(name).build() for name in SOUND}


def make_input(number: int) -> HostileInput:
    """Mostly one mutation, so that it is not hidden behind another; sometimes several, sometimes on the bytes too."""
    rng = random.Random(number)
    base = rng.choice(sorted(SOUND))
    parts = sound_parts(base)
    steps = [base]
    kind = rng.random()
    if kind < 0.85:
        for _ in range(1 if rng.random() < 0.8 else rng.randint(2, 4)):
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
