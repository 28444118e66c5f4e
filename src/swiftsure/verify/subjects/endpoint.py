"""An endpoint with chat completions as a subject: ``url:http://host/v1``."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from swiftsure.errors import UsageError
from swiftsure.server_events import EventParser
from swiftsure.verify.prometheus import parse_metric, samples
from swiftsure.verify.proving.workload import Prompt
from swiftsure.verify.subjects.activation import compiled_pattern
from swiftsure.verify.subjects.answer import Answer, AnswerError, error_words
from swiftsure.verify.subjects.base import Activation, Case, Trial
from swiftsure.verify.subjects.requests import Score, request_of

KIND = "url"
_CONNECT_S = 10.0
_LARGEST_ANSWER = 64 << 20
_NOT_STANDARD = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointProbe:
    """How an endpoint shows that what it was asked for is on. All that are given must hold. Raises UsageError.

    ``url`` is read once at the start: its text must match ``pattern``, and the samples of ``metric`` (Prometheus's text format, its name
    with or without labels) must add up to ``at_least``. ``header`` and ``field`` (a path as in ``usage.cached``) are looked for in every
    answer, and must match their pattern.
    """

    url: str | None = None
    pattern: str | None = None
    metric: str | None = None
    at_least: float | None = None
    header: str | None = None
    header_pattern: str = "."
    field: str | None = None
    field_pattern: str = "."

    def __post_init__(self) -> None:
        for pattern in (self.pattern, self.header_pattern, self.field_pattern):
            compiled_pattern(pattern)
        if self.metric is not None:
            parse_metric(self.metric)
        if (self.url is None) != (self.pattern is None and self.metric is None):
            raise UsageError("a probe's url needs a pattern or a metric, and these need a url")
        if self.at_least is not None and (self.metric is None or not math.isfinite(self.at_least)):
            raise UsageError(f"at_least is a finite limit of a metric, got {self.at_least} for metric {self.metric}")

    def read_page(self, text: str) -> Activation:
        """What the page at ``url`` says."""
        told = []
        if self.pattern is not None:
            found = compiled_pattern(self.pattern).search(text)
            if found is None:
                return Activation(state="not_active", reason=f"nothing at {self.url} matches {self.pattern!r}")
            told.append(found[0][:200])
        if self.metric is not None:
            values = samples(text, self.metric)
            if not values:
                return Activation(state="not_active", reason=f"there is no metric {self.metric} at {self.url}")
            try:
                value = sum(map(float, values))
            except ValueError:
                return Activation(state="not_active", reason=f"metric {self.metric} is no number: {values[0]!r}")
            limit = self.at_least if self.at_least is not None else math.ulp(0.0)
            if not value >= limit:
                rule = f"at least {self.at_least:g}" if self.at_least is not None else "above 0"
                return Activation(state="not_active", evidence=f"{self.metric} {value:g}", reason=f"{self.metric} must be {rule}")
            told.append(f"{self.metric} {value:g}")
        return Activation(state="active", evidence="; ".join(told))

    def read_answer(self, headers: httpx.Headers, chunk: Mapping[str, Any]) -> Activation | None:
        """What one answer says; None where nothing is looked for in answers."""
        looked: list[tuple[str, str | None, str]] = []
        if self.header is not None:
            looked.append((f"header {self.header}", headers.get(self.header), self.header_pattern))
        if self.field is not None:
            value: Any = chunk
            for name in self.field.split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            text = value if isinstance(value, str) or value is None else json.dumps(value)
            looked.append((f"field {self.field}", text, self.field_pattern))
        for name, value, pattern in looked:
            if value is None or not compiled_pattern(pattern).search(value):
                return Activation(state="not_active", evidence=f"{name}: {value}", reason=f"{name} must match {pattern!r}")
        return Activation(state="active", evidence="; ".join(f"{name}: {value}" for name, value, _ in looked)) if looked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlOptions:
    """``model``: the name that requests carry; None takes the only one that the endpoint lists. ``time_limit_s`` is of a whole answer.
    ``logprobs`` are asked for until the endpoint refuses them."""

    model: str | None = None
    time_limit_s: float | None = 600.0
    probe: EndpointProbe = field(default_factory=EndpointProbe)
    api_key: str | None = None
    logprobs: bool = False


class UrlSubject:
    """Sends each case once, streaming, and never again. Outputs: ``text``, ``finish_reason``, and what else the endpoint offers.

    Phases: ``ttft`` to the first piece of the answer, ``decode`` from there to the last; the end of the stream after that is not the
    answer's. Refused: statuses 400 to 499 and 503, with the endpoint's words.
    """

    def __init__(self, url: str, options: UrlOptions | None = None, *, spec: str | None = None) -> None:
        parts = httpx.URL(url) if _is_url(url) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.host:
            raise UsageError(f"an endpoint must be as in http://host:8000/v1, got {url!r}")
        self.spec = spec if spec is not None else f"{KIND}:{url}"
        self._url = url.rstrip("/")
        self._options = options or UrlOptions()
        self._model = self._options.model
        self._logprobs = self._options.logprobs
        self._told: Activation | None = None
        self._seen: dict[str, str] = {}  # what answers said of the server
        key = self._options.api_key
        limit_s = self._options.time_limit_s
        self._client = httpx.Client(
            headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})},
            timeout=httpx.Timeout(limit_s, connect=min(_CONNECT_S, limit_s or _CONNECT_S)),
        )

    def start(self) -> Activation:
        """Raises UsageError when nobody answers there, or when the model is not clear."""
        if self._model is None:
            self._model = self._only_model()
        probe = self._options.probe
        if probe.url is not None:
            try:
                page = self._client.get(probe.url)
            except httpx.HTTPError as error:
                raise UsageError(f"the probe {probe.url} cannot be read: {error}") from None
            if page.status_code != 200:
                raise UsageError(f"the probe {probe.url} answers with status {page.status_code}")
            self._told = probe.read_page(page.text)
            return self._told
        if probe.header is not None or probe.field is not None:
            return Activation(state="unknown", reason="each answer tells")
        return Activation(state="unknown", reason="no pattern, metric, header or field is named that would tell")

    def run(self, case: Case) -> Trial:
        try:
            request = request_of(case)
        except UsageError as error:
            return Trial(case=case, status="failed", reason=str(error))
        if isinstance(request, Score):
            return Trial(case=case, status="refused", reason="an endpoint gives no logits of a text")
        trial = self._ask(case, request)
        if self._logprobs and trial.status == "refused" and "logprob" in str(trial.reason).lower():
            self._logprobs = False  # asked for if offered; this is another request, not the same once more
            trial = self._ask(case, request)
        return trial

    def _ask(self, case: Case, request: Prompt) -> Trial:
        began = time.perf_counter()
        try:
            with self._client.stream("POST", f"{self._url}/chat/completions", json=self._body(request)) as response:
                if response.status_code != 200:
                    return self._turned_away(case, response)
                answer = self._read(response, began)
                return self._trial(case, response, answer)
        except (httpx.TimeoutException, TimeoutError):
            wall_s = time.perf_counter() - began
            limit_s = self._options.time_limit_s or _CONNECT_S
            return Trial(case=case, status="timed_out", wall_s=wall_s, reason=f"no whole answer within {limit_s:g} s")
        except AnswerError as error:
            return Trial(case=case, status="failed", reason=str(error))
        except (httpx.HTTPError, httpx.StreamError) as error:
            return Trial(case=case, status="failed", reason=f"{type(error).__name__}: {error}")

    def continue_text(self, prompt: str, *, max_tokens: int, stop: Sequence[str]) -> tuple[str, int | None]:
        """What greedily follows a plain text (``/completions``, no chat template), and how many tokens were read where the endpoint says.

        Raises AnswerError with the endpoint's words where it declines or does not answer.
        """
        body = {"model": self._model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0.0, "stop": list(stop) or None}
        try:
            response = self._client.post(f"{self._url}/completions", json=body)
        except httpx.HTTPError as error:
            raise AnswerError(f"{type(error).__name__}: {error}") from None
        if response.status_code != 200:
            raise AnswerError(f"status {response.status_code}: {_words(response.text)}")
        answer = _parsed(response.text)
        try:
            text = answer["choices"][0]["text"]
            size = (answer.get("usage") or {}).get("prompt_tokens")
        except (AttributeError, KeyError, IndexError, TypeError):
            raise AnswerError(f"not a completion: {response.text[:200]!r}") from None
        if not isinstance(text, str):
            raise AnswerError(f"not a completion: {response.text[:200]!r}")
        return text, size if isinstance(size, int) else None

    def pins(self) -> Mapping[str, Any]:
        return {"kind": KIND, "url": self._url, "model": self._model, "time_limit_s": self._options.time_limit_s, **self._seen}

    def close(self) -> None:
        self._client.close()

    def _only_model(self) -> str:
        try:
            response = self._client.get(f"{self._url}/models")
            names = [str(entry["id"]) for entry in response.json()["data"]] if response.status_code == 200 else None
        except httpx.HTTPError as error:
            raise UsageError(f"{self._url} cannot be reached: {error}") from None
        except (ValueError, KeyError, TypeError):
            names = None
        if names is None:
            raise UsageError(f"{self._url}/models answers with status {response.status_code} and no list; name the model with -m")
        if len(names) != 1:
            raise UsageError(f"{self._url} has the models {', '.join(names) or 'none'}; name one with -m")
        return names[0]

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        """Fields beyond the standard ones go along only where they say something."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(prompt.chat()),
            "stream": True,
            "max_tokens": prompt.max_tokens,
            "temperature": prompt.temperature,
            "top_p": prompt.top_p,
            "seed": prompt.seed,
        }
        body |= {name: getattr(prompt, name) for name, usual in _NOT_STANDARD.items() if getattr(prompt, name) != usual}
        return {**body, "logprobs": True} if self._logprobs else body

    def _read(self, response: httpx.Response, began: float) -> Answer:
        """The whole answer, with the times at which bytes were read. Raises AnswerError, TimeoutError."""
        answer, parser, ended, read = Answer(), EventParser(), False, 0
        streamed = "text/event-stream" in response.headers.get("Content-Type", "")
        whole = bytearray()
        for piece in response.iter_raw():
            now_s = time.perf_counter() - began
            read += len(piece)
            if read > _LARGEST_ANSWER:
                raise AnswerError(f"an answer must be at most {_LARGEST_ANSWER:,} bytes")
            if self._options.time_limit_s is not None and now_s > self._options.time_limit_s:
                raise TimeoutError
            if not streamed:
                whole += piece
                continue
            for event in parser.feed(piece):
                ended = ended or event.strip() == "[DONE]"
                if not ended:
                    answer.add(_parsed(event), now_s)
        if not streamed:
            answer.add(_parsed(whole.decode(errors="replace")), time.perf_counter() - began)
        if answer.finish_reason is None and not ended:
            raise AnswerError("the answer ended without a finish reason: it is not whole")
        return answer

    def _trial(self, case: Case, response: httpx.Response, answer: Answer) -> Trial:
        self._seen |= {name: value for name, value in (("server", response.headers.get("Server")),) if value}
        if answer.fingerprint:
            self._seen["system_fingerprint"] = str(answer.fingerprint)
        streamed = "text/event-stream" in response.headers.get("Content-Type", "")
        timed = streamed and answer.first_s is not None and answer.last_s is not None
        phases_s = {"ttft": answer.first_s or 0.0, "decode": (answer.last_s or 0.0) - (answer.first_s or 0.0)} if timed else {}
        notes = () if streamed else ("the endpoint did not stream: no time to the first token",)
        if timed and answer.first_s == answer.last_s:
            notes = ("the whole answer came at once: its phases are not known",)
            phases_s = {}
        return Trial(
            case=case,
            status="ran",
            outputs=answer.outputs(),
            wall_s=answer.last_s,
            phases_s=phases_s,
            activation=self._options.probe.read_answer(response.headers, answer.last_chunk) or self._told,
            notes=notes,
        )

    @staticmethod
    def _turned_away(case: Case, response: httpx.Response) -> Trial:
        text = b"".join(piece for piece, _ in zip(response.iter_raw(4096), range(16), strict=False)).decode(errors="replace")
        words = _words(text)
        refused = 400 <= response.status_code < 500 or response.status_code == 503
        return Trial(case=case, status="refused" if refused else "failed", reason=f"status {response.status_code}: {words}")


def _words(text: str) -> str:
    """What an answer other than 200 says."""
    try:
        return error_words(json.loads(text))
    except (ValueError, RecursionError):
        return text.strip()[:500] or "no words"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"what the endpoint sent is not JSON ({error}): {text[:200]!r}") from None


def _is_url(text: str) -> bool:
    try:
        httpx.URL(text)
    except httpx.InvalidURL:
        return False
    return True
