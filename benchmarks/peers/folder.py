"""The model once more, for engines that read no GGUF: a folder with config.json and model.safetensors.

The weights are those of the GGUF file, dequantized by transformers' own reader to float32, so that every engine starts from the same
values. What an engine does with them then (bfloat16, 8 or 4 bits of its own) is its adapter's to say.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.process import ROOT, PeerError


def write_folder(path: Path, folder: Path) -> Path:
    """Writes the folder unless it is there; complete or absent, never half. Needs the ``upstream`` extra; raises PeerError without it."""
    if (folder / "config.json").is_file():
        return folder
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    # In a process of its own: what it imports and holds must not stand beside what is measured.
    made = subprocess.run([sys.executable, "-m", __spec__.name, str(path), str(partial)], cwd=ROOT, capture_output=True, text=True)
    if made.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        raise PeerError(f"{path}: cannot be written as a folder: {(made.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder


def _convert(path: Path, folder: Path) -> None:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    model.hf_quantizer = None  # dequantized as it is, it counts as quantized and would not be saved
    del model.config.quantization_config
    model.save_pretrained(folder, max_shard_size="64GB")


if __name__ == "__main__":
    _convert(*map(Path, sys.argv[1:3]))
