"""Options that the commands of ``swiftsure bench`` share, and the target that they name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args
from urllib.parse import urlsplit

import typer

from swiftsure.cli import options
from swiftsure.cli.console import note
from swiftsure.cli.framework import option
from swiftsure.errors import UsageError, quotable

if TYPE_CHECKING:
    from swiftsure.bench.exchange import Prompt
    from swiftsure.bench.protocol.endpoint import Found
    from swiftsure.bench.target import Interface, Target

ENDPOINT = "Endpoint"
PROMPTS = "Prompts"
FIGURES = "Figures"
_QUICK_PROMPTS = 3

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        show_default=False,
        help="The address of an endpoint, http://HOST/v1, or a model as swiftsure run takes it, which the built-in engine then runs.",
    ),
]
ModelName = Annotated[
    str | None, option("--model", "-m", metavar="NAME", section=ENDPOINT, help="The model's name there. Default: the only one.")
]
InterfaceName = Annotated[
    str,
    option(
        "--interface",
        metavar="NAME",
        section=ENDPOINT,
        help="chat, completions or anthropic. Default: auto, by the address and the first answer.",
    ),
]
KeyVariable = Annotated[
    str | None,
    option(
        "--api-key-env",
        metavar="NAME",
        section=ENDPOINT,
        help="The environment variable that holds the key. Default: OPENAI_API_KEY or ANTHROPIC_API_KEY, where one is set. "
        "Keys are never written to a file.",
    ),
]
Headers = Annotated[
    list[str] | None,
    option("--header", metavar="'NAME: VALUE'", section=ENDPOINT, help="A further header; repeatable. Values stay unwritten."),
]
TokenizerName = Annotated[
    str | None,
    option("--tokenizer", metavar="MODEL", section=ENDPOINT, help="Count tokens by this model's tokenizer where the endpoint does not."),
]
Timeout = Annotated[float, option("--timeout", metavar="S", section=ENDPOINT, help="Longest time of a whole answer. Default: 600.")]
Window = Annotated[
    int | None,
    option("--window", metavar="TOKENS", section=ENDPOINT, help="The model's longest sequence, where the endpoint does not tell."),
]
Processes = Annotated[
    int | None, option("--processes", metavar="N", section=ENDPOINT, help="Processes that send. Default: one for each 200 users.")
]
MaxTokens = Annotated[
    int | None, option("--max-tokens", metavar="N", section=PROMPTS, help="Longest answer to every prompt. Default: as each prompt says.")
]
Temperature = Annotated[
    float | None, option("--temperature", metavar="T", section=PROMPTS, help="Sent when given. Default: the endpoint's.")
]
Extra = Annotated[
    str | None,
    option("--extra", metavar="JSON", section=PROMPTS, help="Further fields of every request, as '{\"ignore_eos\": true}'."),
]
PromptsFile = Annotated[
    Path | None,
    option(
        "--prompts",
        metavar="FILE",
        section=PROMPTS,
        help="Prompts of your own: .txt with --- between prompts, .jsonl, ShareGPT .json, OpenAI request logs. Default: the built-in ones.",
    ),
]

Into = Annotated[
    Path | None,
    option(
        "--into",
        metavar="DIR",
        section=options.OUTPUT,
        help="The folder for what is measured: a new one (default), or one that was cut off.",
    ),
]
Limit = Annotated[int, option("--limit", metavar="N", section=PROMPTS, help="Take the first N prompts of the file. Default: 20.")]


def tell_how_to_go_on(folder: Path, flag: str) -> None:
    """Where something was measured; a first request that was not answered leaves nothing to go on with."""
    from swiftsure.bench.protocol.store import HEAD

    if (folder / HEAD).exists():
        note(f"what was measured is in {folder}; the same command with {flag} {folder} goes on")


def new_folder() -> Path:
    """Where what is measured goes when nobody says."""
    return Path(f"bench-{datetime.now():%Y%m%d-%H%M%S}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """What is measured, and how it is reached."""

    model: ModelName = None
    interface: InterfaceName = "auto"
    api_key_env: KeyVariable = None
    header: Headers = None
    timeout: Timeout = 600.0
    window: Window = None
    tokenizer: TokenizerName = None
    mode: options.ModeOption = None
    offline: options.OfflineOption = False

    def target(self, address: str) -> Target:
        """The target as it was given; nothing is looked up. An interface that is still to be found reads ``chat``.

        Raises UsageError for values that do not fit together.
        """
        from swiftsure.bench.protocol.endpoint import address_of, likely_interfaces
        from swiftsure.bench.target import Target

        if not 1 <= self.timeout <= 86_400:
            raise UsageError(f"--timeout must lie in 1..86400 seconds, got {self.timeout:g}")
        if "://" not in address:
            if self.interface not in ("auto", "engine") or self.api_key_env or self.header or self.model is not None:
                raise UsageError(
                    f"--interface, --model, --api-key-env and --header are for endpoints; {address!r} names a model of the built-in engine"
                )
            return Target(url=address, interface="engine", mode=self.mode, time_limit_s=self.timeout, tokenizer=self.tokenizer)
        if self.mode is not None:
            raise UsageError("--mode is for the built-in engine; an endpoint has the mode it was started in")
        place = address_of(address)
        chosen = interface_of(self.interface, place.named) or likely_interfaces(place.base)[0]
        return Target(
            url=place.base,
            interface=chosen,
            model=self.model,
            api_key=_key(place.base, chosen, self.api_key_env),
            headers=_headers(self.header),
            time_limit_s=self.timeout,
            tokenizer=self.tokenizer,
        )

    def interfaces(self, address: str) -> tuple[Interface, ...]:
        """In the order in which the first request tries them."""
        from swiftsure.bench.protocol.endpoint import address_of, likely_interfaces

        if "://" not in address:
            return ("engine",)
        place = address_of(address)
        chosen = interface_of(self.interface, place.named)
        return likely_interfaces(place.base) if chosen is None else (chosen,)

    def find(self, target: Target) -> Found:
        """Looks up what the target says of itself; ``--window`` overrules it."""
        from swiftsure.bench.protocol.endpoint import Found, look_up

        window = self.window
        if window is not None and not 64 <= window <= 100_000_000:
            raise UsageError(f"--window must lie in 64..100000000 tokens, got {window}")
        if target.interface == "engine":
            found = Found(target=target, window=_engine_window(target.url, offline=self.offline), window_from="the model's file")
        else:
            found = look_up(target)
        return found if window is None else replace(found, window=window, window_from="--window")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """Fields added to every request."""

    temperature: Temperature = None
    extra: Extra = None

    @property
    def fields(self) -> dict[str, Any]:
        """Raises UsageError for what is no JSON object, and for fields that the bench sets itself."""
        fields: dict[str, Any] = {}
        if self.extra is not None:
            try:
                parsed = json.loads(self.extra)
            except (ValueError, RecursionError):
                parsed = None
            if not isinstance(parsed, dict):
                raise UsageError(f"--extra must be a JSON object, as in '{{\"ignore_eos\": true}}', got {self.extra!r:.200}")
            fields |= parsed
            ours = sorted({"model", "messages", "prompt", "stream", "stream_options", "n", "max_tokens"} & fields.keys())
            if ours:
                raise UsageError(f"--extra may not hold {', '.join(ours)}: the bench sets that itself")
        if self.temperature is not None:
            if not 0 <= self.temperature <= 10:
                raise UsageError(f"--temperature must lie in 0..10, got {self.temperature:g}")
            fields["temperature"] = self.temperature
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """Which prompts, and how long their answers may be."""

    prompts: PromptsFile = None
    limit: Limit = 20
    max_tokens: MaxTokens = None

    def chosen(self, *, quick: bool = False) -> tuple[tuple[Prompt, ...], str]:
        """The prompts, and where they are from."""
        from swiftsure.bench.prompts.builtin import builtin_prompts, quick_prompts
        from swiftsure.bench.prompts.read import read_prompts

        file = self.prompts
        if file is None:
            return (quick_prompts(), "built in, quick") if quick else (builtin_prompts(), "built in")
        found = read_prompts(file, limit=min(self.limit, _QUICK_PROMPTS) if quick else self.limit)
        if found.left_out:
            note(f"{file}: {found.left_out} more prompts are left out; --limit takes more than {len(found.prompts)}")
        if found.not_sent:
            note(f"{file}: not sent, since they are no fields of a request: {quotable(', '.join(found.not_sent))}; sampling may hold them")
        return found.prompts, file.name


def interface_of(name: str, named: Interface | None) -> Interface | None:
    """None: it is still to be found. Raises UsageError for an unknown one, and for another than the address names."""
    from swiftsure.bench.target import Interface

    known = [interface for interface in get_args(Interface) if interface != "engine"]
    if name == "auto":
        return named
    if name not in known:
        raise UsageError(f"--interface must be auto, {', '.join(known[:-1])} or {known[-1]}, got {name!r}")
    if named is not None and name != named:
        raise UsageError(f"the address ends as that of {named} does, but --interface says {name}")
    return cast("Interface", name)


def _engine_window(name: str, *, offline: bool) -> int:
    from swiftsure.models.catalogue import resolve
    from swiftsure.models.model import open_model

    with open_model(resolve(name, offline=offline)) as model:
        return int(model.config.context_length)


def _key(base: str, interface: Interface, variable: str | None) -> str | None:
    """A key that was not asked for by name goes to TLS or to this machine only."""
    name = variable or ("ANTHROPIC_API_KEY" if interface == "anthropic" else "OPENAI_API_KEY")
    value = os.environ.get(name)
    if not value:
        if variable is not None:
            raise UsageError(f"--api-key-env names {variable}, which is not set")
        return None
    if not value.isascii() or not value.isprintable():
        raise UsageError(f"the key in {name} must be printable ASCII; a line end may have come with it")
    parts = urlsplit(base)
    near = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if variable is None and parts.scheme != "https" and not near:
        note(f"{name} is not sent: {parts.hostname} is asked without TLS; --api-key-env {name} sends it all the same")
        return None
    return value


def _headers(values: list[str] | None) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for value in values or ():
        name, colon, content = value.partition(":")
        if not colon or not name.strip() or not name.isascii() or not value.isprintable():
            raise UsageError("--header takes 'NAME: VALUE' in printable characters")
        if name.strip().lower() in (known.lower() for known in headers):
            raise UsageError(f"--header names {name.strip()} more than once")
        headers[name.strip()] = content.strip()
    return headers
