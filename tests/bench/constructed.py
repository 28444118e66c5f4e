"""Exchanges whose every figure is known because they were written, not measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from swiftsure.bench.exchange import Arrival, ClientFacts, Exchange, Share, Trial, Usage
from swiftsure.bench.figures import Cell


def exchange(
    *,
    prompt: str = "p0",
    repeat: int = 0,
    round_number: int = 0,
    row: str = "cold",
    users: int = 1,
    rate_per_s: float | None = None,
    warm_up: bool = False,
    sent_s: float = 0.0,
    late_s: float = 0.0,
    ttft_s: float = 0.2,
    gap_s: float = 0.01,
    tokens: int = 100,
    tokens_a_chunk: int = 1,
    first_chunk_tokens: int | None = None,
    prompt_tokens: int | None = 100,
    shares: Sequence[Share] | None = None,
    **fields: Any,
) -> Exchange:
    """An answer of ``tokens`` tokens of 4 characters, ``tokens_a_chunk`` at a time every ``gap_s`` x tokens of the chunk."""
    sizes = [first_chunk_tokens or tokens_a_chunk]
    while sum(sizes) < tokens:
        sizes.append(min(tokens_a_chunk, tokens - sum(sizes)))
    moments = [ttft_s]
    for size in sizes[1:]:
        moments.append(moments[-1] + gap_s * size)
    kinds = shares or ["answer"] * len(sizes)
    arrivals = [Arrival(at_s=at, share=kind, characters=4 * size) for at, kind, size in zip(moments, kinds, sizes, strict=True)]
    values: dict[str, Any] = {
        "trial": Trial(round=round_number, row=row, users=users, prompt=prompt, repeat=repeat, rate_per_s=rate_per_s, warm_up=warm_up),
        "started": f"2026-12-03T{6 + 3 * round_number:02d}:00:{int(sent_s) % 60:02d}+00:00"
        if sent_s < 60
        else _clock(round_number, sent_s),
        "scheduled_s": sent_s - late_s,
        "sent_s": sent_s,
        "first_byte_s": ttft_s / 2,
        "first_event_s": ttft_s / 2,
        "arrivals": arrivals,
        "last_token_s": moments[-1],
        "ended_s": moments[-1] + 0.001,
        "finish_reason": "stop",
        "usage": Usage(prompt_tokens=prompt_tokens, output_tokens=tokens),
        "output_tokens": tokens,
        "tokens_by": "usage",
        "first_arrival_tokens": sizes[0],
        "characters": 4 * tokens,
        "status": 200,
    }
    return Exchange(**values | fields)


def failed(error: str = "timeout", **fields: Any) -> Exchange:
    """One that came to nothing."""
    empty = {"arrivals": (), "usage": None, "output_tokens": None, "tokens_by": None, "last_token_s": None, "ended_s": 1.0}
    return exchange(**{"error": error, "error_words": f"{error} after 1 s", **empty, **fields})


def rounds(
    *, prompts: int = 10, repeats: int = 5, number: int = 3, ttft: Callable[[int, int, int], float] = lambda p, r, k: 0.2, **fields: Any
) -> list[Exchange]:
    """A whole protocol: ``ttft(prompt, round, repeat)`` in seconds; one user, one request after the other, 2 s apart."""
    found = []
    for round_number in range(number):
        for index in range(prompts * repeats):
            prompt, repeat = divmod(index, repeats)
            found.append(
                exchange(
                    prompt=f"p{prompt}",
                    repeat=repeat,
                    round_number=round_number,
                    sent_s=2.0 * index,
                    ttft_s=ttft(prompt, round_number, repeat),
                    **fields,
                )
            )
    return found


def crowd(*, users: int, answers: int = 6, ttft_s: float = 0.2, gap_s: float = 0.01, row: str = "sweep", **fields: Any) -> list[Exchange]:
    """``users`` of a closed loop, each sends again as soon as its answer ended; 100 tokens an answer, users start evenly apart.

    The first answer of each is the opening wave.
    """
    whole = ttft_s + 99 * gap_s
    return [
        exchange(
            prompt=f"p{(user + answer) % 7}",
            repeat=user * answers + answer,
            users=users,
            row=row,
            sent_s=whole * (answer + user / users),
            warm_up=answer == 0,
            ttft_s=ttft_s,
            gap_s=gap_s,
            **fields,
        )
        for user in range(users)
        for answer in range(answers)
    ]


def cell(*, row: str = "cold", users: int = 1, round_number: int = 0, **facts: Any) -> Cell:
    values: dict[str, Any] = {
        "wall_s": 100.0,
        "processes": 1,
        "wanted_users": users,
        "mean_in_flight": float(users),
        "lag_p50_s": 0.0001,
        "lag_p99_s": 0.001,
        "lag_max_s": 0.002,
        "cpu_share": 0.2,
    }
    return Cell(round=round_number, row=row, users=users, facts=ClientFacts(**values | facts))


def _clock(round_number: int, sent_s: float) -> str:
    minutes, seconds = divmod(int(sent_s), 60)
    return f"2026-12-03T{6 + 3 * round_number + minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}+00:00"
