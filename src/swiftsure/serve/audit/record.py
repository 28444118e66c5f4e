"""What a difference leaves behind: a run record with both digests and the first position where the chains part."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swiftsure.records.machine import read_machine
from swiftsure.records.run_record import RunRecord, utc_now
from swiftsure.serve.audit.cases import Case
from swiftsure.serve.jobs import Outcome


def first_difference(case: Case, token_ids: tuple[int, ...], outcome: Outcome) -> dict[str, Any]:
    """The first generated token whose link of the chain differs: its index, the position of its row, and what was chosen on both sides."""
    links = zip(_links(case.outcome.digest_trace), _links(outcome.digest_trace), strict=False)
    index = next((i for i, (served, replayed) in enumerate(links) if served != replayed), min(len(case.token_ids), len(token_ids)))
    return {
        "output_index": index,
        "position": len(case.job.prompt_ids) - 1 + index,
        "token_served": case.token_ids[index] if index < len(case.token_ids) else None,
        "token_replayed": token_ids[index] if index < len(token_ids) else None,
    }


def write_record(
    folder: Path, case: Case, *, levers: Mapping[str, Any], found: Mapping[str, Any], pins: Mapping[str, Any], with_prompt: bool
) -> Path:
    """Writes the record and returns its path. ``with_prompt``: whether it may hold the prompt, which it is needed with to be repeated."""
    facts, job = case.facts, case.job
    prompt = {"prompt_ids": list(job.prompt_ids), "token_ids": list(case.token_ids)} if with_prompt else {}
    record = RunRecord(
        command="serve --audit",
        arguments=tuple(sys.argv[1:]),
        status="failed",
        mode=facts.mode,
        numerics=facts.numerics,
        isa=facts.isa,
        threads=facts.threads,
        pins={"model": dict(pins)},
        machine=read_machine(),
        levers={name: dict(state) for name, state in levers.items()},
        phases_s={},
        peak_rss_bytes=None,
        results={
            **found,
            "request": case.name,
            "job": job.id,
            "prompt_tokens": len(job.prompt_ids),
            "prompt_sha256": hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in job.prompt_ids)).hexdigest(),
            "output_tokens": len(case.token_ids),
            **prompt,
            "sampling": asdict(job.sampling),
            "choice": job.choice,
            "tier": job.tier,
            "levers_of_the_request": {name: dict(counts) for name, counts in case.outcome.levers.items()},
        },
    )
    path = folder / f"audit-{case.model.replace('/', '_')}-{utc_now().replace(':', '')}-{job.id[:12]}.json"
    record.write(path)
    return path


def _links(trace: str) -> list[str]:
    return [trace[at : at + 8] for at in range(0, len(trace), 8)]
