from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from swiftsure.engine.load_options import LoadOptions
from swiftsure.errors import ModelNotFoundError, NotActiveError, SwiftsureError, UsageError
from swiftsure.verify import ProveOptions, ProveResult, prove
from swiftsure.verify.proving.mode_run import BASE

HERE = Path(__file__).parent
Run = Callable[..., ProveResult]

MODE_KEYS = {
    "mode", "verdict", "reason", "decode_tokens_per_s", "ttft_s", "end_to_end_s", "peak_rss_bytes", "memory_ratio", "bits_compared",
    "bits_differing", "levers", "speedup", "worst", "by_kind", "by_size",
}  # fmt: skip


def test_honest_exact_is_proved_over_all_logits_of_all_positions(honest_result: ProveResult) -> None:
    base, exact = honest_result.mode(BASE), honest_result.mode("exact")
    rows = sum(prompt["output_tokens"] for prompt in honest_result.prompts)
    assert rows > 30
    assert base.verdict == exact.verdict == "PROVED"
    assert base.bits_compared == rows * 300 * 32  # once against itself
    assert exact.bits_compared == 3 * base.bits_compared  # cold, together, warm
    assert base.bits_differing == exact.bits_differing == 0
    assert honest_result.exit_code == 0


def test_honest_run_carries_evidence_of_the_levers_that_had_occasions(honest_result: ProveResult) -> None:
    levers = honest_result.mode("exact").levers
    assert levers["speculation"]["drafted"] > 0
    assert levers["prefix_cache"]["hits"] > 0
    assert levers["batching"]["shared_passes"] > 0


def test_a_mode_that_cannot_run_stands_in_the_table_with_the_reason(honest_result: ProveResult) -> None:
    mode = honest_result.mode("big")
    assert mode.verdict == "NOT_ACTIVE"
    assert mode.reason
    assert mode.decode_tokens_per_s is None


def test_fast_keeps_its_own_bits_and_is_judged_by_its_tolerances(honest_result: ProveResult) -> None:
    fast = honest_result.mode("fast")
    assert fast.bits_compared > 0
    assert fast.bits_differing == 0
    assert set(fast.proof["bits_by_pass"]) == {"again", "together", "warm"}
    assert fast.contract["worst"]["kl_max"] > 0
    assert not fast.contract["kept"]  # one grid a row is too coarse for this model's heavy tails
    assert fast.verdict == "FAILED"
    assert str(fast.reason).startswith("tolerances of the contract are broken: prose up to 128 tokens: ")
    for lever in ("row_integers", "int8_kv"):
        assert fast.levers[lever]["state"] == "on"


def test_figures_are_there_and_fit_together(honest_result: ProveResult) -> None:
    for name in (BASE, "exact"):
        mode = honest_result.mode(name)
        assert mode.rounds == 3
        assert mode.decode_tokens_per_s
        assert mode.ttft_s
        assert set(mode.phases_s) == {"load", "tokenize", "prefill", "decode", "detokenize"}
        assert mode.end_to_end_s == pytest.approx(sum(mode.phases_s.values()), rel=0.25)
        assert mode.peak_rss_bytes
        assert set(mode.by_kind) == {"code", "chat"}
        assert set(mode.by_size) == {"short"}
    assert honest_result.mode(BASE).memory_ratio == 1.0
    assert honest_result.mode(BASE).speedup == {"decode": 1.0, "ttft": 1.0, "end_to_end": 1.0}


def test_keys_of_the_json_are_stable(honest_result: ProveResult, tmp_path: Path) -> None:
    honest_result.write_json(tmp_path / "out.json")
    read = json.loads((tmp_path / "out.json").read_text())
    assert {"modes", "machine", "pins", "upstream"} <= set(read)
    for mode in read["modes"]:
        assert set(mode) >= MODE_KEYS
        assert set(mode["speedup"]) == {"decode", "ttft", "end_to_end"}
    assert read["pins"]["model"]["sha256"]
    assert read["pins"]["numerics"] == "cpu1"
    assert read["upstream"]["status"] == "NOT MEASURED"
    assert read["machine"]["cpu_model"]


def test_too_few_samples_are_inconclusive_and_null_in_the_json(run_prove: Run) -> None:
    exact = run_prove(rounds=1).mode("exact")
    for figures in (exact.to_dict(), exact.by_kind["code"]):
        assert figures["speedup"]["decode"] is None
        assert figures["intervals"]["decode"]["verdict"] == "INCONCLUSIVE"
    assert exact.intervals["decode"]["pairs"] == 3


