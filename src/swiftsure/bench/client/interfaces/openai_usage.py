"""``usage`` of both OpenAI interfaces."""

from __future__ import annotations

from swiftsure.bench.client.transcript import Transcript, mapping


def read_usage(told: object, transcript: Transcript) -> None:
    """The last one counts. ``completion_tokens`` include thinking, unless the total says that the two stand side by side."""
    usage = mapping(told)
    if not usage:
        return
    completion, prompt, total = usage.get("completion_tokens"), usage.get("prompt_tokens"), usage.get("total_tokens")
    details = mapping(usage.get("completion_tokens_details"))
    reasoning = details.get("reasoning_tokens", usage.get("reasoning_tokens"))
    if isinstance(completion, int) and isinstance(prompt, int) and isinstance(reasoning, int) and reasoning:
        completion += reasoning if total == prompt + completion + reasoning else 0
    transcript.count(
        prompt_tokens=prompt,
        output_tokens=completion,
        reasoning_tokens=reasoning,
        cached_tokens=mapping(usage.get("prompt_tokens_details")).get("cached_tokens", usage.get("prompt_cache_hit_tokens")),
    )
