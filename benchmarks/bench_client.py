"""How many streams the bench's client can hold before its own work shows in its stamps: 200 streams of 100 tokens/s on one processor.

    python -m benchmarks.bench_client --before-others --json benchmarks/results/bench_client.json

A stub endpoint in a process of its own, on another processor, writes each token's chunk at its moment and keeps the moment. Each client
holds the same streams, pinned to one processor: ``swiftsure`` is the client that measures, with all its processes and the reading of what
it recorded; ``httpx`` is an ``httpx.AsyncClient`` over a network backend that stamps each read before anything looks at it.

The bias of ITL, in the mean and at a percentile, is the client's figure less that of the gaps as the stub wrote them: so much a reader is
misled. How far single gaps are off stands beside it. ``--before-others`` asks the system to run stub and client before whatever else this
machine does (``SCHED_RR``), so that a shared machine's pauses are not taken for the client's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

from swiftsure.bench.percentiles import percentile

Moments = dict[int, list[float]]  # by stream, of each token

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CASES = ["swiftsure:200", "httpx:200", "swiftsure:200", "httpx:100", "swiftsure:200"]
SETTLE_S = 0.5  # from a stream's request to its first token, so that all are there before the first comes


def framed(*events: Any) -> bytes:
    data = b"".join(b"data: " + (json.dumps(event).encode() if event != "[DONE]" else b"[DONE]") + b"\n\n" for event in events)
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunk_of(index: int) -> bytes:
    """What a server sends for one token: about 240 bytes."""
    choice = {"index": 0, "delta": {"content": f" w{index:05d}"}, "logprobs": None, "finish_reason": None}
    head = {"id": "chatcmpl-0123456789abcdef01234567", "object": "chat.completion.chunk", "created": 1700000000, "model": "stub-model"}
    return framed({**head, "choices": [choice]})


class Stub(asyncio.Protocol):
    """Answers a request with the chunks, one every ``gap_s``, each stream at a phase of its own. ``written`` has the moments."""

    def __init__(self, chunks: Sequence[bytes], gap_s: float, streams: int, written: Moments) -> None:
        self._chunks, self._gap_s, self._streams, self._written = chunks, gap_s, streams, written
        self._asked = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        if not self._asked.endswith(b"}"):
            return
        number = int(json.loads(self._asked.partition(b"\r\n\r\n")[2])["messages"][0]["content"])
        self._moments = self._written.setdefault(number, [])
        self._transport.write(HEAD)
        self._due = asyncio.get_running_loop().time() + SETTLE_S + self._gap_s * number / self._streams
        asyncio.get_running_loop().call_at(self._due, self._write)

    def _write(self) -> None:
        self._moments.append(perf_counter())
        self._transport.write(self._chunks[len(self._moments) - 1])
        if len(self._moments) < len(self._chunks):
            self._due += self._gap_s
            asyncio.get_running_loop().call_at(self._due, self._write)
        else:
            count = {"prompt_tokens": 1, "completion_tokens": len(self._chunks), "total_tokens": 1 + len(self._chunks)}
            last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": count}
            self._transport.write(framed(last, "[DONE]") + b"0\r\n\r\n")


def serve(pipe: Connection[Any, Any], cpu: int, streams: int, tokens: int, gap_s: float) -> None:
    """The stub's process: says its port, and once it hears anything, when it wrote what and how busy it was."""
    os.sched_setaffinity(0, {cpu})
    chunks, written = [chunk_of(index) for index in range(tokens)], Moments()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Stub(chunks, gap_s, streams, written), "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        asked = asyncio.Event()
        loop.add_reader(pipe.fileno(), asked.set)
        await asked.wait()
        loop.remove_reader(pipe.fileno())

    asyncio.run(run())
    pipe.send(written)


