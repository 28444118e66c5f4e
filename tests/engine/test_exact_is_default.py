"""Exact has the bits of default: engines over random models, whatever company, blocks, passes, threads and instruction sets."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import ALL_LEVERS, StillCost

from swiftsure import kernels
from swiftsure.engine.compiled import describer, free_sources, sampler_factory
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.engine import Engine
from swiftsure.engine.request import Request
from swiftsure.engine.sampling import SamplingParams
from tiny_models import TinyModel, random_spec

SEEDS = range(60 if "--full" in sys.argv else 10)
TOKENIZER = SimpleNamespace(special_ids=frozenset(), token_bytes=lambda token: b"%d " % token)


def run(model, requests, *, isa, threads, levers, kv_blocks, max_rows, max_logit_rows, cost=None):
    """Per request: tokens and the bytes of all reported rows; and the engine's evidence."""
    backend = CPUBackend(
        model.schedule, model.source(), isa=isa, threads=threads, kv_blocks=kv_blocks, max_rows=max_rows, max_logit_rows=max_logit_rows
    )
    engine = Engine(
        backend,
        TOKENIZER,
        context=model.spec.context,
        end_ids=(0,),
        levers=levers,
        make_sampler=sampler_factory(backend.vocab_size, isa),
        sources=free_sources(),
        describe=describer(isa),
    )
    engine.drafting.policy.cost = cost or engine.drafting.policy.cost
    found = []
    for ids, params in requests:
        rows = []
        request = Request(prompt_ids=ids, sampling=params, on_logits=lambda at, row, rows=rows: rows.append((at, row.tobytes())))
        found.append((engine.add(request), rows))
    while engine.step():
        pass
    assert all(seq.error is None for seq, _ in found)
    result = [(seq.generation().token_ids, rows) for seq, rows in found]
    backend.close()
    return result, engine.evidence


def random_requests(model, rng):
    """Prompts that repeat themselves and one another, under every kind of sampling."""
    vocab = model.spec.vocab
    shared = rng.integers(0, vocab, 70)
    requests = []
    for _ in range(5):
        own = np.tile(rng.integers(0, vocab, rng.integers(1, 6)), 4)
        ids = np.concatenate([shared[: rng.choice([0, 40, 70])], own]).astype(np.int32)
        params = SamplingParams(
            max_tokens=int(rng.integers(20, 110)),
            temperature=float(rng.choice([0.0, 0.1, 0.8])),
            seed=int(rng.integers(0, 100)),
            top_k=int(rng.choice([0, 20])),
            top_p=float(rng.choice([1.0, 0.9])),
            min_p=float(rng.choice([0.0, 0.05])),
            repetition_penalty=float(rng.choice([1.0, 0.8, 1.2])),
            presence_penalty=float(rng.choice([0.0, -0.5])),
            frequency_penalty=float(rng.choice([0.0, 0.3])),
        )
        requests.append((ids, params))
    return requests


@pytest.mark.parametrize("seed", SEEDS)
def test_no_bit_of_exact_differs_from_default_on_the_portable_path(seed):
    rng = np.random.default_rng(seed)
    model = TinyModel(random_spec(seed))
    requests = random_requests(model, rng)
    expected, _ = run(model, requests, isa="portable", threads=1, levers=(), kv_blocks=40, max_rows=256, max_logit_rows=32)
    found, evidence = run(
        model,
        requests,
        isa=str(rng.choice(kernels.supported_isas())),
        threads=int(rng.integers(1, 5)),
        levers=ALL_LEVERS,
        kv_blocks=int(rng.integers(6, 18)),
        max_rows=int(rng.choice([5, 16, 256])),
        max_logit_rows=int(rng.choice([3, 8, 32])),
        cost=StillCost({1: 1e-4, 32: 1e-4}) if seed % 2 else None,  # free rows: every draft is verified, right or wrong
    )
    assert found == expected
    assert evidence.batching.shared_passes > 0
    assert evidence.speculation.drafted > 0 or seed % 2 == 0
