"""The first request to an endpoint: which interface it speaks, what a cold start costs, and how many characters its tokens have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from swiftsure.bench.client.measure import Measure
from swiftsure.bench.exchange import Exchange, Prompt, Request, Trial
from swiftsure.bench.prompts.change import as_messages, as_text, characters, cold, nonce
from swiftsure.bench.prompts.context import CHARACTERS_PER_TOKEN, long_text
from swiftsure.bench.protocol.plan import OPENING_TOKENS, START
from swiftsure.bench.target import Interface, Target
from swiftsure.errors import EndpointError

_TEXT_CHARACTERS = 3000
_LONGEST_TOKEN = 8.0  # characters; a count beyond it is not of this text (a cache's, an image's)
_OTHER_INTERFACE = (404, 405, 501)
_NO_TEMPLATE = ("chat template", "chat_template")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """``exchange``: the first that was answered. ``characters_per_token``: measured where ``measured`` says so, else assumed."""

    interface: Interface
    exchange: Exchange
    characters_per_token: float
    measured: bool


def start(target: Target, interfaces: Sequence[Interface], *, round: int, window: int | None, measure: Measure) -> Start:
    """Tries the interfaces in order. Raises EndpointError with the endpoint's own words where none of them answers."""
    length = _TEXT_CHARACTERS if window is None else min(_TEXT_CHARACTERS, window // 4)
    prompt = Prompt(
        name=START,
        kind=START,
        text=f"{long_text(max(length, 40))}\n\nContinue this text.",
        max_tokens=OPENING_TOKENS,
    )
    refusals = []
    for interface in interfaces:
        exchange = ask_once(replace(target, interface=interface), cold(prompt, nonce()), round=round, measure=measure)
        if exchange.error is None:
            return _started(interface, exchange, characters(prompt))
        refusals.append(f"{interface}: {exchange.status or exchange.error}: {exchange.error_words or exchange.error}")
        if not _speaks_another(exchange):
            break
    raise EndpointError(f"{target.url} does not answer a first request; {'; '.join(refusals)}")


def ask_once(target: Target, prompt: Prompt, *, round: int, measure: Measure) -> Exchange:
    """One request of row ``start``, which is warm-up: it is in no figure."""
    trial = Trial(round=round, row=START, users=1, prompt=prompt.name, repeat=1, warm_up=True)
    fitting = as_text(prompt) if target.interface == "completions" else as_messages(prompt)
    found: list[Exchange] = []
    measure(target, [Request(prompt=fitting, trial=trial)], users=1, on_exchange=found.append)
    return found[0]


def _speaks_another(exchange: Exchange) -> bool:
    words = (exchange.error_words or "").lower()
    return exchange.status in _OTHER_INTERFACE or (exchange.error == "http_4xx" and any(sign in words for sign in _NO_TEMPLATE))


def _started(interface: Interface, exchange: Exchange, length: int) -> Start:
    tokens = exchange.usage.prompt_tokens if exchange.usage is not None else None
    if not tokens or length / tokens > _LONGEST_TOKEN:
        return Start(interface=interface, exchange=exchange, characters_per_token=CHARACTERS_PER_TOKEN, measured=False)
    return Start(interface=interface, exchange=exchange, characters_per_token=length / tokens, measured=True)