def with_swiftsure(url: str, streams: int, tokens: int) -> tuple[Moments, dict[str, Any]]:
    from swiftsure.bench.client import measure
    from swiftsure.bench.exchange import Exchange, Prompt, Request, Trial
    from swiftsure.bench.target import Target

    got: list[Exchange] = []
    prompts = [Prompt(name=str(number), kind="own", text=str(number), max_tokens=tokens) for number in range(streams)]
    requests = [Request(prompt=prompt, trial=Trial(round=1, row="warm", users=streams, prompt=prompt.name, repeat=0)) for prompt in prompts]
    facts = measure(Target(url=url, model="stub-model"), requests, users=streams, processes=1, on_exchange=got.append)
    failed = [exchange.error_words for exchange in got if exchange.error is not None or exchange.output_tokens != tokens]
    assert not failed, failed[:3]
    told = {name: getattr(facts, name) for name in ("lag_p50_s", "lag_p99_s", "lag_max_s", "cpu_share", "mean_in_flight", "saturated")}
    return {int(exchange.trial.prompt): [arrival.at_s for arrival in exchange.arrivals] for exchange in got}, told


def with_httpx(url: str, streams: int, tokens: int) -> tuple[Moments, dict[str, Any]]:
    """Each stream has a pool of its own, whose backend holds the moment of the stream's last read. Nothing is read into the events."""
    import httpcore
    import httpx

    class Stamped(httpcore.AsyncNetworkStream):
        def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
            self._inner = inner
            self.write, self.aclose, self.get_extra_info = inner.write, inner.aclose, inner.get_extra_info
            self.moment = 0.0

        async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            data = await self._inner.read(max_bytes, timeout)
            self.moment = perf_counter()
            return data

    class Backend(httpcore.AsyncNetworkBackend):
        async def connect_tcp(self, *args: Any, **fields: Any) -> httpcore.AsyncNetworkStream:
            self.stream = Stamped(await httpcore.AnyIOBackend().connect_tcp(*args, **fields))
            return self.stream

    async def one(number: int) -> list[float]:
        backend, transport = Backend(), httpx.AsyncHTTPTransport()
        transport._pool = httpcore.AsyncConnectionPool(network_backend=backend)
        body = {"model": "stub-model", "messages": [{"role": "user", "content": str(number)}], "stream": True}
        moments: list[float] = []
        async with (
            httpx.AsyncClient(transport=transport, timeout=60) as client,
            client.stream("POST", f"{url}/chat/completions", json=body) as got,
        ):
            async for piece in got.aiter_raw():
                moments += [backend.stream.moment] * piece.count(b'"content"')
        assert len(moments) == tokens
        return moments

    async def run() -> Moments:
        return dict(enumerate(await asyncio.gather(*map(one, range(streams)))))

    return asyncio.run(run()), {}


CLIENTS: dict[str, Callable[[str, int, int], tuple[Moments, dict[str, Any]]]] = {"swiftsure": with_swiftsure, "httpx": with_httpx}


def receive(pipe: Connection[Any, Any], name: str, cpu: int, url: str, streams: int, tokens: int) -> None:
    """A client's process."""
    os.sched_setaffinity(0, {cpu})
    began, before = perf_counter(), os.times()
    moments, told = CLIENTS[name](url, streams, tokens)
    after = os.times()
    pipe.send((moments, {**told, "wall_s": perf_counter() - began, "cpu_s": sum(after[:4]) - sum(before[:4])}))


def compare(seen: Moments, written: Moments) -> dict[str, float]:
    """Seconds: how much longer or shorter gaps are than they were, and streams as a whole."""
    biases, spans, medians = [], [], []
    for number, moments in written.items():
        got = seen[number]
        gaps = [(b - a, d - c) for a, b, c, d in zip(got, got[1:], moments, moments[1:], strict=False)]
        biases += [abs(client - stub) for client, stub in gaps]
        spans.append(abs((got[-1] - got[0]) - (moments[-1] - moments[0])))
        medians.append(abs(statistics.median(client for client, _ in gaps) - statistics.median(stub for _, stub in gaps)))
    client, stub = _itl(seen), _itl(written)
    return {
        **{f"itl_bias_{name}_s": client[name] - stub[name] for name in stub},
        **{f"gap_bias_p{share:g}_s": percentile(biases, share) for share in (50, 90, 99, 99.9, 100)},
        "share_of_gaps_within_2_ms": sum(bias <= 0.002 for bias in biases) / len(biases),
        "worst_median_itl_bias_s": max(medians),
        "worst_stream_span_bias_s": max(spans),
        **{f"itl_{name}_s": value for name, value in client.items()},
        **{f"itl_{name}_written_s": value for name, value in stub.items()},
        "events": len(biases) + len(written),
    }


