"""Audits of mode fast: tolerances instead of bits, on the rows that were really served."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from pathlib import Path
from tomllib import loads

import numpy as np
import pytest

from serve.test_audit import FAULTY, PROMPT, counts, http, run, served, until
from swiftsure.engine.sampling import SamplingParams
from swiftsure.errors import UsageError
from swiftsure.serve.audit.tolerance import BEST, Distance, Tolerance, divergence
from swiftsure.serve.engine_process import client as engine_client
from tiny_models import TinyModel, TinySpec

pytestmark = pytest.mark.alone  # a replay runs at the lowest priority


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(context=640)).write_gguf(tmp_path_factory.mktemp("audited") / "tiny.gguf")


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def best_of(logs: np.ndarray, count: int) -> tuple[list[int], list[float]]:
    ids = np.argsort(-logs, kind="stable")[:count].tolist()
    return ids, logs[ids].tolist()


# --- the measure ------------------------------------------------------------------------------------------------------------


def test_divergence_of_kept_tokens_never_exceeds_that_of_whole_rows_and_is_near_it_where_they_hold_the_mass() -> None:
    draw = np.random.default_rng(3)
    for scale in (0.0, 0.1, 1.0, 4.0):
        logits = 3.0 * draw.standard_normal(500)
        default, fast = log_softmax(logits), log_softmax(logits + scale * draw.standard_normal(500))
        whole = float((np.exp(default) * (default - fast)).sum())
        for count in (1, 20, 200):
            ids, values = best_of(fast, count)
            assert divergence((ids, values), default[ids].tolist()) <= whole + 1e-9
        ids, values = best_of(fast, 500)
        assert divergence((ids, values), default[ids].tolist()) == pytest.approx(whole, abs=1e-6)


def test_a_row_that_is_no_number_is_infinitely_far() -> None:
    assert divergence(([1], [math.nan]), [-1.0]) == math.inf
    assert divergence(([1], [-1.0]), [math.nan]) == math.inf


def test_one_row_is_judged_at_once_and_means_only_of_many() -> None:
    near, far = (([1, 2], [-0.7, -0.7]), ([-0.7, -0.7], 1)), (([1, 2], [-0.01, -5.0]), ([-5.0, -0.01], 2))
    distance = Distance(Tolerance(least_rows=10))
    assert distance.add([near[0]] * 5, [near[1]] * 5) == []
    [worst] = distance.add([near[0], far[0]], [near[1], far[1]])
    assert (worst["name"], worst["output_index"]) == ("kl_max", 1)
    assert worst["value"] == pytest.approx(divergence(far[0], far[1][0]))
    assert worst["value"] > worst["limit"]
    assert {one["name"] for one in distance.add([far[0]] * 3, [far[1]] * 3)} == {"kl_max", "kl_mean", "kl_p99", "top1_agreement"}
    with pytest.raises(ValueError, match="an answer of 1 rows was compared with 2"):
        distance.add([near[0]], [near[1]] * 2)


def test_tolerances_are_those_of_the_contract_of_mode_fast() -> None:
    contract = loads(files("swiftsure.verify.contracts").joinpath("fast.toml").read_text())["fast"]["outputs"]["logits"]
    tolerance = Tolerance()
    for name in ("kl_mean", "kl_p99", "kl_max", "top1_agreement"):
        assert getattr(tolerance, name) == contract[name], name


# --- the server -------------------------------------------------------------------------------------------------------------


def test_answers_of_fast_are_weighed_by_default_and_hold(model: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with served(model, tmp_path, mode="fast") as service, http(service) as client:
            for seed in range(3):
                assert (await client.post(f"/answer/{seed}")).status_code == 200
            await until(lambda: counts(service)["audited_total"] == 3)
            assert counts(service)["audit_mismatch_total"] == counts(service)["audit_failed_total"] == 0
            assert service.auditor is not None
            distance = service.auditor.distances["tiny"]
            assert distance.rows == 120
            assert 0 < distance.kl_mean < 0.02, "fast is another function, and near"
            metrics = (await client.get("/metrics")).text
            assert 'swiftsure_audit_fast_rows{model="tiny"} 120.0' in metrics
            assert 'swiftsure_audit_fast_top1_agreement{model="tiny"}' in metrics
            assert (await client.get("/ready")).status_code == 200
        assert list(tmp_path.iterdir()) == []

    run(work)


def test_who_is_audited_gets_the_logprobs_that_were_asked_for_and_no_others(model: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with served(model, tmp_path, mode="fast") as service:
            for asked in (None, 0, 2):
                sampling = SamplingParams(max_tokens=5, temperature=0.8, seed=1, ignore_eos=True, logprobs=asked)
                whole, outcome = await service.model(None).submit(PROMPT, sampling).finish()
                assert [len(entry.top) for entry in whole.logprobs] == ([] if asked is None else [asked] * 5)
                assert [len(ids) for ids, _ in outcome.best] == [BEST] * 5

    run(work)


def test_an_error_beyond_tolerance_stops_the_server_with_a_record(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(engine_client, "PROGRAM", FAULTY)
    monkeypatch.setenv("WRONG_FROM_PASS", "5")
    monkeypatch.setenv("WRONG_BY", "1e5")

    async def work() -> None:
        async with served(model, tmp_path, mode="fast") as service, http(service) as client:
            assert (await client.post("/answer/0", headers={"x-request-id": "mine-8"})).status_code == 200
            await until(lambda: service.models[0].engine.state == "stopped")
            assert "swiftsure_audit_mismatch_total 1.0" in (await client.get("/metrics")).text
            ready = await client.get("/ready")
            assert ready.status_code == 503
            assert "mode fast is beyond its tolerance at position" in ready.json()["reason"]
            refused = await client.post("/answer/1")
            assert refused.status_code == 503
            assert "beyond its tolerance" in refused.json()["error"]["message"]
            [path] = tmp_path.iterdir()
            record = json.loads(path.read_text())
            [worst] = record["results"]["broken"]
            assert worst["name"] == "kl_max"
            assert worst["value"] > worst["limit"] == 1.0
            assert worst["output_index"] >= 4, "the first four passes were right"
            assert (record["mode"], record["results"]["request"]) == ("fast", "mine-8")

    run(work)
    assert "AUDIT MISMATCH model=tiny request=mine-8 kl_max=" in capfd.readouterr().err


def test_an_error_beyond_tolerance_with_on_fail_default_goes_on_in_default_openly(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(engine_client, "PROGRAM", FAULTY)
    monkeypatch.setenv("WRONG_FROM_PASS", "1")
    monkeypatch.setenv("WRONG_BY", "1e5")

    async def work() -> None:
        async with served(model, tmp_path, mode="fast", on_fail="default") as service, http(service) as client:
            wrong = (await client.post("/answer/0")).json()
            await until(lambda: service.models[0].fell_back)
            right = (await client.post("/answer/0")).json()
            assert right["tokens"] != wrong["tokens"]
            ready = (await client.get("/ready")).json()
            assert ready["ready"]
            assert "beyond its tolerance" in ready["models"]["tiny"]["breach"]
            assert "ACTIVE mode=default" in ready["models"]["tiny"]["active"]
            await until(lambda: counts(service)["audited_total"] == 2)  # by bits now
            assert counts(service)["audit_mismatch_total"] == 1

    run(work)
    assert "FALLBACK from=fast to=default reason=an_audit_found_that_mode_fast_is_beyond" in capfd.readouterr().err


def test_mode_big_has_nothing_to_be_audited_against(model: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with served(model, tmp_path, mode="big"):
            pass

    with pytest.raises(UsageError, match="bits of default and exact, tolerances of fast; mode big has neither"):
        run(work)
