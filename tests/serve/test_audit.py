"""Answers computed once more while nobody waits: what is picked, when it runs, and all that follows from one wrong bit, over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from swiftsure.engine.sampling import SamplingParams
from swiftsure.errors import UsageError
from swiftsure.serve.app import create_app
from swiftsure.serve.audit.cases import Case, CaseQueue, picked
from swiftsure.serve.engine_process import client as engine_client
from swiftsure.serve.jobs import EngineFacts, Job, Outcome
from swiftsure.serve.service import Service
from swiftsure.serve.settings import AuditSettings, ModelSettings, ServeSettings
from tiny_models import TinyModel, TinySpec

pytestmark = pytest.mark.alone  # a replay runs at the lowest priority: beside another worker it would take for ever

PROMPT = list(range(20, 50))
FAULTY = (sys.executable, str(Path(__file__).with_name("faulty_engine.py")))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(context=640)).write_gguf(tmp_path_factory.mktemp("audited") / "tiny.gguf")


@asynccontextmanager
async def served(model: Path, records: Path, *, mode: str = "exact", log_prompts: bool = False, **audit: Any) -> AsyncIterator[Service]:
    settings = ServeSettings(
        models=(ModelSettings(name="tiny", source=str(model), mode=mode, load={"threads": 1, "cache": False}),),
        audit=AuditSettings(records=records, **{"share": 1.0, **audit}),
        log_prompts=log_prompts,
        drain_s=0.0,
    )
    service = Service(settings)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


@asynccontextmanager
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """The server's own application with one more route, which answers with tokens."""
    app = create_app(service)

    @app.post("/answer/{seed}")
    async def answer(seed: int) -> dict[str, Any]:
        sampling = SamplingParams(max_tokens=40, temperature=0.8, seed=seed, ignore_eos=True)
        async with service.model(None).submit(PROMPT, sampling) as running:
            whole, outcome = await running.finish()
        return {"tokens": whole.token_ids, "digest": outcome.digest}

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
        yield client


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Ends what hangs. Long enough for replays, which get the processor last on a busy machine."""
    asyncio.run(asyncio.wait_for(work(), 300))


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


def state_of(pid: int | None) -> str:
    """``T``: stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def counts(service: Service) -> dict[str, int]:
    assert service.auditor is not None
    return service.auditor.counts


