"""The engine in a process of its own: jobs, cancellation, deadlines, deaths and restarts, on a tiny model."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import swiftsure
from swiftsure.engine.constraints.grammar import Grammar
from swiftsure.engine.sampling import SamplingParams
from swiftsure.errors import ModelNotFoundError, NotActiveError, UsageError
from swiftsure.serve.engine_process.client import EngineProcess
from swiftsure.serve.jobs import Job
from swiftsure.serve.problems import EngineLostError, UnavailableError
from tiny_models import TinyModel, TinySpec

LONG = 400
PROMPT = tuple(range(20, 50))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(context=640)).write_gguf(tmp_path_factory.mktemp("served") / "tiny.gguf")


def job(seed: int = 0, tokens: int = LONG, **fields: Any) -> Job:
    sampling = SamplingParams(max_tokens=tokens, temperature=0.8, seed=seed, ignore_eos=True, logprobs=0)
    return Job(prompt_ids=PROMPT, sampling=sampling, **fields)


@asynccontextmanager
async def running(model: Path, scheduling: dict[str, float] | None = None, **fields: Any) -> AsyncIterator[EngineProcess]:
    keywords: dict[str, Any] = {"model": str(model), "mode": "exact", "threads": 1, "cache": False}
    if scheduling is not None:
        keywords["scheduling"] = scheduling
    engine = EngineProcess(keywords, **fields)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


@pytest.fixture(scope="module")
def alone(model: Path) -> dict[int, swiftsure.Generation]:
    """By seed, from plain decoding in this process."""
    with swiftsure.load(model, mode="default", threads=1, cache=False) as llm:
        return {seed: llm.generate(list(PROMPT), sampling=job(seed).sampling, digest=True) for seed in range(4)}


@pytest.fixture(scope="module")
def plain(alone: dict[int, swiftsure.Generation]) -> dict[int, tuple[int, ...]]:
    """Tokens by seed."""
    return {seed: generation.token_ids for seed, generation in alone.items()}


def test_answers_are_those_of_plain_decoding_whatever_the_company(
    model: Path, plain: dict[int, tuple[int, ...]], alone: dict[int, swiftsure.Generation]
) -> None:
    async def work() -> None:
        async with running(model) as engine:
            answers = [engine.submit(job(seed)) for seed in range(4)]
            for seed, answer in enumerate(answers):
                whole, outcome = await answer.finish()
                assert whole.token_ids == plain[seed]
                assert [entry.token_id for entry in whole.logprobs] == list(plain[seed])
                assert outcome.digest == alone[seed].digest
                assert (outcome.finish_reason, outcome.output_tokens, outcome.prompt_tokens) == ("length", LONG, len(PROMPT))
            assert engine.under_way == 0

    run(work)


def test_a_priority_job_ends_first_and_the_snapshot_says_who_waited(model: Path, plain: dict[int, tuple[int, ...]]) -> None:
    async def work() -> None:
        async with running(model, {"max_running": 2, "priority_slack": 0}) as engine:
            standard = [engine.submit(job(seed)) for seed in range(3)]
            whole, outcome = await engine.submit(job(3, tier="priority")).finish()
            assert (whole.token_ids, outcome.tier) == (plain[3], "priority")
            assert engine.under_way == 3, "each of the others is as long, and came before"
            for seed, answer in enumerate(standard):
                assert (await answer.finish())[0].token_ids == plain[seed]
            await until(lambda: engine.snapshot["tokens"] == 4 * LONG)  # the first snapshot is of the start
            assert engine.snapshot["running_standard"] == engine.snapshot["waiting_standard"] == 0
            assert engine.snapshot["rides_declined"] > 0
            assert engine.snapshot["kv_blocks_free"] == engine.snapshot["kv_blocks_total"]

    run(work)


def test_an_answer_goes_on_where_it_was_when_its_engine_is_killed(
    model: Path, plain: dict[int, tuple[int, ...]], alone: dict[int, swiftsure.Generation]
) -> None:
    async def work() -> None:
        notes: list[str] = []
        async with running(model, note=notes.append) as engine:
            answers = [engine.submit(job(seed)) for seed in range(3)]
            seen: list[int] = []
            texts: list[str] = []
            async for chunk in answers[0]:
                if not seen:
                    kill(engine)
                seen += chunk.token_ids
                texts.append(chunk.text)
            others = [(await answer.finish())[0] for answer in answers[1:]]
            assert engine.deaths == 1
            assert [answer.outcome.digest for answer in answers if answer.outcome] == [alone[seed].digest for seed in range(3)]
            assert tuple(seen) == plain[0]
            assert [other.token_ids for other in others] == [plain[1], plain[2]]
            again, _ = await engine.submit(job(0)).finish()
            assert again.text == "".join(texts)
        assert any("3 requests were under way" in note for note in notes)

    run(work)


def test_a_job_that_is_there_at_two_deaths_fails_and_the_next_one_is_served(model: Path, plain: dict[int, tuple[int, ...]]) -> None:
    async def work() -> None:
        async with running(model, note=lambda text: None) as engine:
            answer = engine.submit(job(0))
            for deaths in (1, 2):
                await engine_is_ready(engine)
                kill(engine)
                await until(lambda deaths=deaths: engine.deaths == deaths)
            with pytest.raises(EngineLostError, match="failed twice"):
                await answer.finish()
            await engine_is_ready(engine)
            assert (await engine.submit(job(1)).finish())[0].token_ids == plain[1]

    run(work)


def test_an_engine_that_dies_too_often_stays_down_and_says_so(model: Path) -> None:
    async def work() -> None:
        async with running(model, note=lambda text: None) as engine:
            for _ in range(5):
                await engine_is_ready(engine)
                kill(engine)
                deaths = engine.deaths
                await until(lambda deaths=deaths: engine.deaths > deaths)
            await until(lambda: engine.state == "failed")
            with pytest.raises(UnavailableError, match="died 5 times"):
                engine.submit(job())

    run(work)


def test_cancelling_one_answer_ends_it_alone(model: Path, plain: dict[int, tuple[int, ...]]) -> None:
    async def work() -> None:
        async with running(model) as engine:
            doomed, other = engine.submit(job(0)), engine.submit(job(1))
            async with doomed:
                async for _chunk in doomed:
                    break
            whole, _ = await other.finish()
            assert whole.token_ids == plain[1]
            rest, outcome = await doomed.finish()
            assert outcome.finish_reason == "cancelled"
            assert outcome.output_tokens < LONG
            assert len(rest.token_ids) < LONG

    run(work)


def test_a_deadline_ends_a_job_in_the_queue_and_in_the_middle(model: Path) -> None:
    async def work() -> None:
        async with running(model) as engine:
            late = engine.submit(job(0, deadline_s=0.0))
            assert (await late.finish())[1].finish_reason == "deadline"
            full = [engine.submit(job(seed, deadline_s=0.05)) for seed in range(40)]
            reasons = {(await answer.finish())[1].finish_reason for answer in full}
            assert reasons == {"deadline"}
            assert engine.under_way == 0

    run(work)


def test_what_the_engine_refuses_fails_that_job_alone(model: Path, plain: dict[int, tuple[int, ...]]) -> None:
    async def work() -> None:
        async with running(model) as engine:
            bad = engine.submit(Job(prompt_ids=(10**6,), sampling=SamplingParams()))
            good = engine.submit(job(2))
            with pytest.raises(UsageError, match="vocabulary"):
                await bad.finish()
            assert (await good.finish())[0].token_ids == plain[2]

    run(work)


def test_stopping_lets_answers_end_and_then_ends_those_that_do_not(model: Path, plain: dict[int, tuple[int, ...]]) -> None:
    async def work() -> None:
        async with running(model) as engine:
            answer = engine.submit(job(3))
            await engine.stop(drain_s=30)
            assert (await answer.finish())[0].token_ids == plain[3]
            with pytest.raises(UnavailableError, match="the server stops"):
                engine.submit(job())
        async with running(model) as engine:
            answer = engine.submit(job(3))
            await engine.stop(drain_s=0)
            with pytest.raises(UnavailableError, match="the server stops"):
                await answer.finish()

    run(work)


@pytest.mark.parametrize(
    ("keywords", "error"),
    [({"model": "no-such-model"}, ModelNotFoundError), ({"mode": "big"}, NotActiveError), ({"context": -1}, UsageError)],
)
def test_a_load_that_fails_raises_what_load_raises(model: Path, keywords: dict[str, Any], error: type[Exception]) -> None:
    async def work() -> None:
        engine = EngineProcess({"model": str(model), "mode": "exact", "offline": True, **keywords})
        with pytest.raises(error):
            await engine.start()
        assert engine.state == "failed"

    run(work)


def kill(engine: EngineProcess) -> None:
    process = engine._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)


async def engine_is_ready(engine: EngineProcess) -> None:
    await until(lambda: engine.state == "ready")


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


def test_a_grammar_holds_its_own_job_and_a_broken_one_fails_alone(model: Path, plain: dict[int, tuple[int, ...]]) -> None:
    pytest.importorskip("llguidance")

    async def work() -> None:
        async with running(model) as engine:
            company = engine.submit(job(0))
            held = engine.submit(job(1, grammar=Grammar(kind="regex", text="[ab]{4}")))
            broken = engine.submit(job(2, grammar=Grammar(kind="regex", text="a(")))
            with pytest.raises(UsageError, match=r"the regex cannot be used: .*unclosed group"):
                await broken.finish()
            whole, outcome = await held.finish()
            assert re.fullmatch("[ab]{4}", whole.text)
            assert outcome.finish_reason == "stop"
            assert (await company.finish())[0].token_ids == plain[0]

    run(work)
