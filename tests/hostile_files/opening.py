"""What a user does with a file: look at it, load it, let it write. Every stage that can be reached is."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftsure import kernels
from swiftsure.engine.backend import RowBatch
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.load_options import LoadOptions
from swiftsure.engine.loading import make_plan
from swiftsure.kernels.sampling import Sampler
from swiftsure.models.files import ModelFiles
from swiftsure.models.model import Model, describe, open_model

STAGES = ("info", "open", "tokenizer", "template", "plan", "pack", "decode", "done")
_TEXT = "Der 3. Hund läuft <|im_end|> 4 km!\n"
_CONTEXT = 48
_ROWS = 8
_TEMPLATE_LIMIT_S = 0.5  # instead of 2, which every endless template would take


def open_wholly(path: Path, reach: Callable[[str], None]) -> None:
    """Goes through all stages, each announced to ``reach``. Raises what the first faulty one raises."""
    files = ModelFiles(name="hostile", path=path, sha256="0" * 64, source="path")
    reach("info")
    describe(files)
    reach("open")
    with open_model(files) as model:
        reach("tokenizer")
        ids = _use_tokenizer(model)
        reach("template")
        _use_template(model)
        reach("plan")
        plan = make_plan(model, "default", LoadOptions(threads=1, context=min(_CONTEXT, model.config.context_length), isa="portable"))
        reach("pack")
        backend = CPUBackend(
            plan.schedule,
            model.tensors,
            isa=kernels.resolve_isa(None),
            threads=1,
            kv_blocks=plan.memory.kv_blocks,
            max_rows=_ROWS,
            max_logit_rows=_ROWS,
            numerics=plan.numerics,
        )
        with closing(backend):
            model.check_unchanged()
            reach("decode")
            _decode(backend, ids, plan.memory.context)
    reach("done")


def _use_tokenizer(model: Model) -> list[int]:
    tokenizer = model.tokenizer
    for special in (False, True):
        ids = tokenizer.encode(_TEXT, special=special)
        tokenizer.decode(ids)
    for token in (0, tokenizer.vocab_size - 1, *tokenizer.prefix_ids, *sorted(tokenizer.eos_ids)):
        tokenizer.token_bytes(token)
    return ids


def _use_template(model: Model) -> None:
    _ = model.generation_defaults
    template = model.chat_template
    if template is None:
        return
    # One process renders for all inputs that a worker opens, as starting one takes longer than everything else.
    template._child = _renderers.pop(os.getpid(), None)
    template._time_limit_s = _TEMPLATE_LIMIT_S
    try:
        model.encode_chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": _TEXT}])
    finally:
        if template._child is not None:
            _renderers[os.getpid()], template._child = template._child, None


_renderers: dict[int, Any] = {}


def end_renderer() -> None:
    """Ends the process that renders for this one."""
    child = _renderers.pop(os.getpid(), None)
    if child is not None:
        child.stop()


def _decode(backend: CPUBackend, ids: list[int], context: int) -> None:
    """A prompt in one pass, one token in the next, drawn as the engine draws it."""
    tokens = [token for token in ids if 0 <= token < backend.vocab_size][: min(_ROWS, context - 1)] or [0]
    table = np.arange(backend.kv_blocks, dtype=np.int32)[None]
    rows = np.arange(len(tokens), dtype=np.int32)
    last = rows[-1:]

    def run(tokens: list[int], positions: NDArray[np.int32], wanted: NDArray[np.int32]) -> NDArray[np.float32]:
        batch = RowBatch(
            tokens=np.array(tokens, np.int32),
            positions=positions,
            sequences=np.zeros(len(tokens), np.int32),
            block_tables=table,
            logit_rows=wanted,
        )
        return backend.run(batch)

    logits = run(tokens, rows, last)
    sampler = Sampler(backend.vocab_size, isa=backend.isa, temperature=0.7, top_k=5, top_p=0.9)
    sampler.prime(tokens)
    token = int(sampler.accept(logits)[0])
    if len(tokens) < context:
        run([token], last + np.int32(1), np.zeros(1, np.int32))
