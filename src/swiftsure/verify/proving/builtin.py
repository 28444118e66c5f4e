"""The built-in workload: twelve prompts in six kinds, half greedy and half sampled, two of them of about 2,000 tokens.

The texts are original. The rate-limiter task is the one that fast services are compared with in public: a whole Python module of about
2,000 tokens, nothing truncated; the default size takes its first 256 tokens, ``full`` all 2,000.
"""

from __future__ import annotations

from importlib import resources

from swiftsure.verify.proving.workload import Prompt

TEMPERATURE = 0.7

RATE_LIMITER = (
    "Write a complete, production-ready Python rate limiter module. It must offer three strategies: fixed window, sliding window and "
    "token bucket. All three share an abstract base class. Use type hints throughout and give every class and every public method a "
    "docstring. Then write a pytest suite that covers burst traffic, clock skew and buckets of zero capacity. Aim for about 2,000 tokens "
    "of output. Show the full code of the module and of the tests, and leave nothing out or truncated."
)


def builtin_workload(*, full: bool = False) -> tuple[Prompt, ...]:
    """The prompts in a fixed order; every sampled one carries its seed."""
    new, writing, limiter = (256, 256, 2000) if full else (128, 160, 256)
    summary = "Summarise the following text in about 150 words. Name the three lessons at the end.\n\n" + _text("harbour.txt")
    refactor = "Rewrite the class Bin of this module with type hints and docstrings, and keep its behaviour.\n\n" + _text("inventory.txt")
    orders = "Extract every order as a JSON array with number, date, name, email, items and status.\n\n" + _text("orders.txt")
    visit = "Turn this note into one JSON object. Use null for what is not said.\n\n" + _text("visit.txt")
    abstract = "Summarise this paragraph in three short sentences:\n\n" + _text("harbour.txt").split("\n\n")[4]
    return (
        _greedy("code-refactor-long", "code", refactor, new),
        _sampled("code-intervals", "code", "Write a Python function that merges overlapping intervals, with doctests.", new, 11),
        _greedy("limiter-greedy", "rate_limiter", RATE_LIMITER, limiter),
        _sampled("limiter-sampled", "rate_limiter", RATE_LIMITER, limiter, 12),
        _greedy("chat-sky", "chat", "Why is the sky blue at noon and red in the evening? Explain it to a ten-year-old.", new),
        _sampled("chat-move", "chat", "I am moving to another city in four weeks. What should I do in which week?", new, 13),
        _sampled("summary-long", "summary", summary, new, 14),
        _greedy("summary-short", "summary", abstract, new),
        _greedy("json-orders", "json", orders, new),
        _sampled("json-visit", "json", visit, new, 15),
        _greedy("writing-story", "writing", "Write a short story about a lighthouse keeper who repairs radios.", writing),
        _sampled("writing-letter", "writing", "Write a letter from a retired engineer to the bridge she once built.", writing, 16),
    )


def _greedy(name: str, kind: str, text: str, max_tokens: int) -> Prompt:
    return Prompt(name=name, kind=kind, text=text, max_tokens=max_tokens)


def _sampled(name: str, kind: str, text: str, max_tokens: int, seed: int) -> Prompt:
    return Prompt(name=name, kind=kind, text=text, max_tokens=max_tokens, temperature=TEMPERATURE, seed=seed)


def _text(name: str) -> str:
    return resources.files("swiftsure.verify").joinpath("data", name).read_text(encoding="utf-8").strip()
