"""Writes cases for base.py: chains that fold at random, and predictions that err more or less.

python make_cases.py FOLDER [SIZE ...]      sizes in residues; the same sizes give the same files
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

SIZES = tuple(range(40, 360, 5))
STEP = 3.8  # angstroms from one C-alpha atom to the next


def chain(residues: int, rng: np.random.Generator) -> np.ndarray:
    """A random walk that turns back where it leaves the radius of a folded protein of that length, 2.2 n^0.38 angstroms and some more."""
    points = np.zeros((residues, 3))
    radius = 1.5 * 2.2 * residues**0.38
    for i in range(1, residues):
        pull = -points[i - 1] / radius * max(0.0, np.linalg.norm(points[i - 1]) / radius - 0.5)
        direction = rng.normal(size=3) + 4.0 * pull
        points[i] = points[i - 1] + STEP * direction / np.linalg.norm(direction)
    return points


def name(residues: int) -> str:
    return f"chain_{residues:04d}.npz"


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [int(size) for size in sys.argv[2:]] or SIZES
    for number, residues in enumerate(sizes):
        rng = np.random.default_rng(number)
        measured = chain(residues, rng)
        predicted = measured + rng.normal(scale=rng.uniform(0.2, 2.0), size=measured.shape)
        np.savez(folder / name(residues), measured=measured, predicted=predicted)
    rows = [f"{name(residues)},{residues}" for residues in sizes]
    (folder / "cases.csv").write_text("\n".join(["file,size", *rows]) + "\n")  # tells verify the sizes in residues


if __name__ == "__main__":
    main()
