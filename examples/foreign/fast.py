"""The accelerated twin of base.py: blocks of residues at once.

    python fast.py --mode exact CASE OUTPUT     float64, each element by the operations of base.py: the same bits
    python fast.py --mode fast CASE OUTPUT      float32, distances by a matrix product: near, not the same

A mode that cannot engage ends with NOT ACTIVE and exit code 3; nothing falls back to the other in silence.
"""

from __future__ import annotations

import argparse
import sys
import time

import base
import numpy as np

BLOCK = 64
LARGEST_EXTENT = 2000.0
"""Angstroms from the middle. Squares of larger coordinates leave float32 too few digits for distances of 0.5."""


def score_exact(measured: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    residues = len(measured)
    lddt, contacts = np.ones(residues), np.zeros(residues)
    for begin in range(0, residues, BLOCK):
        rows = np.arange(begin, min(begin + BLOCK, residues))
        steps = (measured - measured[rows, None], predicted - predicted[rows, None])  # (block, residues, 3)
        true, found = (np.sqrt(step[..., 0] ** 2 + step[..., 1] ** 2 + step[..., 2] ** 2) for step in steps)
        fill(lddt, contacts, rows, true, found)
    return lddt, contacts


def score_fast(measured: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    residues = len(measured)
    lddt, contacts = np.ones(residues), np.zeros(residues)
    centred = [(points - points.mean(0)).astype(np.float32) for points in (measured, predicted)]
    squares = [np.einsum("ij,ij->i", points, points) for points in centred]
    for begin in range(0, residues, BLOCK):
        rows = np.arange(begin, min(begin + BLOCK, residues))
        # |a - b|^2 = |a|^2 + |b|^2 - 2 a.b: one product for a block, and cancellation where a and b are near
        true, found = (
            np.sqrt(np.maximum(square[rows, None] + square - 2 * (points[rows] @ points.T), np.float32(0)))
            for points, square in zip(centred, squares, strict=True)
        )
        fill(lddt, contacts, rows, true, found)
    return lddt, contacts


def fill(lddt: np.ndarray, contacts: np.ndarray, rows: np.ndarray, true: np.ndarray, found: np.ndarray) -> None:
    """Scores of a block of residues from its distances (block, residues)."""
    others = np.arange(true.shape[1]) != rows[:, None]
    near = (true < base.RADIUS) & others
    error = np.abs(true - found)
    kept = sum((near & (error < threshold)).sum(1) for threshold in base.THRESHOLDS)
    counted = near.sum(1)
    lddt[rows] = np.where(counted > 0, kept / np.maximum(len(base.THRESHOLDS) * counted, 1), 1.0)
    one, contact, softness = (true.dtype.type(value) for value in (1.0, base.CONTACT, base.SOFTNESS))
    with np.errstate(over="ignore"):  # exp of a large distance is infinite in float32, and the share then 0, as it should be
        contacts[rows] = (others / (one + np.exp((found - contact) / softness))).sum(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("exact", "fast"), required=True)
    parser.add_argument("case")
    parser.add_argument("output")
    wanted = parser.parse_args()
    began = time.perf_counter()
    case = base.load(wanted.case)
    extent = max(float(np.abs(points - points.mean(0)).max()) for points in case)
    if wanted.mode == "fast" and extent > LARGEST_EXTENT:
        print(f"NOT ACTIVE mode=fast reason=extent_{extent:.0f}_beyond_{LARGEST_EXTENT:.0f}_angstroms")
        sys.exit(3)
    print(f"ACTIVE mode={wanted.mode} block={BLOCK} dtype={'float64' if wanted.mode == 'exact' else 'float32'}")
    loaded = time.perf_counter()
    found = (score_exact if wanted.mode == "exact" else score_fast)(*case)
    scored = time.perf_counter()
    base.write(wanted.output, *found)
    ended = time.perf_counter()
    print(f"PHASE name=load s={loaded - began:.6f}")
    print(f"PHASE name=forward s={scored - loaded:.6f}")
    print(f"PHASE name=output s={ended - scored:.6f}")


if __name__ == "__main__":
    main()
