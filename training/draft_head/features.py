"""Step 2: the normed last hidden row of every position, float16 ``(tokens, hidden)``, beside each round's ``.npz``."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import swiftsure
from swiftsure.engine.llm import LLM
from training.draft_head.conversations import MODEL


def hidden_rows(llm: LLM, ids: NDArray[np.int32]) -> NDArray[np.float16]:
    rows: list[NDArray[np.float16]] = []
    llm.score(ids, lambda _position, _logits: rows.append(llm.backend.hidden().astype(np.float16)))
    return np.concatenate(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    with swiftsure.load(MODEL, mode="default", context=1024) as llm:
        for file in sorted(chosen.folder.glob("*.npz")):
            read = np.load(file)
            texts = np.split(read["ids"], np.cumsum(read["lengths"])[:-1])
            np.save(file.with_suffix(".npy"), np.concatenate([hidden_rows(llm, text) for text in texts]))
            print(file.name, flush=True)


if __name__ == "__main__":
    main()
