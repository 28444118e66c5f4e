"""What ``run`` reports of itself: the line of ``--stats``, the object of ``--json`` and the run record of ``--record``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swiftsure import LLM, Generation
    from swiftsure.records.run_record import RunRecord


_PHASES = ("tokenize_s", "queue_s", "prefill_s", "decode_s", "detokenize_s")


def stats_line(llm: LLM, generation: Generation) -> str:
    """``key=value`` without blanks. Wall fraction: bytes a token must read x tokens/s over the bandwidth of a buffer of that size.

    It may exceed 1 where several tokens come out of one reading of the weights (speculation).
    """
    from swiftsure.records.memory_wall import measure_read_bandwidth

    timing = generation.timing
    fields: dict[str, str] = {} if generation.sampling.greedy else {"seed": str(generation.sampling.seed)}
    fields |= {
        "prompt_tokens": str(timing.prompt_tokens),
        "output_tokens": str(timing.output_tokens),
        "ttft_s": "none" if timing.ttft_s is None else f"{timing.ttft_s:.3f}",
        "prefill_tokens_per_s": f"{timing.prompt_tokens / timing.prefill_s:.1f}" if timing.prefill_s > 0 else "none",
    }
    rate = timing.decode_tokens_per_s
    if rate is None:
        return _stats(fields | {"decode_tokens_per_s": "none"})
    token_bytes = int(llm.model.info()["decode_bytes_per_token"])
    wall = measure_read_bandwidth(token_bytes, threads=llm.activation.threads)
    fields |= {
        "decode_tokens_per_s": f"{rate:.1f}",
        "weights_gb_per_s": f"{rate * token_bytes / 1e9:.2f}",
        "read_gb_per_s": f"{wall.bytes_per_s / 1e9:.2f}",
        "wall_fraction": f"{rate * token_bytes / wall.bytes_per_s:.2f}",
    }
    return _stats(fields)


def _stats(fields: Mapping[str, str]) -> str:
    return "STATS " + " ".join(f"{key}={value}" for key, value in fields.items())


def generation_dict(llm: LLM, generation: Generation) -> dict[str, Any]:
    """What ``--json`` prints."""
    activation = llm.activation
    result: dict[str, Any] = {
        "mode": activation.mode,
        "model": activation.model,
        "weights_sha256": activation.weights_sha256,
        "numerics": activation.numerics,
        "text": generation.text,
        "finish_reason": generation.finish_reason,
        "token_ids": list(generation.token_ids),
        "digest": generation.digest,
        "prompt_tokens": len(generation.prompt_ids),
        "sampling": asdict(generation.sampling),
        "timing": generation.timing.to_dict(),
        "levers": {name: dict(counts) for name, counts in generation.levers.items()},
    }
    if generation.logprobs is not None:
        result["logprobs"] = [
            {"token_id": entry.token_id, "logprob": entry.logprob, "top": [{"token_id": i, "logprob": value} for i, value in entry.top]}
            for entry in generation.logprobs
        ]
    return result


def run_record(llm: LLM, generation: Generation | None, error: BaseException | None = None) -> RunRecord:
    """The record of a run of one prompt; of a failed one with the error and what is known without its result."""
    from swiftsure.records.machine import peak_rss_bytes, read_machine
    from swiftsure.records.run_record import RunRecord

    facts, files = llm.activation.to_dict(), llm.model.files
    results: dict[str, Any] = {} if generation is None else generation_dict(llm, generation)
    if error is not None:
        results["error"] = f"{type(error).__name__}: {error}".removesuffix(": ")
    phases = {} if generation is None else {name: getattr(generation.timing, name) for name in _PHASES}
    return RunRecord.of(
        facts if error is None else facts | {"status": "failed"},
        command="run",
        arguments=tuple(sys.argv[1:]),
        thread_choice=llm.thread_choice.to_dict() if llm.thread_choice else None,
        pins={"model": files.pins()},
        machine=read_machine(),
        phases_s={"load": sum(llm.load_phases.values())} | {name.removesuffix("_s"): seconds for name, seconds in phases.items()},
        peak_rss_bytes=peak_rss_bytes(),
        results=results,
    )