def test_run_record_holds_pins_machine_levers_and_results(honest_result: ProveResult, tmp_path: Path) -> None:
    honest_result.write_report(tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["command"] == "prove"
    assert record["status"] == "ok"
    assert record["mode"] == "default+exact+fast"
    assert record["levers"]["speculation"]["drafted"] > 0
    assert record["results"]["modes"][1]["verdict"] == "PROVED"


def test_workers_say_active_lever_and_exit(run_prove: Run, output: io.StringIO) -> None:
    run_prove(rounds=1)
    lines = output.getvalue().splitlines()
    assert sum(line.startswith("ACTIVE mode=default ") and line.endswith("levers=none") for line in lines) == 1
    exact = [line for line in lines if line.startswith("ACTIVE mode=exact ")]
    assert len(exact) == 1
    assert exact[0].endswith("levers=speculation,prefix_cache,batching,chunked_prefill")
    assert any(line.startswith("NOT ACTIVE mode=big reason=") for line in lines)
    assert any(line.startswith("LEVER name=speculation state=on ") for line in lines)
    assert any(line.startswith("EXIT mode=exact status=ok items=3/3 ") for line in lines)


def test_one_flipped_bit_in_one_row_fails_and_is_located(run_prove: Run, output: io.StringIO) -> None:
    result = run_prove("flip")
    exact = result.mode("exact")
    assert exact.verdict == "FAILED"
    assert exact.bits_differing == 3  # one bit in the cold pass of each of three prompts
    assert exact.reason is not None
    assert exact.reason.startswith("prompt greedy, cold pass, row 5, token 17: ")
    assert result.exit_code == 1
    assert exact.decode_tokens_per_s is None  # a breach stops the optimized run: it is not timed
    assert "EXIT mode=exact status=failed items=0/3 " in output.getvalue()


def test_where_default_differs_from_itself_exact_is_not_active(run_prove: Run, output: io.StringIO) -> None:
    result = run_prove("zero", BASE)
    assert result.mode(BASE).verdict == "FAILED"
    assert "0.0 (0x00000000) against -0.0 (0x80000000)" in str(result.mode(BASE).reason)  # equal by value, not by bits
    assert result.mode("exact").verdict == "NOT_ACTIVE"
    assert "default differs from itself" in str(result.mode("exact").reason)
    assert "NOT ACTIVE mode=exact reason=default_differs_from_itself" in output.getvalue()
    assert result.exit_code == 1


def test_another_token_than_the_logits_say_fails(run_prove: Run) -> None:
    result = run_prove("token", rounds=1)
    assert result.mode("exact").verdict == "FAILED"
    assert result.mode("exact").bits_differing == 0
    assert "is 0 against" in str(result.mode("exact").reason)


def test_levers_without_evidence_are_unproved(run_prove: Run, output: io.StringIO) -> None:
    result = run_prove("idle", rounds=1)
    assert result.mode("exact").verdict == "UNPROVED"
    assert result.mode("exact").bits_differing == 0
    assert result.exit_code == 3
    assert "EXIT mode=exact status=unproved " in output.getvalue()


def test_a_mode_that_dies_fails_with_its_last_words_while_default_goes_on(run_prove: Run, output: io.StringIO) -> None:
    result = run_prove("die", rounds=1)
    assert result.mode("exact").verdict == "FAILED"
    assert "ended with exit code 7 during generate; its last words: the disk is on fire" in str(result.mode("exact").reason)
    assert result.mode(BASE).verdict == "PROVED"
    assert result.exit_code == 1
    assert "EXIT mode=exact status=failed " in output.getvalue()


def test_only_named_modes_decide_the_exit_code(run_prove: Run) -> None:
    assert run_prove("die", rounds=1, modes=(BASE,)).exit_code == 0


def test_a_named_mode_that_is_not_active_is_exit_code_3(run_prove: Run) -> None:
    result = run_prove("refuse", rounds=1, modes=(BASE, "exact"))
    assert result.mode("exact").verdict == "NOT_ACTIVE"
    assert result.mode("exact").reason == "the lever is stuck"
    assert result.exit_code == 3


def test_the_mode_variable_changes_nothing(run_prove: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFTSURE_MODE", "exact")
    result = run_prove(rounds=1)
    assert [mode.mode for mode in result.modes if mode.verdict == "PROVED"] == [BASE, "exact"]
    assert os.environ["SWIFTSURE_MODE"] == "exact"


@pytest.mark.usefixtures("without_amx")
def test_an_instruction_set_that_is_not_there_is_not_active(run_prove: Run) -> None:
    with pytest.raises(NotActiveError, match="amx"):
        run_prove(load=LoadOptions(threads=1, isa="amx"))


def test_default_that_dies_ends_the_run_with_its_reason(run_prove: Run) -> None:
    with pytest.raises(SwiftsureError, match="worker of mode default ended with exit code 7"):
        run_prove("die", BASE)


def test_what_libraries_print_does_not_disturb_the_protocol(run_prove: Run, output: io.StringIO) -> None:
    assert run_prove("noise", rounds=1).exit_code == 0
    assert "a library says hello" in output.getvalue()


def test_rounds_stop_when_the_time_is_up_but_the_first_is_whole(run_prove: Run) -> None:
    result = run_prove(rounds=None, time_budget_s=0.01)
    assert result.mode(BASE).rounds == 1
    assert all(prompt["modes"][BASE]["samples"] == 1 for prompt in result.prompts)


def test_rounds_fill_the_time_but_are_not_more_than_ten(run_prove: Run) -> None:
    assert run_prove(rounds=None, time_budget_s=600.0).mode(BASE).rounds == 10


INTERRUPTED = """\
import sys
from pathlib import Path
from swiftsure.engine.load_options import LoadOptions
from swiftsure.errors import SwiftsureError
from swiftsure.verify import ProveOptions, prove
options = ProveOptions(model=sys.argv[1], prompts=Path(sys.argv[2]), load=LoadOptions(threads=1))
try:
    prove(options, worker=(sys.executable, sys.argv[3], "slow", "default"))
except SwiftsureError as error:
    print(error, error.exit_code)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_the_workers_clears_up_and_says_so(tiny_path: Path, workload_path: Path, signal_number: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tiny_path), str(workload_path), str(HERE / "dishonest_worker.py")]
    scratch = workload_path.parent / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, start_new_session=True, env=environment) as process:
        assert process.stderr is not None
        assert any(line.startswith("ACTIVE mode=fast") for line in process.stderr)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 3  # default, exact and fast: the last one is loaded
        time.sleep(1.0)  # default is in its slow generation now
        assert list(scratch.glob("swiftsure-prove-*"))
        os.kill(process.pid, signal_number)
        out, _ = process.communicate(timeout=30)
    assert out == "interrupted: the workers were ended, and nothing was proved 1\n"
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert not list(scratch.iterdir())


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelNotFoundError, match="no-such-model"):
        prove(ProveOptions(model="no-such-model"), console=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modes": ("exact", "turbo")}, "unknown mode 'turbo'"),
        ({"modes": ()}, "at least 1 mode"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"time_budget_s": float("nan")}, "time_budget_s must be above 0, got nan"),
    ],
)
def test_bad_options_name_rule_and_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ProveOptions(**options)


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(run_prove: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("fine\n" + "word " * 2000)
    with pytest.raises(SwiftsureError, match="prompt line-2: the prompt has 8017 tokens; the context of 640 tokens") as caught:
        run_prove(prompts=path)
    assert caught.value.exit_code == 2


@pytest.mark.model
def test_pinned_model_is_proved_on_a_small_workload(smollm2_path: Path, run_prove: Run, tmp_path: Path) -> None:
    path = tmp_path / "small.jsonl"
    path.write_text(
        '{"prompt": "Repeat after me, three times: one two three four five six seven.", "kind": "chat", "max_tokens": 40}\n'
        '{"prompt": "Write a haiku.", "kind": "writing", "max_tokens": 24, "temperature": 0.7, "seed": 1}\n'
    )
    result = run_prove(model=str(smollm2_path), prompts=path, rounds=1, load=LoadOptions(threads=2))
    assert result.exit_code == 0
    assert result.mode("exact").bits_differing == 0
    assert result.mode("exact").bits_compared == 3 * result.mode(BASE).bits_compared > 0
    assert result.mode(BASE).decode_tokens_per_s
    fast = result.mode("fast")
    assert (fast.verdict, fast.reason) == ("PROVED", None)
    [task] = fast.contract["tasks"]
    assert task["items"] == 900
    assert task["decision"] == "non_inferior"
    assert 0.6 < task["baseline"] < 0.95
    assert fast.bits_differing == 0
    assert 0 < fast.contract["worst"]["kl_max"] < fast.contract["limits"]["kl_max"]


def test_drafts_stand_beside_their_ceiling_by_kind(honest_result: ProveResult) -> None:
    exact, default = honest_result.mode("exact"), honest_result.mode("default")
    assert exact.speculation is not None
    assert exact.speculation["ceiling_tokens_per_pass"] >= 1.0
    assert {kind: bool(figures["speculation"]) for kind, figures in exact.by_kind.items()} == {"code": True, "chat": True}
    assert default.speculation is None
    assert exact.levers["speculation"]["passes"] > 0
    output = io.StringIO()
    honest_result.print_table(Console(file=output, width=80))
    assert "exact: drafts, and the best lengths in hindsight" in output.getvalue()
