"""Is it still the same? One prompt, every mode, all logits of all generated positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swiftsure.verify.bits import BitComparison, compare_logit_files
from swiftsure.verify.client import WorkerClient, WorkerError
from swiftsure.verify.mode_run import BASE, ModeRun
from swiftsure.verify.workload import Prompt

PASSES = {
    "again": "default a second time (A against A)",
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


def prove_group(
    prompts: Sequence[Prompt], runs: Mapping[str, ModeRun], folder: Path, advance: Callable[[int], None]
) -> list[dict[str, Any]]:
    """Compares every pass of every running mode with default's first pass, and returns that one's answers. Its files lie in ``folder``.

    ``advance`` counts each prompt twice: when it was run alone, and when it was run in company.
    """
    truth_files = [folder / f"truth-{i}.f32" for i in range(len(prompts))]
    truths = []
    for prompt, file in zip(prompts, truth_files, strict=True):
        truth = generate(runs[BASE].worker(), [prompt], clear=True, logits=[file])[0]
        for run in runs.values():
            name = "again" if run.name == BASE else "cold"
            _compare(run, name, [prompt], truths=[truth], truth_files=[file], vocab_size=runs[BASE].loaded["vocab_size"])
        truths.append(truth)
        advance(1)
    for run in runs.values():
        if run.name != BASE:
            for name in ("together", "warm"):
                _compare(run, name, prompts, truths=truths, truth_files=truth_files, vocab_size=runs[BASE].loaded["vocab_size"])
    for file in truth_files:
        file.unlink()
    advance(len(prompts))
    return truths


def _compare(
    run: ModeRun,
    name: str,
    prompts: Sequence[Prompt],
    *,
    truths: Sequence[Mapping[str, Any]],
    truth_files: Sequence[Path],
    vocab_size: int,
) -> None:
    """Runs one pass of a mode and adds what it finds to the mode's proof. A worker that breaks takes its mode out of the run."""
    if not run.running:
        return
    files = [file.with_suffix(".other") for file in truth_files]
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
