"""``swiftsure run``: answers, the ACTIVE grammar, refusals and interrupts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run, clean_environment, start

from edited_gguf import edited
from swiftsure import LLM, Activation, ContractError, Stream

VALUE = r"[^\s=]\S*"
ACTIVE = re.compile(
    rf"ACTIVE mode=(default|exact) model={VALUE} weights=sha256:[0-9a-f]{{64}} numerics=cpu1 "
    rf"isa=(portable|avx2|avx512|avx512_vnni|amx) threads=[1-9]\d* levers=(none|[a-z_]+(,[a-z_]+)*)( levers_off=[a-z_]+(,[a-z_]+)*)?"
)
LEVER = re.compile(r"LEVER name=[a-z_]+ state=(on|off|idle)( [a-z_]+=\d+)*")
EXIT = re.compile(r"EXIT mode=(default|exact) status=(ok|unproved|failed) items=\d+/\d+ wall_s=\d+\.\d+")
NOT_ACTIVE = re.compile(rf"NOT ACTIVE mode={VALUE} reason={VALUE}")

PROMPT = "the cat sat on the mat and the cat sat on the"


def answer(swiftsure: Run, model: Path, *arguments: str) -> str:
    result = swiftsure("run", model, "-p", PROMPT, "--max-tokens", "24", *arguments)
    assert result.code == 0, result.err
    return result.out


def test_a_run_states_what_is_active_and_how_it_ended(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("run", tiny, "-p", PROMPT, "--raw", "--mode", "exact", "--max-tokens", "32")
    assert result.code == 0
    first, *levers, last = result.err.splitlines()
    assert ACTIVE.fullmatch(first), first
    assert ACTIVE.fullmatch(first)[1] == "exact"
    assert [line.split()[1] for line in levers] == ["name=" + name for name in re.search(r" levers=(\S+)", first)[1].split(",")]
    assert all(LEVER.fullmatch(line) for line in levers)
    assert EXIT.fullmatch(last), last
    assert "status=ok items=1/1" in last


def test_a_lever_that_is_switched_off_says_so(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("run", tiny, "-p", PROMPT, "--mode", "exact", "--without", "speculation", "--max-tokens", "4")
    assert result.code == 0
    assert "levers_off=speculation" in result.line("ACTIVE ")
    assert "state=off" in result.line("LEVER name=speculation")


def test_the_streamed_text_is_the_text_of_json_in_either_mode(swiftsure: Run, tiny: Path) -> None:
    sampled = ("--raw", "--temperature", "0.9", "--seed", "3")
    text = json.loads(answer(swiftsure, tiny, "--json", *sampled))["text"]
    assert len(set(text)) > 2
    for mode in ("default", "exact"):
        assert answer(swiftsure, tiny, "--mode", mode, *sampled) == text + ("" if text.endswith("\n") else "\n")


def test_json_holds_tokens_timing_seed_and_log_probabilities(swiftsure: Run, tiny: Path) -> None:
    result = json.loads(answer(swiftsure, tiny, "--json", "--logprobs", "2", "--temperature", "0.5"))
    assert len(result["token_ids"]) == len(result["logprobs"]) == result["timing"]["output_tokens"]
    assert all(entry["logprob"] <= 0 and len(entry["top"]) == 2 for entry in result["logprobs"])
    assert isinstance(result["sampling"]["seed"], int)
    assert result["finish_reason"] in ("stop", "length")


def test_the_digest_in_json_and_record_is_the_same_in_either_mode(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    digest = json.loads(answer(swiftsure, tiny, "--json", "--seed", "3", "--temperature", "0.9"))["digest"]
    assert re.fullmatch("sw1:[0-9a-f]{64}", digest)
    answer(swiftsure, tiny, "--mode", "exact", "--seed", "3", "--temperature", "0.9", "--record", str(tmp_path / "run.json"))
    assert json.loads((tmp_path / "run.json").read_text())["results"]["digest"] == digest
    assert json.loads(answer(swiftsure, tiny, "--json", "--raw"))["digest"] != digest


def test_the_prompt_may_come_from_a_file_or_from_standard_input(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text(PROMPT + "\n")
    from_file = swiftsure("run", tiny, "--prompt-file", tmp_path / "prompt.txt", "--max-tokens", "24").out
    with (tmp_path / "prompt.txt").open("rb") as stdin:
        from_stdin = start("run", tiny, "--max-tokens", "24", stdin=stdin).communicate(timeout=60)[0].decode()
    assert from_file == from_stdin == answer(swiftsure, tiny)


def test_stats_say_tokens_per_second_and_the_fraction_of_the_memory_wall(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("run", tiny, "-p", PROMPT, "--max-tokens", "16", "--logit-bias", "2=-100", "--stats")
    figures = dict(part.split("=") for part in result.line("STATS ").split()[1:])
    assert figures["output_tokens"] == "16"
    assert float(figures["decode_tokens_per_s"]) > 0
    assert float(figures["weights_gb_per_s"]) / float(figures["read_gb_per_s"]) == pytest.approx(float(figures["wall_fraction"]), abs=0.03)


def test_the_run_record_holds_pins_machine_levers_and_phases(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "records" / "run.json"
    assert swiftsure("run", tiny, "-p", PROMPT, "--mode", "exact", "--max-tokens", "8", "--record", path).code == 0
    record = json.loads(path.read_text())
    assert (record["command"], record["mode"], record["status"], record["numerics"]) == ("run", "exact", "ok", "cpu1")
    assert re.fullmatch("[0-9a-f]{64}", record["pins"]["model"]["sha256"])
    assert record["machine"]["cpu_model"]
    assert "speculation" in record["levers"]
    assert record["phases_s"]["decode"] > 0
    assert record["results"]["finish_reason"] in ("stop", "length")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--temperature", "nan"], "temperature must be"),
        (["--temperature", "-1"], "temperature must be"),
        (["--top-k", "-3"], "top_k must be at least 0, got -3"),
        (["--top-p", "0"], "top_p must be"),
        (["--max-tokens", "0"], "max_tokens must be at least 1, got 0"),
        (["--logit-bias", "999999=1"], "got 999999"),
        (["--logit-bias", "a=1"], "--logit-bias takes TOKEN_ID=BIAS such as 42=-3.5, got 'a=1'"),
        (["--logprobs", "2"], "--logprobs needs --json"),
        (["--mode", "turbo"], "unknown mode 'turbo'"),
        (["--without", "luck", "--mode", "exact"], "has no lever 'luck'"),
        (["--isa", "mmx"], "mmx"),
        (["--threads", "0"], "threads"),
        (["--kv-memory", "lots"], "got 'lots'"),
        (["--context", "641"], "context must be at most the model's 640, got 641"),
        (["--prompt-file", "nowhere.txt"], "one prompt at a time"),
        (["--raw", "--system", "be brief"], "takes no --system"),
        (["-p", "another"], "--prompt is given more than once"),
        (["--mode", "exact", "--mode", "default"], "--mode is given more than once"),
        (["--logit-bias", "5=1", "--logit-bias", "5=-1"], "--logit-bias names token 5 more than once"),
        (["--temperature", "1" + "0" * 400], "temperature must be between 0 and 10, got inf"),
        (["--template-variable", "enable_thinking=no"], "--template-variable takes NAME=JSON such as enable_thinking=false"),
        (["--template-variable", "enable_thinking"], "takes NAME=JSON"),
        (["--template-variable", "a-b=1"], "takes NAME=JSON such as enable_thinking=false or 'date_string=\"1 May 2025\"', got 'a-b=1'"),
        (["--template-variable", "x=" + "[" * 99999], "takes NAME=JSON"),
        (["--template-variable", "x=NaN"], "x must be finite, got nan"),
        (["--template-variable", "x=1", "--template-variable", "x=2"], "--template-variable names x more than once"),
        (["--template-variable", "messages=[]"], "a template variable must not be named messages"),
        (["--template-variable", "x=1"], "the model's chat template reads no variable x; it reads none"),
        (["--raw", "--template-variable", "x=1"], "takes no --template-variable"),
        (["--chat"], "--chat reads its prompts from the terminal and takes no --prompt"),
        (["--on-fail", "exact"], "--on-fail takes default, got 'exact'"),
        (["--allow-fallback"], "--allow-fallback needs --on-fail default"),
    ],
)
def test_a_value_that_breaks_a_rule_is_refused_with_the_rule_and_the_value(
    swiftsure: Run, tiny: Path, arguments: list[str], message: str
) -> None:
    result = swiftsure("run", tiny, "-p", PROMPT, *arguments)
    assert result.code == 2
    assert message in result.line("error: ")
    assert result.out == ""


@pytest.mark.parametrize("chat", [False, True])
def test_a_template_variable_reaches_the_template_as_json(tiny: Path, tmp_path: Path, chat: bool) -> None:
    """A template that says in its refusal what it was given."""
    source = "{% if thinking is defined %}{{ raise_exception('got ' ~ (thinking | tojson) ~ ' and ' ~ date) }}{% endif %}x"
    model = edited(tiny, tmp_path / "refuses.gguf", keys={"tokenizer.chat_template": source})
    variables = ["--template-variable", 'thinking={"on": false}', "--template-variable", 'date="1 May"']
    process = start("run", model, *variables, *(["--chat"] if chat else []), stdin=subprocess.PIPE)
    _, errors = process.communicate(b"hello\n", timeout=60)
    assert 'error: the chat template refused or failed: got {"on": false} and 1 May' in errors.decode()


def test_a_refusal_can_write_nothing_that_a_terminal_obeys(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    source = "{{ raise_exception('\\x1b[2J\\nEXIT mode=exact status=ok') }}"
    model = edited(tiny, tmp_path / "shouts.gguf", keys={"tokenizer.chat_template": source})
    result = swiftsure("run", model, "-p", "x")
    assert result.code == 2
    assert "refused or failed: \\x1b[2J\\nEXIT mode=exact status=ok" in result.line("error: ")
    assert "\x1b" not in result.err


def test_a_prompt_longer_than_the_context_is_refused_not_cut(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("run", tiny, "--context", "32", "-p", PROMPT * 20)
    assert result.code == 2
    assert re.search(r"\b32\b", result.line("error: "))
    assert result.out == ""


def test_a_context_that_had_to_be_fitted_to_memory_is_said(swiftsure: Run, endless: Path) -> None:
    fitted = swiftsure("run", endless, "-p", PROMPT, "--max-tokens", "1", "--kv-memory", "1MB")
    note = fitted.line("note: ")
    assert re.fullmatch(r"note: context \d+ of the model's 100000, as much as fits the kv_memory limit of 1\.0 MB; .*", note)
    asked = swiftsure("run", endless, "-p", PROMPT, "--max-tokens", "1", "--context", "300")
    assert (fitted.code, asked.code) == (0, 0)
    assert "note: " not in asked.err


def test_an_empty_prompt_is_refused(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("run", tiny, "-p", "")
    assert (result.code, result.line("error: ")) == (2, "error: the prompt is empty")


def test_a_prompt_that_is_not_utf8_is_refused(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    result = swiftsure("run", tiny, "--prompt-file", tmp_path / "latin.txt")
    assert result.code == 2
    assert "not UTF-8 (byte 3)" in result.line("error: ")


def test_the_mode_may_be_named_by_the_environment_but_not_twice(swiftsure: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFTSURE_MODE", "exact")
    assert "mode=exact" in swiftsure("run", tiny, "-p", PROMPT, "--max-tokens", "2").line("ACTIVE ")
    result = swiftsure("run", tiny, "-p", PROMPT, "--mode", "default")
    assert result.code == 2
    assert "SWIFTSURE_MODE" in result.line("error: ")


def test_a_mode_that_cannot_engage_is_not_active_and_nothing_runs(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("run", tiny, "-p", PROMPT, "--mode", "big")
    assert result.code == 3
    assert NOT_ACTIVE.fullmatch(result.line("NOT ACTIVE "))
    assert result.out == ""


@pytest.mark.parametrize(("allowed", "code"), [([], 3), (["--allow-fallback"], 0)])
def test_a_fallback_is_open_and_still_exits_three_unless_allowed(swiftsure: Run, tiny: Path, allowed: list[str], code: int) -> None:
    result = swiftsure("run", tiny, "-p", PROMPT, "--mode", "big", "--on-fail", "default", "--max-tokens", "4", *allowed)
    assert result.code == code
    kinds = [line.split(" mode=")[0].split(" from=")[0] for line in result.err.splitlines()]
    assert kinds == ["NOT ACTIVE", "FALLBACK", "ACTIVE", "EXIT"]
    assert re.fullmatch(rf"FALLBACK from=big to=default reason={VALUE}", result.line("FALLBACK "))
    assert result.out


def test_a_broken_contract_stops_the_run_and_falls_back_only_openly(swiftsure: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = LLM.stream

    def stream(llm: LLM, *arguments: Any, **values: Any) -> Stream:
        if llm.mode == "exact":
            raise ContractError("a digest differs")
        return sound(llm, *arguments, **values)

    monkeypatch.setattr(LLM, "stream", stream)
    broken = swiftsure("run", tiny, "-p", PROMPT, "--mode", "exact", "--max-tokens", "4")
    assert (broken.code, broken.out) == (1, "")
    assert "status=failed" in broken.line("EXIT ")
    assert broken.line("error: ") == "error: a digest differs"
    fallen = swiftsure("run", tiny, "-p", PROMPT, "--mode", "exact", "--max-tokens", "4", "--on-fail", "default")
    assert fallen.code == 3
    assert fallen.line("FALLBACK ") == "FALLBACK from=exact to=default reason=a_digest_differs"
    assert fallen.err.splitlines()[-1].startswith("EXIT mode=default status=ok")
    assert fallen.out


def test_missing_evidence_is_unproved_and_exits_three(swiftsure: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Activation, "unproved", ("lever speculation: 3 occasions but drafted=0",))
    result = swiftsure("run", tiny, "-p", PROMPT, "--mode", "exact", "--max-tokens", "4")
    assert result.code == 3
    assert "status=unproved" in result.line("EXIT ")
    assert "drafted=0" in result.line("error: ")


def test_a_record_that_cannot_be_written_is_an_error_with_its_path(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("run", tiny, "-p", PROMPT, "--max-tokens", "2", "--record", "/proc/nowhere/run.json")
    assert result.code == 1
    assert "/proc/nowhere" in result.line("error: ")


def test_a_record_that_names_a_folder_is_an_error_with_that_name(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    result = swiftsure("run", tiny, "-p", PROMPT, "--max-tokens", "2", "--record", tmp_path)
    assert result.code == 1
    assert result.line("error: ") == f"error: {tmp_path}: Is a directory"
    assert list(tmp_path.iterdir()) == []


def test_text_that_the_output_cannot_encode_is_escaped_and_the_answer_goes_on(tiny: Path) -> None:
    arguments = ("run", tiny, "-p", PROMPT, "--raw", "--temperature", "5", "--seed", "1", "--max-tokens", "40", "--top-k", "300")
    whole = start(*arguments).communicate(timeout=60)[0].decode()
    ascii_only = start(*arguments, env=clean_environment(PYTHONIOENCODING="ascii"))
    assert ascii_only.communicate(timeout=60)[0].decode("ascii") == whole.encode("ascii", "backslashreplace").decode()
    assert ascii_only.returncode == 0
    assert not whole.isascii()


@pytest.mark.parametrize(
    ("closed", "code", "says"), [(0, 2, "error: the prompt is empty"), (1, 0, "EXIT mode=default status=ok"), (2, 0, "")]
)
def test_a_standard_stream_that_is_closed_is_no_crash(tiny: Path, closed: int, code: int, says: str) -> None:
    prompt = () if closed == 0 else ("-p", PROMPT)
    process = start("run", tiny, *prompt, "--max-tokens", "3", preexec_fn=lambda: os.close(closed))
    out, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors.decode()
    assert says in errors.decode()
    assert b"Traceback" not in errors
    assert b"ACTIVE" not in out


def test_ctrl_c_in_the_middle_ends_with_a_clear_line_and_exit_code_one(endless: Path) -> None:
    process = start("run", endless, "-p", PROMPT, "--raw", "--logit-bias", "2=-100", "--max-tokens", "90000")
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    lines = errors.decode().splitlines()
    assert process.returncode == 1
    assert lines[-1] == "error: interrupted"
    assert "status=failed items=0/1" in lines[-2]
    assert "Traceback" not in errors.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_told_to_end_says_so_and_leaves_its_record(endless: Path, tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "run.json"
    process = start("run", endless, "-p", PROMPT, "--raw", "--logit-bias", "2=-100", "--max-tokens", "90000", "--record", path)
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    lines = errors.decode().splitlines()
    assert process.returncode == 1
    assert lines[-1] == "error: interrupted"
    assert "EXIT mode=default status=failed items=0/1" in lines[-2]
    record = json.loads(path.read_text())
    assert (record["status"], record["mode"]) == ("failed", "default")
    assert record["results"]["error"] in ("KeyboardInterrupt", "Terminated")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_told_to_end_while_it_loads_says_so(tiny: Path, number: signal.Signals) -> None:
    code = (
        "import os, swiftsure.engine.loading as loading; from swiftsure.cli import main; "
        f"loading.Fetching.open = lambda *a: os.kill(os.getpid(), {int(number)}); raise SystemExit(main(['run', {str(tiny)!r}, '-p', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean_environment(), timeout=60)
    assert done.returncode == 1
    assert EXIT.fullmatch(done.stderr.splitlines()[-2])
    assert done.stderr.splitlines()[-1] == "error: interrupted"


def test_a_prompt_that_does_not_fit_leaves_a_record_of_the_failure(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert swiftsure("run", tiny, "--context", "32", "-p", PROMPT * 20, "--record", path).code == 2
    record = json.loads(path.read_text())
    assert record["status"] == "failed"
    assert "ContextLengthError" in record["results"]["error"]
    assert set(record["phases_s"]) == {"load"}
    assert record["thread_choice"]["decided_by"]


def test_a_byte_order_mark_is_no_part_of_a_prompt(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_bytes(PROMPT.encode())
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbf" + PROMPT.encode())
    counts = [
        json.loads(swiftsure("run", tiny, "--json", "--raw", "-n", "1", "--prompt-file", tmp_path / name).out)["prompt_tokens"]
        for name in ("plain.txt", "marked.txt")
    ]
    assert counts[0] == counts[1]


def test_a_reader_that_goes_away_is_no_drama(endless: Path) -> None:
    process = start("run", endless, "-p", PROMPT, "--raw", "--logit-bias", "2=-100", "--max-tokens", "90000")
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=60) == 1
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    process.stderr.close()
    assert "Traceback" not in errors
    assert "status=failed" in errors