def _itl(moments: Moments) -> dict[str, float]:
    gaps = [b - a for stream in moments.values() for a, b in pairwise(stream)]
    return {"mean": statistics.fmean(gaps), **{f"p{share}": percentile(gaps, share) for share in (50, 90, 99)}}


def pauses(cpu: int, seconds: float) -> dict[str, float]:
    """How often this machine stops a process that does nothing but read the clock: no client can stamp better than that."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    found, now = [], perf_counter()
    end = now + seconds
    while now < end:
        before, now = now, perf_counter()
        if now - before > 0.0002:
            found.append(now - before)
    os.sched_setaffinity(0, allowed)
    return {"seconds": seconds, "pauses_over_2_ms": sum(pause > 0.002 for pause in found), "longest_s": max(found, default=0.0),
            "share_of_time_in_pauses": sum(found) / seconds}  # fmt: skip


def one_case(name: str, streams: int, *, seconds: float, rate: float, cpus: tuple[int, int]) -> dict[str, Any]:
    spawn = multiprocessing.get_context("spawn")
    tokens = round(seconds * rate)
    ours, theirs = spawn.Pipe()
    stub = spawn.Process(target=serve, args=(theirs, cpus[0], streams, tokens, 1 / rate))
    stub.start()
    url = f"http://127.0.0.1:{ours.recv()}/v1"
    got, to_us = spawn.Pipe()
    client = spawn.Process(target=receive, args=(to_us, name, cpus[1], url, streams, tokens))
    client.start()
    moments, told = got.recv()
    client.join()
    ours.send("over")
    written = ours.recv()
    stub.join()
    case = {"client": name, "streams": streams, "tokens_per_s": rate, "seconds": seconds, **told, **compare(moments, written)}
    print(words_of(case), flush=True)
    return case


def words_of(case: dict[str, Any]) -> str:
    off = ", ".join(f"{key[9:-2]} {1e3 * value:.2f}" for key, value in case.items() if key.startswith("gap_bias"))
    itl = ", ".join(
        f"{name} {1e3 * case[f'itl_{name}_s']:.2f} of {1e3 * case[f'itl_{name}_written_s']:.2f} ({1e3 * case[f'itl_bias_{name}_s']:+.2f})"
        for name in ("mean", "p50", "p90", "p99")
    )
    shares = f"{case['share_of_gaps_within_2_ms']:.3%} within 2 ms; processor {case['cpu_s'] / case['wall_s']:.0%}"
    return f"{case['client']}, {case['streams']} streams: ITL ms, of what was written (bias): {itl}; single gaps off by ms {off}; {shares}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="CLIENT:STREAMS")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=100.0, help="tokens a second of each stream")
    parser.add_argument("--before-others", action="store_true", help="run stub and clients before other processes")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.before_others:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # its children inherit it
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        parser.error(f"the stub and the client need a processor each, this process may use {len(cpus)}")
    still = pauses(cpus[1], asked.seconds)
    print(f"a process that only reads the clock was stopped {still['pauses_over_2_ms']} times for over 2 ms in {asked.seconds:g} s")
    cases = []
    for text in asked.cases:
        name, _, streams = text.partition(":")
        cases.append(one_case(name, int(streams), seconds=asked.seconds, rate=asked.rate, cpus=(cpus[0], cpus[1])))
    if asked.json is not None:
        from swiftsure.records.machine import library_versions, read_machine
        from swiftsure.records.run_record import write_json

        libraries = library_versions(("httpx", "httpcore", "anyio"))
        facts = {
            "before_others": asked.before_others,
            "machine": read_machine().to_dict(),
            "libraries": libraries,
            "machine_at_rest": still,
        }
        write_json(asked.json, {"schema": "swiftsure.bench_client/1", **facts, "cases": cases})


if __name__ == "__main__":
    main()
