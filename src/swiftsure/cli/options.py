"""Options that several commands share. Values are checked where they are used, by the engine, which states rule and value."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from swiftsure.cli.framework import option
from swiftsure.errors import UsageError

DEFAULT_MODEL = "smollm2-135m-instruct"

MODEL = "Model and mode"
MACHINE = "Machine and memory"
OUTPUT = "Output"

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        help="A name of the catalogue, a .gguf file, a folder with config.json and .safetensors files, or hf:ORG/NAME[@REVISION][/FILE]. "
        f"Default: {DEFAULT_MODEL}.",
    ),
]
ModelOption = Annotated[str | None, option("--model", "-m", metavar="MODEL", section=MODEL, help="The same as the argument.")]
ModeOption = Annotated[
    str | None,
    option(
        "--mode",
        metavar="MODE",
        section=MODEL,
        help="default (the model as released), exact (the bits of default, sooner), fast (within tolerances) or big. "
        "Default: SWIFTSURE_MODE, else default.",
    ),
]
WithoutOption = Annotated[
    list[str] | None,
    option(
        "--without",
        metavar="LEVER",
        section=MODEL,
        help="Switch a lever of the mode off; a,b or repeated. Levers of exact: speculation, prefix_cache, batching, chunked_prefill; "
        "of fast also row_integers, int8_kv.",
    ),
]
DraftOption = Annotated[
    str | None,
    option(
        "--draft",
        metavar="MODEL",
        section=MODEL,
        help="Speculate with a smaller model of the same vocabulary, or with a draft head made for this model; none: with neither. "
        "Default: none.",
    ),
]
OfflineOption = Annotated[bool, option("--offline", section=MODEL, help="Use what is cached; never reach for the network.")]
AcceptLicenceOption = Annotated[
    bool,
    option(
        "--accept-licence",
        section=MODEL,
        help="Accept the terms of a model that asks for that before its first download. Default: SWIFTSURE_ACCEPT_LICENCE, else asked.",
    ),
]


def _threads(value: str) -> int | None:
    """A number, or None for auto."""
    if value == "auto":
        return None
    try:
        return int(value)
    except ValueError:
        raise typer.BadParameter(f"must be a number or auto, got {value!r}") from None


ThreadsOption = Annotated[
    int | None,
    option(
        "--threads",
        metavar="N",
        section=MACHINE,
        parser=_threads,
        help="Compute threads. Default: auto, by cores, affinity, quota and busy neighbours; check explains the choice.",
    ),
]
ContextOption = Annotated[
    int | None,
    option("--context", metavar="TOKENS", section=MACHINE, help="Longest sequence, prompt and answer together. Default: as much as fits."),
]
KvMemoryOption = Annotated[
    str | None,
    option(
        "--kv-memory", metavar="SIZE", section=MACHINE, help="Most memory for keys and values: 512MB, 2GiB or bytes. Default: what fits."
    ),
]
IsaOption = Annotated[
    str | None,
    option(
        "--isa",
        metavar="NAME",
        section=MACHINE,
        help="portable, avx2, avx512, avx512_vnni or amx; the bits are the same with each. Default: SWIFTSURE_ISA, else the best.",
    ),
]
NoCacheOption = Annotated[
    bool, option("--no-cache", section=MACHINE, help="Pack the weights anew: read no packed weights from the cache folder and keep none.")
]
JsonFlag = Annotated[bool, option("--json", section=OUTPUT, help="Print JSON instead of text.")]


def chosen_model(argument: str | None, named: str | None) -> str:
    """The model named by the argument or by ``--model``; the embedded default when neither is given."""
    if argument is not None and named is not None and argument != named:
        raise UsageError(f"one model at a time: the argument says {argument!r}, --model says {named!r}")
    return next((name for name in (argument, named) if name is not None), DEFAULT_MODEL)


def split_names(values: list[str] | None) -> tuple[str, ...]:
    """``["a,b", "c"]`` -> ``("a", "b", "c")``."""
    return tuple(name.strip() for value in values or () for name in value.split(",") if name.strip())


def numbers(name: str, text: str, *, least: int) -> list[int]:
    """``"1,4"`` -> ``[1, 4]``. Raises UsageError for what is no such list or below ``least``; ``name`` is the option's."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{name} takes whole numbers such as 1,4,8, got {text!r}") from None
    if min(found) < least:
        raise UsageError(f"{name} must be at least {least}, got {min(found)}")
    return found


def template_variables_from(values: list[str] | None) -> dict[str, Any]:
    """``["enable_thinking=false"]`` -> ``{"enable_thinking": False}``."""
    import json

    variables: dict[str, Any] = {}
    for value in values or ():
        name, separator, text = value.partition("=")
        try:
            if not separator or not name.isidentifier():
                raise ValueError
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            raise UsageError(
                f"--template-variable takes NAME=JSON such as enable_thinking=false or 'date_string=\"1 May 2025\"', got {value!r:.200}"
            ) from None
        if name in variables:
            raise UsageError(f"--template-variable names {name} more than once")
        variables[name] = parsed
    return variables


def logit_bias_from(values: list[str] | None) -> dict[int, float]:
    """``["42=-3.5"]`` -> ``{42: -3.5}``."""
    biases: dict[int, float] = {}
    for value in values or ():
        token, separator, bias = value.partition("=")
        try:
            if not separator:
                raise ValueError
            token_id, number = int(token), float(bias)
        except ValueError:
            raise UsageError(f"--logit-bias takes TOKEN_ID=BIAS such as 42=-3.5, got {value!r}") from None
        if token_id in biases:
            raise UsageError(f"--logit-bias names token {token_id} more than once")
        biases[token_id] = number
    return biases


def check_on_fail(on_fail: str | None, *, allow_fallback: bool) -> None:
    """Raises UsageError for values of ``--on-fail`` and ``--allow-fallback`` that say nothing."""
    if on_fail not in (None, "default"):
        raise UsageError(f"--on-fail takes default, got {on_fail!r}")
    if allow_fallback and on_fail is None:
        raise UsageError("--allow-fallback needs --on-fail default")
