"""Is it still the same? One prompt, every mode, all logits of all generated positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swiftsure.verify.bits import BitComparison, compare_logit_files
from swiftsure.verify.client import WorkerClient, WorkerError
from swiftsure.verify.mode_run import BASE, ModeRun
from swiftsure.verify.workload import Prompt

PASSES = {
    "again": "default a second time (A against A)",
    "cold": "with nothing remembered",
    "warm": "the same prompt again, on what the cold pass left in the stores",
}


def generate(client: WorkerClient, prompt: Prompt, *, clear: bool, logits: Path | None = None) -> dict[str, Any]:
    """Runs one prompt in a worker; see ``worker.Worker.generate`` for the answer."""
    path = None if logits is None else str(logits)
    return client.ask("generate", messages=list(prompt.chat()), sampling=prompt.sampling(), clear=clear, logits=path)


def prove_prompt(prompt: Prompt, runs: Mapping[str, ModeRun], folder: Path) -> dict[str, Any]:
    """Compares every pass of every running mode with default's first pass, and returns that one's answer. Uses two files in ``folder``."""
    base = runs[BASE]
    truth_file, other_file = folder / "base.f32", folder / "other.f32"
    truth = generate(base.worker(), prompt, clear=True, logits=truth_file)
    passes = [(base, "again")] + [(run, name) for run in runs.values() if run is not base for name in ("cold", "warm")]
    for run, name in passes:
        if not run.running:
            continue
        try:
            answer = generate(run.worker(), prompt, clear=name != "warm", logits=other_file)
        except WorkerError as error:
            run.break_off(error)
            continue
        comparison = compare_logit_files(truth_file, other_file, vocab_size=base.loaded["vocab_size"])
        run.proof.add(name, comparison, _failure(f"prompt {prompt.name}, {name} pass", comparison, truth, answer))
    return truth


def _failure(where: str, comparison: BitComparison, truth: Mapping[str, Any], answer: Mapping[str, Any]) -> str | None:
    if comparison.first is not None:
        return f"{where}, {comparison.first.describe()}"
    if comparison.rows_missing:
        return f"{where}: {answer['rows']} rows of logits against {truth['rows']}"
    if answer["rows"] != len(answer["token_ids"]):
        return f"{where}: {answer['rows']} rows of logits for {len(answer['token_ids'])} tokens"
    return tokens_failure(where, truth["token_ids"], answer["token_ids"])


def tokens_failure(where: str, expected: Sequence[int], got: Sequence[int]) -> str | None:
    """The first token that differs in words, or ``None``."""
    for index, (a, b) in enumerate(zip(expected, got, strict=False)):
        if a != b:
            return f"{where}: token {index} is {b} against {a}"
    if len(expected) != len(got):
        return f"{where}: {len(got)} tokens against {len(expected)}"
    return None