def test_every_answer_of_exact_holds_and_the_process_ends_when_it_is_not_needed(model: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with served(model, tmp_path, idle_s=0.3) as service, http(service) as client:
            for seed in range(3):
                assert (await client.post(f"/answer/{seed}")).status_code == 200
            await until(lambda: counts(service)["audited_total"] == 3)
            assert service.auditor is not None
            assert service.auditor._replayer is not None
            await until(lambda: service.auditor is not None and service.auditor._replayer is None)
            assert (await client.post("/answer/7")).status_code == 200
            await until(lambda: counts(service)["audited_total"] == 4)
            assert counts(service) == {**dict.fromkeys(counts(service), 0), "audited_total": 4}
            assert (await client.get("/ready")).json()["ready"]
            metrics = (await client.get("/metrics")).text
            assert "swiftsure_audited_total 4.0" in metrics
        assert list(tmp_path.iterdir()) == []

    run(work)


def test_a_cancelled_answer_is_audited_as_far_as_it_came(model: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with served(model, tmp_path) as service:
            sampling = SamplingParams(max_tokens=500, temperature=0.8, seed=1, ignore_eos=True, logprobs=2)
            async with service.model(None).submit(PROMPT, sampling) as answer:
                async for _ in answer:
                    break
            await until(lambda: counts(service)["audited_total"] == 1)
            assert counts(service)["audit_mismatch_total"] == 0
            assert answer.outcome is not None
            assert answer.outcome.finish_reason == "cancelled"

    run(work)


def test_no_answer_is_replayed_while_a_request_runs(model: Path, tmp_path: Path) -> None:
    """A replay that has not begun waits; one that has begun stands still, and goes on where it was."""
    long = SamplingParams(max_tokens=600, temperature=0.8, seed=1, ignore_eos=True)

    async def work() -> None:
        async with served(model, tmp_path) as service:
            served_model, auditor = service.models[0], service.auditor
            assert auditor is not None
            service.listeners.clear()
            answer = service.model(None).submit(PROMPT, long)
            await answer.finish()
            served_model.engine.pause()  # whatever is asked now stays under way
            other = service.model(None).submit(PROMPT, long)
            auditor.heard(served_model, answer)
            await asyncio.sleep(0.3)
            assert auditor._replayer is None
            assert counts(service)["audit_waiting"] == 1
            other.cancel()
            served_model.engine.resume()
            await other.finish()
            await until(lambda: auditor._replayer is not None and auditor._replayer._engine.under_way == 1)
            served_model.engine.pause()
            another = service.model(None).submit(PROMPT, long)
            replayer = auditor._replayer
            assert replayer is not None
            await until(lambda: state_of(replayer._engine.pid) == "T")
            assert counts(service)["audited_total"] == 0
            another.cancel()
            served_model.engine.resume()
            await until(lambda: counts(service)["audited_total"] == 1)
            assert counts(service)["audit_mismatch_total"] == 0

    run(work)


@pytest.mark.parametrize("log_prompts", [False, True])
def test_one_wrong_bit_stops_the_server_with_a_record_of_where_it_is(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], log_prompts: bool
) -> None:
    monkeypatch.setattr(engine_client, "PROGRAM", FAULTY)
    monkeypatch.setenv("WRONG_FROM_PASS", "5")

    async def work() -> None:
        async with served(model, tmp_path, log_prompts=log_prompts) as service, http(service) as client:
            answered = (await client.post("/answer/0", headers={"x-request-id": "mine-7"})).json()
            await until(lambda: service.models[0].engine.state == "stopped")
            assert "swiftsure_audit_mismatch_total 1.0" in (await client.get("/metrics")).text
            ready = await client.get("/ready")
            assert ready.status_code == 503
            assert "differs from default at position" in ready.json()["reason"]
            refused = await client.post("/answer/1")
            assert refused.status_code == 503
            assert "an audit found that mode exact differs from default" in refused.json()["error"]["message"]
            assert (await client.get("/health")).status_code == 200
            [path] = tmp_path.iterdir()
            record = json.loads(path.read_text())
            found = record["results"]
            assert found["digest_served"] == answered["digest"] != found["digest_replayed"]
            assert found["first_difference"]["token_served"] == found["first_difference"]["token_replayed"]
            assert found["first_difference"]["position"] >= len(PROMPT)  # the first four passes were right
            assert (record["status"], record["mode"], record["pins"]["model"]["source"]) == ("failed", "exact", "path")
            assert found["request"] == "mine-7"
            assert ("prompt_ids" in found) == log_prompts
            if log_prompts:
                assert found["prompt_ids"] == PROMPT

    run(work)
    assert "AUDIT MISMATCH model=tiny" in capfd.readouterr().err


def test_one_wrong_bit_with_on_fail_default_goes_on_in_default_openly(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine_client, "PROGRAM", FAULTY)
    monkeypatch.setenv("WRONG_FROM_PASS", "1")

    async def work() -> None:
        async with served(model, tmp_path, on_fail="default") as service, http(service) as client:
            wrong = (await client.post("/answer/0")).json()
            await until(lambda: service.models[0].fell_back)
            right = (await client.post("/answer/0")).json()
            assert right["tokens"] == wrong["tokens"]
            assert right["digest"] != wrong["digest"]
            found = json.loads(next(tmp_path.iterdir()).read_text())["results"]
            assert found["digest_replayed"] == right["digest"]
            assert found["first_difference"]["output_index"] == 0
            ready = (await client.get("/ready")).json()
            assert ready["ready"]
            assert "differs from default" in ready["models"]["tiny"]["breach"]
            assert "ACTIVE mode=default" in ready["models"]["tiny"]["active"]
            await until(lambda: counts(service)["audited_total"] == 2)  # default is audited too
            assert counts(service)["audit_mismatch_total"] == 1

    run(work)
    errors = capfd.readouterr().err
    assert "FALLBACK from=exact to=default reason=an_audit_found_that_mode_exact_differs" in errors
    assert errors.index("FALLBACK") < errors.index("ACTIVE mode=default")


def test_a_share_is_kept_and_decided_by_the_id_alone() -> None:
    ids = [uuid4().hex for _ in range(20_000)]
    chosen = [one for one in ids if picked(one, 0.01)]
    assert 120 < len(chosen) < 280  # 200 expected, 14 the standard deviation
    assert [one for one in ids if picked(one, 0.01)] == chosen
    assert set(chosen) <= {one for one in ids if picked(one, 0.5)}
    assert all(picked(one, 1.0) for one in ids)


def test_the_queue_is_bounded_by_requests_and_by_tokens() -> None:
    def case(tokens: int) -> Case:
        job = Job(prompt_ids=(1,) * 10, sampling=SamplingParams())
        outcome = Outcome(
            finish_reason="stop", stop_string=None, prompt_tokens=10, output_tokens=tokens, cached_tokens=0, tier="standard", timing={}
        )
        facts = EngineFacts(
            activation={},
            active_line="",
            context=1,
            vocab_size=1,
            model="m",
            weights_sha256="w",
            mode="exact",
            numerics="n",
            isa="i",
            threads=1,
        )
        return Case(model="m", facts=facts, job=job, token_ids=(1,) * tokens, outcome=outcome)

    queue = CaseQueue(most_requests=2, most_tokens=100)
    assert queue.put(case(40))
    assert not queue.put(case(41)), "101 tokens"
    assert queue.put(case(40))
    assert not queue.put(case(1)), "three requests"
    assert (len(queue), queue.dropped) == (2, 2)
    assert queue.take().tokens == 50
    assert queue.put(case(40))
    queue.discard(lambda waiting: waiting.model == "m")
    assert len(queue) == 0
    assert queue.put(case(90)), "all room is back"


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="share of requests to audit must be above 0 % and at most 100 %"):
        AuditSettings(share=share, records=tmp_path)
