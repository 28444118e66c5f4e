"""A load from requests to exchanges, against endpoints that behave."""

from __future__ import annotations

from bench.stub_server import StubServer, delta, stream, usage
from swiftsure.bench.client import measure
from swiftsure.bench.exchange import Exchange, Prompt, Request, Trial
from swiftsure.bench.target import Target


def request(number: int = 0, *, at_s: float | None = None, text: str = "Hello") -> Request:
    prompt = Prompt(name=f"p{number}", kind="own", text=text, max_tokens=20)
    return Request(prompt=prompt, trial=Trial(round=1, row="cold", users=1, prompt=prompt.name, repeat=0), at_s=at_s)


def test_a_closed_loop_sends_all_requests_over_as_many_connections_as_it_has_users() -> None:
    script = stream((0.0, delta(content="two ")), (0.01, delta(content="words")), (0.01, delta("stop", usage=usage(2))), (0.01, "[DONE]"))
    exchanges: list[Exchange] = []
    with StubServer({"good": script}) as stub:
        facts = measure(Target(url=stub.url("good")), [request(n) for n in range(6)], users=2, on_exchange=exchanges.append)
        assert len({asked.connection for asked in stub.asked}) == 2
    assert sorted(exchange.trial.prompt for exchange in exchanges) == [f"p{n}" for n in range(6)]
    assert [exchange.error for exchange in exchanges] == [None] * 6
    assert [exchange.output_tokens for exchange in exchanges] == [2] * 6
    assert sum(exchange.connected_s is not None for exchange in exchanges) == 2
    assert (facts.processes, facts.wanted_users) == (1, 2)
