"""Turns, and what follows from them. Talks to workers only through ``ask``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.peers.budget import Budget
from benchmarks.peers.contract import Contender
from benchmarks.peers.neighbours import CpuClock, others_share
from benchmarks.peers.process import PeerError
from swiftsure.records.statistics import Ratio, median, paired_ratio


class Asked(Protocol):
    def ask(self, do: str, **arguments: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    name: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One generation by one contender."""

    contender: str
    prompt: str
    repeat: int
    prompt_tokens: int
    token_ids: tuple[int, ...]
    ttft_s: float
    decode_s: float
    total_s: float
    first_tokens: int = 1  # came together as the first
    others_cpu_share: float | None = None  # of the machine, while this turn lasted

    @property
    def decode_tokens_per_s(self) -> float:
        return (len(self.token_ids) - self.first_tokens) / self.decode_s

    @property
    def prefill_tokens_per_s(self) -> float:
        """Over the whole time to the first token, whatever the engine does in it."""
        return self.prompt_tokens / self.ttft_s

    def to_dict(self) -> dict[str, Any]:
        return {
            "contender": self.contender,
            "prompt": self.prompt,
            "repeat": self.repeat,
            "ttft_s": self.ttft_s,
            "decode_s": self.decode_s,
            "total_s": self.total_s,
            "output_tokens": len(self.token_ids),
            "others_cpu_share": self.others_cpu_share,
        }


def take_turns(
    workers: Mapping[str, Asked],
    prompts: Sequence[Prompt],
    budget: Budget,
    *,
    repeats: int,
    max_tokens: int,
    pause_s: float,
    clock: Callable[[], CpuClock] | None = None,
    wait_for_quiet: Callable[[], None] = lambda: None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Turn]:
    """Every contender on every prompt, ``repeats`` times. Neighbours in time are what ratios are made of.

    A contender that fails takes no more turns; what it has done is kept. ``clock`` tells what others used of the machine in each turn.
    ``wait_for_quiet`` is called before a prompt's turns: it may choose when they start, but all that was measured is kept.
    """
    names = list(workers)
    turns: list[Turn] = []
    for repeat in range(repeats):
        for at, prompt in enumerate(prompts):
            wait_for_quiet()
            for name in rotated(names, repeat + at):
                if budget.why_not(name) is not None:
                    continue
                time.sleep(pause_s)  # the one before goes to sleep
                before = clock() if clock is not None else None
                try:
                    run = workers[name].ask("generate", ids=list(prompt.ids), max_tokens=max_tokens)
                except PeerError as error:
                    budget.fail(name, error.reason)
                    progress(str(error))
                    continue
                share = None if clock is None or before is None else others_share(before, clock())
                turns.append(_turn(name, prompt, repeat, run, share))
                budget.spend(name, prompt.name, run["total_s"])
                progress(f"repeat {repeat + 1}/{repeats} {prompt.name}: {name} {turns[-1].decode_tokens_per_s:.1f} tokens/s")
    return turns


def rotated(names: Sequence[str], shift: int) -> list[str]:
    """The same order from another beginning."""
    start = shift % len(names) if names else 0
    return [*names[start:], *names[:start]]


def _turn(name: str, prompt: Prompt, repeat: int, run: Mapping[str, Any], others: float | None) -> Turn:
    return Turn(
        contender=name,
        prompt=prompt.name,
        repeat=repeat,
        prompt_tokens=len(prompt.ids),
        token_ids=tuple(run["token_ids"]),
        ttft_s=run["ttft_s"],
        decode_s=run["decode_s"],
        total_s=run["total_s"],
        first_tokens=run["first_tokens"],
        others_cpu_share=others,
    )


def fastest_choice(worker: Asked, choices: Sequence[int], prompts: Sequence[Prompt], max_tokens: int) -> tuple[int, dict[int, float]]:
    """Tries every choice once on every prompt and leaves the worker at the one that decodes fastest; that, and the rates by choice."""
    rates = {}
    for choice in choices:
        worker.ask("choose", value=choice)
        runs = [worker.ask("generate", ids=list(prompt.ids), max_tokens=max_tokens) for prompt in prompts]
        rates[choice] = sum(max_tokens - run["first_tokens"] for run in runs) / sum(run["decode_s"] for run in runs)
    best = max(rates, key=lambda choice: rates[choice])
    worker.ask("choose", value=best)
    return best, rates


def others_overall(turns: Sequence[Turn]) -> float | None:
    """What others used of the machine during the turns, weighted by their lengths; None where it was not measured."""
    known = [(turn.others_cpu_share, turn.total_s) for turn in turns if turn.others_cpu_share is not None]
    return sum(share * seconds for share, seconds in known) / sum(seconds for _, seconds in known) if known else None


def medians(turns: Sequence[Turn], contender: str) -> dict[str, float] | None:
    """The middle values over all prompts and repeats; None where it took no turn."""
    own = [turn for turn in turns if turn.contender == contender]
    if not own:
        return None
    return {
        "decode_tokens_per_s": median(turn.decode_tokens_per_s for turn in own),
        "prefill_tokens_per_s": median(turn.prefill_tokens_per_s for turn in own),
        "ttft_s": median(turn.ttft_s for turn in own),
        "total_s": median(turn.total_s for turn in own),
    }


def ratio(turns: Sequence[Turn], first: str, second: str, rate: str) -> Ratio | None:
    """``rate`` (a property of Turn) of ``first`` over that of ``second``, paired by prompt and repeat, one group a prompt."""
    rates = {(turn.contender, turn.prompt, turn.repeat): getattr(turn, rate) for turn in turns}
    groups: dict[str, list[tuple[float, float]]] = {}
    for (contender, prompt, repeat), value in rates.items():
        other = rates.get((second, prompt, repeat))
        if contender == first and other is not None:
            groups.setdefault(prompt, []).append((value, other))
    return paired_ratio(groups.values())


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first token that differs or is missing; None when the texts are equal."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def texts_against(turns: Sequence[Turn], contender: Contender) -> dict[str, int | None]:
    """By prompt: where the greedy text first leaves that of the plain contender (of its own first repeat, where it is plain itself)."""
    plain = contender.plain or contender.name
    base = {turn.prompt: turn.token_ids for turn in reversed(turns) if turn.contender == plain}
    found: dict[str, int | None] = {}
    for turn in turns:
        if turn.contender == contender.name and turn.prompt in base:
            different = first_difference(base[turn.prompt], turn.token_ids)
            known = found.get(turn.prompt)
            found[turn.prompt] = known if different is None else different if known is None else min(known, different)
    return found
