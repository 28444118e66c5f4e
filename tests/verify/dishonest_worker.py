"""A worker that breaks a promise on purpose: ``python dishonest_worker.py HOW [MODE]``. Only MODE (exact by default) misbehaves.

flip: one bit of one logit of the sixth generated row differs. zero: a logit is 0.0 in the first pass and -0.0 in the others. token: another
token comes back than the logits say. idle: levers had occasions and left no evidence. die: the process ends in the middle. refuse:
loading says NotActiveError. slow: a generation takes ten seconds. noise: prints to standard output. drift: plays the mode by loading
default, and its logits leave those of default from position 300 on. stuck: scored texts get the row of position 80 from there on.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from typing import Any

import numpy as np

import swiftsure
from swiftsure.engine.llm import LLM
from swiftsure.errors import NotActiveError
from swiftsure.verify.proving.worker import serve

HOW = sys.argv[1]
MODE = sys.argv[2] if len(sys.argv) > 2 else "exact"
FLIPPED_ROW, FLIPPED_TOKEN = 5, 17
DRIFT_FROM = 300
STUCK_FROM = 80


class DishonestLLM:
    """Passes everything on to an honest model, but for what ``HOW`` says."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._calls = 0
        self._stuck_row: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    @property
    def activation(self) -> Any:
        activation = self._llm.activation
        if HOW != "idle":
            return activation
        states = [
            dataclasses.replace(state, unproved=f"lever {state.name}: 3 occasions but drafted=0") for state in activation.lever_states
        ]
        return dataclasses.replace(activation, lever_states=tuple(states))

    def generate(self, prompts: Any, *, sampling: Any, on_logits: Any) -> Any:
        self._calls += 1
        if HOW == "die" and self._calls == 2:
            print("the disk is on fire", file=sys.stderr, flush=True)
            os._exit(7)
        if HOW == "slow":
            time.sleep(10)
        if HOW == "noise":
            print("a library says hello")
        if HOW in ("flip", "zero") and callable(on_logits):
            on_logits = self._tampered(on_logits)
        result = self._llm.generate(prompts, sampling=sampling, on_logits=on_logits)
        if HOW == "token" and not isinstance(result, list):
            return dataclasses.replace(result, token_ids=(*result.token_ids[:-1], 0))
        return result

    def score(self, ids: Any, on_rows: Any) -> None:
        def drift(position: int, rows: Any) -> None:
            late = np.arange(position, position + len(rows))[:, None] >= DRIFT_FROM
            on_rows(position, np.where(late, rows * np.float32(0.5), rows))

        def stick(position: int, rows: Any) -> None:
            for at, row in enumerate(rows, start=position):
                if at == STUCK_FROM:
                    self._stuck_row = row.copy()
                on_rows(at, (self._stuck_row if at > STUCK_FROM else row)[None])

        self._llm.score(ids, {"drift": drift, "stuck": stick}.get(HOW, on_rows))

    def _tampered(self, on_logits: Any) -> Any:
        rows = 0

        def pass_on(position: int, row: Any) -> None:
            nonlocal rows
            if rows == FLIPPED_ROW:
                row = row.copy()
                if HOW == "flip":
                    row.view(np.uint32)[FLIPPED_TOKEN] ^= 1
                else:
                    row[FLIPPED_TOKEN] = -0.0 if self._calls > 1 else 0.0
            rows += 1
            on_logits(position, row)

        return pass_on


def load(model: str, *, mode: str, **arguments: Any) -> Any:
    if mode == MODE and HOW == "refuse":
        raise NotActiveError("the lever is stuck")
    llm = swiftsure.load(model, mode="default" if HOW == "drift" else mode, **arguments)
    return DishonestLLM(llm) if mode == MODE else llm


serve(load)
