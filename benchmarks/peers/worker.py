"""The process of one contender: reads requests, one JSON object a line, and answers each with one line.

    {"do": "prepare", "adapter" (a module), "place"}                      makes files that ``load`` needs, if the adapter has to
    {"do": "load", "adapter", "variant", "place", "threads", "context"}   -> facts
    {"do": "choose", "value"}                                             a draft length of the contender's choices
    {"do": "generate", "ids", "max_tokens"}                               -> Run
    {"do": "begin", "ids", "max_tokens"}                                  -> {"ttft_s"}: the prompt up to the first token, then it waits
    {"do": "more", "tokens"}                                              -> {"tokens", "seconds"}: at least so many more
    {"do": "end"}                                                         -> {"peak_rss_bytes"}: since ``begin``
    {"do": "rows", "ids"}                                                 -> RowComparison
    {"do": "batch", "prompts", "max_tokens"}                              -> token ids of each
    {"do": "peak_rss_bytes"}                                              -> number

An answer is ``{"result": ...}`` or ``{"error": "..."}``. The end of the input ends the process. All times are taken here, the same way for
every engine.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from time import perf_counter
from typing import Any

from benchmarks.peers.contract import Adapter, NotOfferedError, Place, Run


def peak_rss_bytes() -> int | None:
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def reset_peak() -> None:
    """From now on the peak counts anew, from what is resident now."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def timed_run(adapter: Adapter, ids: Sequence[int], max_tokens: int) -> Run:
    tokens: list[int] = []
    first_tokens = 0
    started = first = last = perf_counter()
    for group in adapter.stream(ids, max_tokens):
        last = perf_counter()
        if not tokens:
            first, first_tokens = last, len(group)
        tokens += group
    total_s = perf_counter() - started
    if len(tokens) < max_tokens:
        raise RuntimeError(f"{len(tokens)} of {max_tokens} tokens came")
    return Run(
        token_ids=tokens[:max_tokens],
        first_tokens=first_tokens,
        ttft_s=first - started,
        # Drafts can overshoot the end: time is for all tokens that came.
        decode_s=(last - first) * (max_tokens - first_tokens) / max(1, len(tokens) - first_tokens),
        total_s=total_s,
    )


class Desk:
    """Answers requests; holds the loaded adapter and the generation under way."""

    def __init__(self) -> None:
        self._adapter: Adapter | None = None
        self._open: Iterator[Sequence[int]] | None = None

    def answer(self, request: dict[str, Any]) -> Any:
        do = request.pop("do")
        known: dict[str, Callable[..., Any]] = {
            "prepare": self.prepare,
            "load": self.load,
            "choose": self.choose,
            "generate": lambda ids, max_tokens: asdict(timed_run(self.adapter, ids, max_tokens)),
            "begin": self.begin,
            "more": self.more,
            "end": self.end,
            "rows": lambda ids: asdict(self.adapter.rows(ids)),
            "batch": lambda prompts, max_tokens: self.adapter.batch(prompts, max_tokens),
            "peak_rss_bytes": peak_rss_bytes,
        }
        if do not in known:
            raise RuntimeError(f"unknown request {do!r}")
        return known[do](**request)

    @property
    def adapter(self) -> Adapter:
        if self._adapter is None:
            raise RuntimeError("nothing is loaded")
        return self._adapter

    def prepare(self, adapter: str, place: dict[str, str]) -> None:
        module = importlib.import_module(adapter)
        if hasattr(module, "prepare"):
            module.prepare(Place(**place))

    def load(self, adapter: str, variant: str, place: dict[str, str], threads: int, context: int) -> Any:
        opened: Adapter = importlib.import_module(adapter).open_adapter(variant)
        facts = opened.load(Place(**place), threads=threads, context=context)
        self._adapter = opened
        return facts

    def choose(self, value: int) -> None:
        adapter: Any = self.adapter  # only those of contenders with choices have it
        adapter.choose(value)

    def begin(self, ids: list[int], max_tokens: int) -> dict[str, float]:
        reset_peak()
        started = perf_counter()
        self._open = iter(self.adapter.stream(ids, max_tokens))
        next(self._open)
        return {"ttft_s": perf_counter() - started}

    def more(self, tokens: int) -> dict[str, float]:
        if self._open is None:
            raise RuntimeError("more before begin")
        came, started = 0, perf_counter()
        while came < tokens:
            came += len(next(self._open))
        return {"tokens": came, "seconds": perf_counter() - started}

    def end(self) -> dict[str, int | None]:
        generation, self._open = self._open, None
        if generation is not None and hasattr(generation, "close"):
            generation.close()
        return {"peak_rss_bytes": peak_rss_bytes()}


def main() -> None:
    # Engines print where they like: answers keep the real output to themselves, everything else goes to the error stream.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    desk = Desk()
    for line in sys.stdin:
        try:
            reply = {"result": desk.answer(json.loads(line))}
        except NotOfferedError as error:
            reply = {"error": str(error)}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
