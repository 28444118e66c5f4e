"""What a verification found, as it is recorded: enough to write its page again and to judge it in CI, without running anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftsure.errors import UsageError
from swiftsure.records.run_record import write_json, write_text

SCHEMA = "swiftsure.verify/1"
RECORD, PAGE, CONTRACT_COPY = "record.json", "report.html", "contract.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """``record`` is what JSON holds; its keys are those of ``verify.verify.record_of``."""

    record: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.record["verdict"]["kind"])

    @property
    def exit_code(self) -> int:
        return int(self.record["verdict"]["exit_code"])

    def write(self, folder: Path) -> Path:
        """Writes record and page into ``folder``; returns the page's path."""
        from swiftsure.verify.judgement_report import render_report

        write_json(folder / RECORD, self.record)
        page = folder / PAGE
        write_text(page, render_report(self))
        return page


def read_verification(path: Path) -> Verification:
    """From a record or the folder that holds it. Raises UsageError for anything else."""
    file = path / RECORD if path.is_dir() else path
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"there is no record of a verification at {str(path)!r}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON: {error}") from None
    if not isinstance(facts, Mapping) or facts.get("schema") != SCHEMA:
        found = facts.get("schema") if isinstance(facts, Mapping) else type(facts).__name__
        raise UsageError(f"{file} is not the record of a verification: its schema must be {SCHEMA}, got {found!r}")
    from swiftsure.verify.judging.verdict import EXIT_CODES

    verdict, contract = facts.get("verdict"), facts.get("contract")
    if not isinstance(verdict, Mapping) or verdict.get("kind") not in EXIT_CODES or not isinstance(contract, Mapping):
        raise UsageError(f"{file} is damaged: it has no verdict of a known kind, or no contract")
    if verdict.get("exit_code") != EXIT_CODES[verdict["kind"]]:
        raise UsageError(
            f"{file} is damaged: verdict {verdict['kind']} ends with {EXIT_CODES[verdict['kind']]}, it says {verdict.get('exit_code')}"
        )
    return Verification(record=facts)


def seconds(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "not measured"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.4g} s"
