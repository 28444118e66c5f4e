"""A mode's contract, measured: how far its distributions are from default's, by text and by input size, the worst beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from swiftsure.verify.compare.divergence import Divergence, compare_distributions
from swiftsure.verify.contracts.contract import Contract, load_contract
from swiftsure.verify.proving.client import WorkerError
from swiftsure.verify.proving.mode_run import ModeRun

TASK_NOT_MEASURED = "task not measured"


def owed_contracts(runs: Mapping[str, ModeRun]) -> list[tuple[ModeRun, Contract]]:
    """Each sound mode that owes a contract, with it."""
    return [(run, load_contract(run.name)) for run in runs.values() if run.sound and not run.keeps_bits]


def measure_contract(base: ModeRun, run: ModeRun, contract: Contract, folder: Path, advance: Callable[[int], None]) -> None:
    """Fills ``run.contract``. ``advance`` counts texts; files lie in ``folder``. A worker that breaks takes its mode out of the run."""
    found: dict[str, dict[int, Divergence]] = {}
    try:
        for name, text in contract.texts.items():
            found[name] = _measure_text(base, run, contract, text, folder)
            advance(1)
    except WorkerError as error:
        run.break_off(error)
    else:
        run.contract = judged(contract, found)


def judged(contract: Contract, found: Mapping[str, Mapping[int, Divergence]]) -> dict[str, Any]:
    """The contract as it stands in the result: limits, figures by text and size, every breach in words, and what is still open."""
    parts = [(text, size, figures) for text, by_size in found.items() for size, figures in by_size.items()]
    breaches = [f"{text} up to {size} tokens: {breach}" for text, size, figures in parts for breach in contract.limits.broken_by(figures)]
    worst = max(parts, key=lambda part: part[2].kl_mean)
    return {
        "kept": not breaches,
        "breaches": breaches,
        "limits": contract.limits.to_dict(),
        "by_text": {text: {str(size): figures.to_dict() for size, figures in by_size.items()} for text, by_size in found.items()},
        "worst": {"text": worst[0], "size": worst[1], **worst[2].to_dict()},
        "task": TASK_NOT_MEASURED,
    }


def _measure_text(base: ModeRun, run: ModeRun, contract: Contract, text: str, folder: Path) -> dict[int, Divergence]:
    files = {mode.name: folder / f"{mode.name}.score" for mode in (base, run)}
    try:
        answers = [
            mode.worker().ask("score", text=text, tokens=contract.sizes[-1], logits=str(files[mode.name]))["token_ids"]
            for mode in (base, run)
        ]
        ids = answers[0][: len(answers[1])]
        rows = compare_distributions(files[base.name], files[run.name], ids, vocab_size=base.loaded["vocab_size"])
        return {size: rows.over(begin, end) for size, begin, end in contract.ranges(len(ids))}
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)
