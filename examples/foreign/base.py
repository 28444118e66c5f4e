"""Scores a predicted protein structure against the measured one: the reference program, one residue after the other in float64.

    python base.py CASE OUTPUT

CASE is an .npz with ``measured`` and ``predicted``: (residues, 3) coordinates of C-alpha atoms in angstroms. OUTPUT becomes a folder with

* ``lddt.npy`` (residues,): the local distance difference test (Mariani and others, 2013) of each residue: of its distances to residues
  within 15 angstroms, the share that the prediction keeps to within 0.5, 1, 2 and 4 angstroms, averaged over the four;
* ``contacts.npy`` (residues,): how many residues are near in the prediction, counted softly around 8 angstroms;
* ``score.json``: the mean of ``lddt``, which is what predictions are ranked by.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

RADIUS, THRESHOLDS = 15.0, (0.5, 1.0, 2.0, 4.0)
CONTACT, SOFTNESS = 8.0, 1.0


def load(path: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path, allow_pickle=False) as case:
        return case["measured"].astype(np.float64), case["predicted"].astype(np.float64)


def score(measured: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """lddt and contacts, (residues,) each."""
    residues = len(measured)
    lddt, contacts = np.ones(residues), np.zeros(residues)
    for i in range(residues):
        steps = (measured - measured[i], predicted - predicted[i])
        true, found = (np.sqrt(step[:, 0] ** 2 + step[:, 1] ** 2 + step[:, 2] ** 2) for step in steps)
        others = np.arange(residues) != i
        near = (true < RADIUS) & others
        if near.any():
            error = np.abs(true - found)[near]
            lddt[i] = sum(int((error < threshold).sum()) for threshold in THRESHOLDS) / (len(THRESHOLDS) * int(near.sum()))
        contacts[i] = (others / (1.0 + np.exp((found - CONTACT) / SOFTNESS))).sum()
    return lddt, contacts


def write(folder: str, lddt: np.ndarray, contacts: np.ndarray) -> None:
    output = Path(folder)
    output.mkdir()
    np.save(output / "lddt.npy", lddt)
    np.save(output / "contacts.npy", contacts)
    (output / "score.json").write_text(json.dumps({"lddt": float(lddt.mean())}))


def main() -> None:
    began = time.perf_counter()
    case = load(sys.argv[1])
    loaded = time.perf_counter()
    found = score(*case)
    scored = time.perf_counter()
    write(sys.argv[2], *found)
    ended = time.perf_counter()
    print(f"PHASE name=load s={loaded - began:.6f}")
    print(f"PHASE name=forward s={scored - loaded:.6f}")
    print(f"PHASE name=output s={ended - scored:.6f}")


if __name__ == "__main__":
    main()
