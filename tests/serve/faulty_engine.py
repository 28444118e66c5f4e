"""An engine's process that turns one bit of the logits in every mode but default. ``WRONG_FROM_PASS``: in that pass and all later ones.
``WRONG_BY``: so much is added to that logit instead."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import numpy as np

import swiftsure
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.llm import LLM
from swiftsure.serve.engine_process.loop import serve_engine


class OneBitOff(CPUBackend):
    """One logit of each row. The lowest bit of it changes no token."""

    passes = 0

    def run(self, batch: Any) -> Any:
        rows = super().run(batch)
        self.passes += 1
        if self.passes >= int(os.environ["WRONG_FROM_PASS"]):
            if added := os.environ.get("WRONG_BY"):
                rows[:, 3] += float(added)
            else:
                rows.view(np.uint32)[:, 3] ^= 1
        return rows


def faulty_load(model: str, **keywords: Any) -> LLM:
    llm = swiftsure.load(model, **keywords)
    if keywords["mode"] != "default":
        llm.backend.__class__ = OneBitOff
    return llm


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        sys.exit(serve_engine(connection, faulty_load))
