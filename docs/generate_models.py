"""Writes docs/models.md from the architectures and formats that the code knows; ``--check`` only says whether the file is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from generated import write_or_check

from swiftsure.models.architectures import ARCHITECTURES
from swiftsure.models.supported import FORMATS, cell_name, model_types, runs

PAGE = Path(__file__).with_name("models.md")
INTRODUCTION = """# Models that run

Generated from the code by `python docs/generate_models.py`; a test keeps it up to date.

## Architectures
"""
FORMATS_HEAD = """
## Formats

Matrices of these types run as the file has them, mixed as the file mixes them; no type is widened in memory. Vectors (norms, biases) are
F32 in GGUF files and any of the three float types in folders. Every cell is a test and names it: a small model in that format, its logits
within 1e-3 (relative L2) of the float64 twin's where it says "yes", refused where it says "no". To run one:
`pytest "tests/models/test_supported.py::test_every_cell_of_the_table_is_true[llama-GGUF-Q4_K]"`.
"""
FOOT = """
Every architecture is also compared with the transformers library in float32 on small random weights: no logit differs by more than 0.5 % of
the logits' standard deviation (`tests/upstream/test_architectures.py`), at positions beyond the rotations' original context too. In every
tensor type no bit depends on the schedule (`tests/invariance/test_every_architecture.py`).

## Rotary scaling

`linear`, and `llama3` from the factors that GGUF files keep as a tensor (`rope_freqs.weight`) or from `config.json`. Others (`yarn`,
`longrope`, `dynamic`) are refused by name.

## What is refused

Whatever a file holds and an architecture here does not compute: mixtures of experts, biases and norms elsewhere, other activations, tensor
types that are not in the table, models split over several GGUF files. The message names the key or the tensor, and for another architecture
those that run; the exit code is 2. `swiftsure models info FILE` lists the reasons without loading the model.
"""


def page() -> str:
    lines = [INTRODUCTION, "| architecture (GGUF) | `model_type` (folders) | what it is |", "|---|---|---|"]
    for name, architecture in ARCHITECTURES.items():
        types = ", ".join(f"`{model_type}`" for model_type in model_types(name)) or "not read"
        lines.append(f"| `{name}` | {types} | {architecture.summary} |")
    lines += [
        FORMATS_HEAD,
        f"| format | type | {' | '.join(f'`{name}`' for name in ARCHITECTURES)} |",
        "|---|---|" + "---|" * len(ARCHITECTURES),
    ]
    for form in FORMATS:
        cells = " | ".join(f"{'yes' if runs(name, form) else 'no'}: `{cell_name(name, form)}`" for name in ARCHITECTURES)
        lines.append(f"| {form.container} | {form.tensor_type} | {cells} |")
    return "\n".join(lines) + "\n" + FOOT


if __name__ == "__main__":
    sys.exit(
        write_or_check(PAGE, page(), sys.argv[1:], stale="docs/models.md is not what the code runs: run python docs/generate_models.py")
    )
