"""A request's tokens and logits are its own: greedy and sampled requests in any company, with any levers, against each alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from companies import Alone, Company, Hall, alone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import Tally

from swiftsure import kernels
from swiftsure.engine.backend import Backend
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduling import Scheduling
from tiny_models import TinyModel, random_spec

MODELS = 6
SCHEDULES_PER_MODEL = 35
FULL_FACTOR = 20
REQUESTS = 10
CONTEXT = 192
KV_BLOCKS = 6  # one request of full length: companies are preempted
LEVERS = ("speculation", "prefix_cache", "batching", "chunked_prefill")


def make_requests(backend: Backend, seed: int) -> list[Alone]:
    """Prompts of few different tokens (so that lookups find drafts), some with a common beginning; greedy and sampled."""
    rng = np.random.default_rng(seed)
    spread = float(alone(backend, np.arange(8, dtype=np.int32), SamplingParams(max_tokens=8)).rows.std())
    shared = rng.integers(0, 9, 70)
    requests = []
    for index in range(REQUESTS):
        own = rng.integers(0, 9, int(rng.integers(1, 40)))
        prompt = (np.concatenate([shared[: int(rng.integers(32, 70))], own]) if index % 3 == 0 else own).astype(np.int32)
        processed = {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.1, "top_k": 40, "top_p": 0.95}
        sampling = SamplingParams(
            max_tokens=int(rng.integers(16, 80)),
            # Random models have logits of any size: a temperature that leaves several tokens a chance.
            temperature=0.0 if index % 2 else min(10.0, spread * float(rng.uniform(0.2, 0.8))),
            seed=index,
            ignore_eos=True,
            **(processed if index % 5 == 4 else {}),
        )
        requests.append(alone(backend, prompt, sampling))
    return requests


@st.composite
def companies(draw: st.DrawFn, *, isas: Sequence[str]) -> Company:
    request = st.tuples(st.integers(0, REQUESTS - 1), st.integers(0, 12))
    scheduling = Scheduling(
        max_running=draw(st.sampled_from([2, 16])),
        priority_running=draw(st.integers(1, 2)),
        priority_rows=draw(st.sampled_from([2, 16])),
        priority_slack=draw(st.sampled_from([0.1, 2.0, 4.0, 10.0])),
        prefill_chunk_ms=draw(st.sampled_from([1.0, 50.0])),
    )
    return Company(
        isa=draw(st.sampled_from(list(isas))),
        threads=draw(st.integers(1, 4)),
        requests=tuple(draw(st.lists(request, min_size=1, max_size=6))),
        levers=frozenset(LEVERS) - draw(st.frozensets(st.sampled_from(LEVERS), max_size=2)),
        max_rows=draw(st.sampled_from([3, 8, 16, 64])),
        max_logit_rows=draw(st.sampled_from([2, 5, 16])),
        draft_seed=draw(st.integers(0, 1000)),
        scheduling=scheduling,
        priority=draw(st.frozensets(st.integers(0, 5), max_size=3)),
    )


@pytest.fixture(scope="module", params=range(MODELS))
def hall(request: pytest.FixtureRequest, tallies: dict[str, Tally]) -> Iterator[Hall]:
    # An untied head, or a random model repeats its last token for ever.
    model = TinyModel(replace(random_spec(100 + request.param), tied=False))

    def make(isa: str, threads: int) -> CPUBackend:
        return CPUBackend(model.schedule, model.source(), isa=isa, threads=threads, kv_blocks=KV_BLOCKS, max_rows=64, max_logit_rows=16)

    truth = make("portable", 1)
    requests = make_requests(truth, request.param)
    truth.close()
    backends: dict[tuple[str, int], Backend] = {
        (isa, threads): make(isa, threads) for isa in kernels.supported_isas() for threads in range(1, 5)
    }
    yield Hall(f"engine {request.param}", requests, backends, tallies.setdefault("requests through the engine", Tally()), CONTEXT)
    for backend in backends.values():
        backend.close()


def test_a_request_in_any_company_gets_the_tokens_and_logits_it_gets_alone(hall: Hall, full: bool) -> None:
    before = len(hall.tally.schedules)
    wanted = SCHEDULES_PER_MODEL * (FULL_FACTOR if full else 1)

    @settings(
        max_examples=wanted + wanted // 5,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(company=companies(isas=kernels.supported_isas()))
    def check(company: Company) -> None:
        hall.run(company)

    check()
    assert len(hall.tally.schedules) - before >= wanted
    seen = hall.seen
    assert seen.drafted > seen.accepted > 0, "drafts must have been right and wrong"
    assert seen.hits > 0
    assert seen.shared_passes > 0
    assert seen.preemptions > 0
    assert seen.rides > 0
    assert seen.declined > 0


def test_sampled_requests_do_not_follow_the_greedy_path(hall: Hall) -> None:
    """Or the test above would show nothing about sampling."""
    sampled = [request for request in hall.requests if not request.sampling.greedy]
    assert any(token != int(np.argmax(row)) for request in sampled for token, row in zip(request.tokens, request.rows, strict=True))


def test_another_seed_is_noticed(hall: Hall) -> None:
    """The comparison can fail: the tokens of one seed are not those of another."""
    index, request = next((i, r) for i, r in enumerate(hall.requests) if not r.sampling.greedy and len(r.tokens) > 30)
    sampling = SamplingParams(max_tokens=request.sampling.max_tokens, temperature=request.sampling.temperature, seed=999, ignore_eos=True)
    wrong = Hall(hall.name, [Alone(request.prompt, sampling, request.tokens, request.rows)], hall.backends, Tally(), CONTEXT)
    company = Company(
        isa="portable", threads=1, requests=((0, 0),), levers=frozenset(LEVERS), max_rows=16, max_logit_rows=5, draft_seed=index
    )
    with pytest.raises(AssertionError):
        wrong.run(company)
