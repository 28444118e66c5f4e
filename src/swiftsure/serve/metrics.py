"""``/metrics``: what was served, to whom it mattered how long, and what is active, with its evidence. Names in vLLM's style."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from swiftsure.serve.audit.tolerance import Distance
from swiftsure.serve.engine_process.client import Answer
from swiftsure.serve.jobs import TIERS
from swiftsure.serve.origin import Origin
from swiftsure.serve.request_log import outcome_of
from swiftsure.serve.service import ServedModel, Service

_FIRST_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_BETWEEN_S = (0.0, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)
_WHOLE_S = (0.1, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_TIER = ("model", "tier")

# What an engine says of itself -> name, help, label of the tier; what is not here counts from the load on.
_GAUGES: Mapping[str, tuple[str, str, str | None]] = {
    "waiting_standard": ("num_requests_waiting", "Requests in the engine's queue", "standard"),
    "waiting_priority": ("num_requests_waiting", "Requests in the engine's queue", "priority"),
    "running_standard": ("num_requests_running", "Requests that have key-value blocks", "standard"),
    "running_priority": ("num_requests_running", "Requests that have key-value blocks", "priority"),
    "last_pass_rows_standard": ("last_pass_rows", "Rows of the last pass", "standard"),
    "last_pass_rows_priority": ("last_pass_rows", "Rows of the last pass", "priority"),
    "kv_blocks_free": ("kv_blocks_free", "Key-value blocks that nobody holds, cached ones included", None),
    "kv_blocks_total": ("kv_blocks", "Key-value blocks", None),
}

_AUDITS: Mapping[str, str] = {
    "audited_total": "Answers computed once more in mode default",
    "audit_mismatch_total": "Of them, those whose digest differed, or that were beyond the tolerance of mode fast",
    "audit_failed_total": "Audits that came to no result",
    "audit_dropped_total": "Answers that were to be audited and found no room to wait",
    "audit_waiting": "Answers that wait to be audited",
}
_DISTANCES = {
    "rows": "Rows of logits of mode fast that audits compared with default",
    "kl_mean": "Mean of their KL(default || fast) in nats, a lower bound",
    "top1_agreement": "Share of them with the likeliest token of default",
}


class Metrics:
    """Metrics of one service, in a registry of their own."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.registry = CollectorRegistry()
        self._http = self._counter("http_requests", "HTTP requests answered", ("api", "status"))
        self._requests = self._counter("requests", "Answers that ended, by how they did", ("model", "api", "tier", "outcome"))
        self._prompt = self._counter("prompt_tokens", "Tokens of prompts of answers that ended", _TIER)
        self._cached = self._counter("prompt_tokens_cached", "Of these, read from the prefix cache", _TIER)
        self._output = self._counter("generation_tokens", "Tokens generated", _TIER)
        self._cost = self._counter("cost", "In the currency of the server's prices", _TIER)
        self._first = self._histogram("time_to_first_token_seconds", "From submission to the first token", _FIRST_S)
        self._between = self._histogram(
            "inter_token_latency_seconds", "From token to token; those that come together with another come after 0 s", _BETWEEN_S
        )
        self._queue = self._histogram("request_queue_time_seconds", "From submission to the first row in a pass", _FIRST_S)
        self._whole = self._histogram("e2e_request_latency_seconds", "From submission to the end", _WHOLE_S)
        self.registry.register(_State(service))
        service.listeners.append(self.answered)

    def answered(self, model: ServedModel, answer: Answer) -> None:
        tier = answer.job.tier
        labels = (model.name, tier)
        self._requests.labels(model.name, answer.origin.api, tier, outcome_of(answer)).inc()
        self._output.labels(*labels).inc(sum(tokens for _, tokens in answer.arrivals))
        if answer.ttft_s is not None:
            self._first.labels(*labels).observe(answer.ttft_s)
        between = self._between.labels(*labels)
        for gap in gaps(answer.arrivals):
            between.observe(gap)
        if (outcome := answer.outcome) is None:
            return
        self._prompt.labels(*labels).inc(outcome.prompt_tokens)
        self._cached.labels(*labels).inc(outcome.cached_tokens)
        prices = self._service.settings.prices
        self._cost.labels(*labels).inc(
            prices.cost(prompt_tokens=outcome.prompt_tokens, output_tokens=outcome.output_tokens, tier=outcome.tier)
        )
        self._queue.labels(*labels).observe(float(outcome.timing.get("queue_s") or 0.0))
        self._whole.labels(*labels).observe(answer.total_s or 0.0)

    def http_ended(self, origin: Origin) -> None:
        if not origin.socket:
            self._http.labels(origin.api, str(origin.status or 499)).inc()

    def router(self) -> APIRouter:
        routes = APIRouter(tags=["health"])

        @routes.get("/metrics", response_class=Response)
        async def metrics(request: Request) -> Response:
            """In Prometheus's text format, or OpenMetrics where it is asked for."""
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
            return Response(encode(self.registry), headers={"content-type": content_type})

        return routes

    def _counter(self, name: str, text: str, labels: Iterable[str]) -> Counter:
        return Counter(f"swiftsure_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"swiftsure_{name}", text, _TIER, buckets=buckets, registry=self.registry)


def gaps(arrivals: list[tuple[float, int]]) -> Iterator[float]:
    """Seconds before each token but the first. Their sum is the time from first to last, whatever came together."""
    for _, tokens in arrivals[:1]:
        yield from (0.0 for _ in range(tokens - 1))
    for (before, _), (now, tokens) in pairwise(arrivals):
        yield now - before
        yield from (0.0 for _ in range(tokens - 1))


class _State(Collector):
    """What is so at the moment of asking."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        return ()  # not collected before the models are there

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for model in self._service.models:
            for kind, name, text, labels, value in (*_lanes(model), *_engine(model), *_active(model)):
                full = f"swiftsure_{name}"
                family = families.get(full)
                if family is None:
                    made = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                    family = families[full] = made(full, text, labels=list(labels))
                family.add_metric(list(labels.values()), value)  # type: ignore[attr-defined]  # both kinds have it
        yield from families.values()
        if self._service.auditor is not None:
            yield from _distances(self._service.auditor.distances)
            for name, value in self._service.auditor.counts.items():
                audits = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                yield audits(f"swiftsure_{name}", _AUDITS[name], value=value)


def _distances(distances: Mapping[str, Distance]) -> Iterator[Metric]:
    """By model, each in mode fast."""
    for name, text in _DISTANCES.items():
        family = GaugeMetricFamily(f"swiftsure_audit_fast_{name}", text, labels=["model"])
        for model, distance in distances.items():
            family.add_metric([model], getattr(distance, name))
        yield family


_Sample = tuple[str, str, str, dict[str, str], float]


def _lanes(model: ServedModel) -> Iterator[_Sample]:
    for tier in TIERS:
        lane, labels = model.lanes[tier], {"model": model.name, "tier": tier}
        yield "gauge", "lane_requests", "Requests under way in a tier, waiting included", labels, lane.requests
        yield "gauge", "lane_requests_limit", "Most requests that a tier takes", labels, lane.limits.requests
        yield "gauge", "lane_tokens", "Tokens that the requests of a tier may come to", labels, lane.tokens
        yield "gauge", "lane_tokens_limit", "Most tokens that a tier takes", labels, lane.limits.tokens
        yield "counter", "lane_refused", "Requests that a full tier refused", labels, lane.refused


def _engine(model: ServedModel) -> Iterator[_Sample]:
    labels = {"model": model.name}
    yield "gauge", "engine_ready", "1 while the engine takes requests", labels, float(model.engine.state == "ready")
    yield "counter", "engine_deaths", "Engine processes that ended by themselves", labels, model.engine.deaths
    for name, value in model.engine.snapshot.items():
        if name in _GAUGES:
            gauge, text, tier = _GAUGES[name]
            yield "gauge", gauge, text, labels if tier is None else {**labels, "tier": tier}, float(value)
        else:
            yield "counter", f"engine_{name}", f"{name.replace('_', ' ')}, since the engine was loaded", labels, float(value)


def _active(model: ServedModel) -> Iterator[_Sample]:
    """The mode as the engine reported it, and of each lever the counts that prove it."""
    facts = model.engine.facts
    if facts is None:
        return
    labels = {"model": model.name, "mode": facts.mode, "numerics": facts.numerics, "isa": facts.isa, "weights": facts.weights_sha256}
    active = float(model.engine.state == "ready")
    yield "gauge", "mode_active", "1 for the mode that runs, with what its bits depend on", labels, active
    levers: Mapping[str, Any] = model.engine.levers or facts.activation["levers"]
    for lever, counts in levers.items():
        mine = {"model": model.name, "lever": lever}
        yield (
            "gauge",
            "lever_active",
            "1 where a lever has worked, 0 where it is off or had no occasion",
            mine,
            float(counts["state"] == "on"),
        )
        for name, value in counts.items():
            if name != "state":
                yield "counter", f"lever_{name}", f"{name.replace('_', ' ')}, since the engine was loaded", mine, float(value)
