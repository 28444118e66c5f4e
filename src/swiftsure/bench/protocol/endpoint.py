"""What an endpoint says of itself before anything is measured: its base address, its models, and how long a prompt may be.

Nothing here generates a token. Answers are read up to a bound; what is not told stays None.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from swiftsure.bench.target import Interface, Target
from swiftsure.errors import EndpointError, UsageError, quotable

MAX_ANSWER_BYTES = 4 * 1024 * 1024
_ANSWER_S = 15.0
_PATHS: dict[str, Interface] = {"/chat/completions": "chat", "/completions": "completions", "/messages": "anthropic"}
_WINDOW_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length", "max_input_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A base address, and the interface that the given one named by its ending (``/v1/messages``)."""

    base: str
    named: Interface | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """``target`` with the model that was found. ``window``: tokens of prompt and answer together, and ``window_from`` who says so."""

    target: Target
    window: int | None
    window_from: str | None


def address_of(url: str) -> Address:
    """Raises UsageError for what is not http(s), and for an address with a password or a query: both would end up in files."""
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError as error:
        raise UsageError(f"the address cannot be read: {error}, got {url!r:.200}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine:
        raise UsageError(f"an endpoint's address begins with http:// or https:// and a host, got {url!r:.200}")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            "an endpoint's address has no user, password, query or fragment; keys come from the environment (--api-key-env NAME)"
        )
    path = parts.path.rstrip("/")
    named = None
    for ending, interface in _PATHS.items():
        if path.endswith(ending):
            path, named = path.removesuffix(ending), interface
            break
    return Address(base=urlunsplit((parts.scheme, parts.netloc, path, "", "")), named=named)


def likely_interfaces(base: str) -> tuple[Interface, ...]:
    """In the order in which they are tried."""
    host = urlsplit(base).hostname or ""
    return ("anthropic",) if host == "anthropic.com" or host.endswith(".anthropic.com") else ("chat", "completions", "anthropic")


def look_up(target: Target) -> Found:
    """The base with ``/v1`` where it was left out, the only model where none was named, and the window where the endpoint tells it.

    Raises EndpointError where nothing answers or the key is refused, UsageError where there are several models to choose from.
    """
    with httpx.Client(timeout=_ANSWER_S, headers=_headers(target)) as client:
        base, models = _models(client, target.url)
        name = target.model if target.model is not None else _only_model(models)
        target = replace(target, url=base, model=name)
        window, source = _window(client, target, models)
    return Found(target=target, window=window, window_from=source)


def _headers(target: Target) -> dict[str, str]:
    headers = dict(target.headers)
    if target.api_key is not None:
        key = {"x-api-key": target.api_key} if target.interface == "anthropic" else {"authorization": f"Bearer {target.api_key}"}
        headers = key | headers
    if target.interface == "anthropic":
        headers = {"anthropic-version": "2023-06-01"} | headers
    return headers


def _models(client: httpx.Client, base: str) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """The base that has models, and their entries; an endpoint without a list of models is one with an unknown one."""
    bases = [base] if urlsplit(base).path else [f"{base}/v1", base]
    for candidate in bases:
        status, answer = _ask(client, "GET", f"{candidate}/models")
        if status in (401, 403):
            raise EndpointError(
                f"{candidate} refuses the key ({status}); it is read from the environment variable that --api-key-env names"
            )
        if status == 200 and isinstance(answer, Mapping):
            entries = answer.get("data") or answer.get("models") or []
            if isinstance(entries, Sequence):
                return candidate, [entry for entry in entries if isinstance(entry, Mapping)]
    return bases[0], []


def _only_model(models: Sequence[Mapping[str, Any]]) -> str | None:
    names = [str(entry["id"]) for entry in models if entry.get("id")]
    if len(names) > 1:
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        raise UsageError(f"the endpoint has several models; name one with --model: {quotable(shown)}")
    return names[0] if names else None


def _window(client: httpx.Client, target: Target, models: Sequence[Mapping[str, Any]]) -> tuple[int | None, str | None]:
    for entry in models:
        if target.model in (entry.get("id"), None):
            for key, value in _window_values(entry):
                return value, f"/models: {key}"
    root = target.url.removesuffix("/v1")
    _, props = _ask(client, "GET", f"{root}/props")  # llama.cpp's server: the context of one slot
    if (
        isinstance(props, Mapping)
        and isinstance(settings := props.get("default_generation_settings"), Mapping)
        and _is_size(settings.get("n_ctx"))
    ):
        return settings["n_ctx"], "/props: n_ctx"
    named = {} if target.model is None else {"model": target.model}
    status, tokens = _ask(client, "POST", f"{root}/tokenize", {**named, "prompt": "a"})  # vLLM's and Swiftsure's servers
    if status == 200 and isinstance(tokens, Mapping) and _is_size(tokens.get("max_model_len")):
        return tokens["max_model_len"], "/tokenize: max_model_len"
    return None, None


def _window_values(entry: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for key in _WINDOW_KEYS:
        if _is_size(entry.get(key)):
            yield key, entry[key]


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _ask(client: httpx.Client, method: str, url: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
    """Status and JSON; None for an answer that is no JSON or too long. Raises EndpointError where no connection comes about."""
    try:
        with client.stream(method, url, json=body) as response:
            data = b""
            for part in response.iter_bytes():
                data += part
                if len(data) > MAX_ANSWER_BYTES:
                    return response.status_code, None
            answer = None
            with suppress(ValueError, RecursionError):
                answer = json.loads(data)
            return response.status_code, answer
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise EndpointError(f"{url} cannot be reached: {error or type(error).__name__}") from None
    except httpx.HTTPError:
        return 0, None
