"""``swiftsure serve``: models behind HTTP, for clients that are there already."""

from __future__ import annotations

from typing import Annotated

from swiftsure.cli import options
from swiftsure.cli.console import note
from swiftsure.cli.framework import option
from swiftsure.errors import NotActiveError, UsageError

_SERVER = "Server"
_TIERS = "Tiers and prices"

Host = Annotated[str, option("--host", metavar="ADDRESS", section=_SERVER, help="Address to listen on. Default: 127.0.0.1.")]
Port = Annotated[int, option("--port", metavar="N", section=_SERVER, help="Port; 0 takes a free one. Default: 8000.")]
Models = Annotated[
    list[str] | None,
    option("--model", "-m", metavar="[NAME=]MODEL", section=options.MODEL, help="A model to serve, under NAME. May be repeated."),
]
LogJson = Annotated[bool, option("--log-json", section=_SERVER, help="Write a line of JSON for each request.")]
LogPrompts = Annotated[bool, option("--log-prompts", section=_SERVER, help="Let logs hold what users wrote.")]


def serve(
    model: options.ModelArgument = None,
    models: Models = None,
    mode: options.ModeOption = None,
    without: options.WithoutOption = None,
    draft: options.DraftOption = None,
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    threads: options.ThreadsOption = None,
    context: options.ContextOption = None,
    kv_memory: options.KvMemoryOption = None,
    isa: options.IsaOption = None,
    no_cache: options.NoCacheOption = False,
    log_json: LogJson = False,
    log_prompts: LogPrompts = False,
) -> int:
    """Serve models to clients of the OpenAI and Anthropic interfaces.

    ACTIVE lines say what each engine runs; LISTENING says where. SIGTERM lets running answers end.
    """
    from swiftsure.cli.licence import settle_licences
    from swiftsure.engine.activation import not_active_line, resolve_mode
    from swiftsure.engine.load_options import LoadOptions
    from swiftsure.serve.run import run
    from swiftsure.serve.settings import ModelSettings, ServeSettings

    mode = resolve_mode(mode)
    load = LoadOptions(
        threads=threads,
        context=context,
        kv_memory=kv_memory,
        isa=isa,
        without=options.split_names(without),
        draft=draft,
        offline=offline,
        cache=not no_cache,
    ).keywords()
    named = [_named(text) for text in [*([model] if model else []), *(models or [])]] or [_named(options.DEFAULT_MODEL)]
    settings = ServeSettings(
        models=tuple(ModelSettings(name=name, source=source, mode=mode, load=load) for name, source in named),
        host=host,
        port=port,
        log_json=log_json,
        log_prompts=log_prompts,
    )
    for _, source in named:
        settle_licences(source, draft, accept=accept_licence, offline=offline)
    try:
        run(settings)
    except NotActiveError as error:
        note(not_active_line(mode, str(error)))
        return error.exit_code
    return 0


def _named(text: str) -> tuple[str, str]:
    """``NAME=MODEL``, or a model under its own name."""
    from pathlib import Path

    name, equals, source = text.partition("=")
    if equals and not Path(text).exists():
        if not name or not source:
            raise UsageError(f"a model is given as MODEL or NAME=MODEL, got {text!r}")
        return name, source
    return (Path(text).stem if Path(text).exists() else text), text
