"""An agent: serial calls of a fixed length, each with all that was said before, and a tool at work between them.

20 calls of 800 tokens take about 230 s at 70 tokens/s, and 21 s at 750: the same agent is a thing to wait for, or a job for later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swiftsure.bench.exchange import Exchange, Prompt
from swiftsure.bench.figures.reading import read
from swiftsure.bench.prompts.change import cold
from swiftsure.bench.prompts.context import long_text
from swiftsure.bench.scenarios.base import Answer, Asker, Figure, at_most, percentile_if_any, refuse_failures
from swiftsure.errors import UsageError

_SYSTEM = (
    "You are an agent that works through a long text with tools. At every step write down in detail what you have found so far, what you "
    "conclude from it, and which tool you call next with which arguments. Never stop before you are told to."
)
_TASK = "Find every experiment that is described in the text, with its apparatus and its result. Begin with your plan."
_RESULT_CHARACTERS = 600
_COMPARED = (70, 750)  # tokens/s


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """``wait_s``: how long a person waits for the whole. ``tool_s``: how long a tool takes between two calls."""

    calls: int = 20
    tokens: int = 800
    tool_s: float = 0.5
    wait_s: float = 60.0

    def __post_init__(self) -> None:
        for name, value, low, high in (("calls", self.calls, 2, 200), ("tokens", self.tokens, 1, 100_000)):
            if not low <= value <= high:
                raise UsageError(f"{name} of the agent must lie in {low}..{high}, got {value}")
        if not 0 <= self.tool_s <= 600 or not 0 < self.wait_s <= 86_400:
            raise UsageError(f"a tool takes 0 to 600 s, and a person waits up to a day, got {self.tool_s:g} and {self.wait_s:g}")

    @property
    def requests(self) -> int:
        return self.calls


def agent(asker: Asker, settings: AgentSettings) -> Answer:
    """Runs the calls one after the other. What the window has no room for any more is left out, oldest first, and said so."""
    tokens, notes = settings.tokens, []
    if asker.window is not None and tokens > asker.window // 4:
        tokens = asker.window // 4
        notes.append(f"calls of {tokens} tokens instead of {settings.tokens}: the model's window has {asker.window}")
    history = _History(asker, tokens)
    exchanges: list[Exchange] = []
    for call in range(settings.calls):
        prompt = Prompt(name=f"call-{call + 1}", kind="agent", messages=history.messages(), max_tokens=tokens)
        (exchange,) = asker.all([prompt], after_s=settings.tool_s)
        refuse_failures([exchange])
        exchanges.append(exchange)
        history.add(exchange)
    if history.left_out:
        notes.append(f"the {history.left_out} oldest steps were left out of later calls: the window has {asker.window} tokens")
    return _answer(exchanges, settings, notes)


class _History:
    """What was said, as messages that fit the window. The agent's start has a nonce: no earlier run of it may help."""

    def __init__(self, asker: Asker, tokens: int) -> None:
        opening = Prompt(
            name="agent",
            kind="agent",
            messages=[{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _TASK}],
            max_tokens=tokens,
        )
        self._opening: list[Any] = list(cold(opening, asker.mark()).messages or ())
        self._steps: list[tuple[str, str]] = []
        self._room = None if asker.window is None else int((asker.window - tokens) * 0.9 * asker.characters_per_token)
        self.left_out = 0

    def messages(self) -> list[Any]:
        if self._room is not None:
            while self._steps and self._length() > self._room:
                self._steps.pop(0)
                self.left_out += 1
        said = [
            message
            for text, result in self._steps
            for message in ({"role": "assistant", "content": text}, {"role": "user", "content": result})
        ]
        return [*self._opening, *said]

    def add(self, exchange: Exchange) -> None:
        start = (len(self._steps) + self.left_out) * _RESULT_CHARACTERS
        found = long_text(start + _RESULT_CHARACTERS)[start:]
        self._steps.append((exchange.text or "I go on.", f"Result of the tool:\n{found}\n\nGo on."))

    def _length(self) -> int:
        return sum(len(message["content"]) for message in self._opening) + sum(len(a) + len(b) for a, b in self._steps)


def _answer(exchanges: list[Exchange], settings: AgentSettings, notes: list[str]) -> Answer:
    values = [read(exchange).values for exchange in exchanges]
    ttft = [value["ttft"] for value in values if "ttft" in value]
    decode = percentile_if_any([value["decode"] for value in values if "decode" in value], 50)
    took_s = sum(value.get("e2e", exchange.ended_s or 0.0) for value, exchange in zip(values, exchanges, strict=True))
    made = sum(exchange.output_tokens or 0 for exchange in exchanges)
    wanted = settings.calls * settings.tokens
    whole_s: float | None = took_s
    if made < 0.98 * wanted:
        whole_s = None if decode is None else sum(ttft) / len(ttft) * settings.calls + wanted / decode
        notes.append(f"the answers had {made} of {wanted} tokens; the whole is reckoned for all of them, by the decode speed")
    told = ", ".join(f"{wanted / speed:.{0 if wanted > 10 * speed else 1}f} s at {speed} tokens/s" for speed in _COMPARED)
    if len(ttft) < len(exchanges):
        notes.append(f"{len(exchanges) - len(ttft)} answers were empty; their first tokens are reckoned like those of the others")
    notes.append(f"{settings.calls} calls of {settings.tokens} tokens: {told}, before any first token and tool")
    if any(read(exchange).burst for exchange in exchanges):
        notes.append("some answers came in one burst: their decode speed is not known")
    return Answer(
        scenario="agent",
        figures=[
            at_most("the whole, without tools", whole_s, "s", settings.wait_s),
            *([] if whole_s == took_s else [Figure(name="measured, without tools", value=took_s, unit="s")]),
            Figure(name="tools", value=settings.tool_s * (settings.calls - 1), unit="s"),
            Figure(name="decode, median", value=decode, unit="tokens/s"),
            Figure(name="TTFT of the first call", value=ttft[0] if ttft else None, unit="s"),
            Figure(name="TTFT of the last call", value=ttft[-1] if ttft else None, unit="s"),
            Figure(name="TTFT of all calls together", value=sum(ttft), unit="s"),
        ],
        notes=notes,
        exchanges=exchanges,
    )
