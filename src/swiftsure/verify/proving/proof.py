"""Is it still the same? One prompt, every mode, all logits of all generated positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swiftsure.verify.compare.logit_files import BitComparison, compare_logit_files
from swiftsure.verify.proving.client import WorkerClient, WorkerError
from swiftsure.verify.proving.mode_run import BASE, ModeRun
from swiftsure.verify.proving.workload import Prompt

PASSES = {
    "again": "a second time (A against A)",
    "cold": "alone, with nothing remembered",
    "together": "in company: several requests at once, with nothing remembered",
    "warm": "the same requests at once again, on what that left in the stores",
}
GROUP = 4
GROUP_TOKENS = 2600
"""Requests that run together: at most so many, and so many new tokens, which bounds the rows of logits on the disk."""


def examine(client: WorkerClient, prompts: Sequence[Prompt]) -> None:
    """Raises ``WorkerError`` that names the first prompt which cannot run: longer than the context, or refused by the chat template."""
    client.ask("examine", requests=[{"name": prompt.name, "messages": list(prompt.chat())} for prompt in prompts])


def generate(client: WorkerClient, prompts: Sequence[Prompt], *, clear: bool, logits: Sequence[Path] | None = None) -> list[dict[str, Any]]:
    """Runs prompts in a worker, at once where there are several; see ``worker.describe`` for an answer."""
    requests = [
        {"messages": list(prompt.chat()), "sampling": prompt.sampling(), "logits": None if logits is None else str(logits[i])}
        for i, prompt in enumerate(prompts)
    ]
    results: list[dict[str, Any]] = client.ask("generate", requests=requests, clear=clear)["results"]
    return results


def groups(prompts: Sequence[Prompt]) -> list[list[Prompt]]:
    """Cuts a workload into neighbours that run together."""
    found: list[list[Prompt]] = []
    for prompt in prompts:
        last = found[-1] if found else []
        if found and len(last) < GROUP and sum(p.max_tokens for p in last) + prompt.max_tokens <= GROUP_TOKENS:
            last.append(prompt)
        else:
            found.append([prompt])
    return found


def prove_group(prompts: Sequence[Prompt], runs: Mapping[str, ModeRun], folder: Path, advance: Callable[[int], None]) -> None:
    """Compares every pass of every running mode with the first pass of its reference, and keeps that one's answers in ``run.truths``.

    ``advance`` counts each prompt twice: when it was run alone, and when it was run in company. Files lie in ``folder`` meanwhile.
    """
    files = {run.name: [folder / f"{run.name}-{i}.f32" for i in range(len(prompts))] for run in runs.values() if _is_reference(run)}
    for i, prompt in enumerate(prompts):
        for run in runs.values():
            if _is_reference(run):
                _keep_truth(run, prompt, files[run.name][i])
            elif run.running:
                run.truths.append(runs[BASE].truths[-1])
            _compare(run, "again" if _is_reference(run) else "cold", [prompt], [_truth_file(run, files, i)])
        advance(1)
    for run in runs.values():
        if run.name != BASE:
            for name in ("together", "warm"):
                _compare(run, name, prompts, [_truth_file(run, files, i) for i in range(len(prompts))])
    for path in (path for paths in files.values() for path in paths):
        path.unlink(missing_ok=True)
    advance(len(prompts))


def _is_reference(run: ModeRun) -> bool:
    return run.name == BASE or not run.keeps_bits


def _truth_file(run: ModeRun, files: Mapping[str, Sequence[Path]], index: int) -> Path:
    return files[run.name if _is_reference(run) else BASE][index]


def _keep_truth(run: ModeRun, prompt: Prompt, file: Path) -> None:
    """The first pass of a reference. A worker that breaks takes its mode out of the run."""
    if not run.running:
        return
    try:
        run.truths.append(generate(run.worker(), [prompt], clear=True, logits=[file])[0])
    except WorkerError as error:
        run.break_off(error)


def _compare(run: ModeRun, name: str, prompts: Sequence[Prompt], truth_files: Sequence[Path]) -> None:
    """Runs one pass of a mode and adds what it finds to the mode's proof. A worker that breaks takes its mode out of the run."""
    if not run.running:
        return
    files = [file.with_suffix(".other") for file in truth_files]
    truths, vocab_size = run.truths[-len(prompts) :], run.loaded["vocab_size"]
    try:
        answers = generate(run.worker(), prompts, clear=name != "warm", logits=files)
        for prompt, truth, answer, truth_file, file in zip(prompts, truths, answers, truth_files, files, strict=True):
            comparison = compare_logit_files(truth_file, file, vocab_size=vocab_size)
            run.proof.add(name, prompt.name, comparison, _failure(f"prompt {prompt.name}, {name} pass", comparison, truth, answer))
    except WorkerError as error:
        run.break_off(error)
    finally:
        for file in files:
            file.unlink(missing_ok=True)


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
