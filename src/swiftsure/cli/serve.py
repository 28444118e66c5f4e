"""``swiftsure serve``: models behind HTTP, for clients that are there already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from swiftsure.cli import options
from swiftsure.cli.console import note
from swiftsure.cli.framework import option
from swiftsure.errors import ContractError, NotActiveError, UsageError

if TYPE_CHECKING:
    from swiftsure.serve.settings import AuditSettings

_SERVER = "Server"
_LIMITS = "Limits"
_TIERS = "Tiers and prices"
_AUDIT = "Proof"

Host = Annotated[str, option("--host", metavar="ADDRESS", section=_SERVER, help="Address to listen on. Default: 127.0.0.1.")]
Port = Annotated[int, option("--port", metavar="N", section=_SERVER, help="Port; 0 takes a free one. Default: 8000.")]
Audit = Annotated[
    str | None,
    option(
        "--audit",
        metavar="SHARE",
        section=_AUDIT,
        help="Compute this share of answers, such as 1%, once more in mode default while nobody waits, and compare digests; "
        "of mode fast the distances.",
    ),
]
AuditRecords = Annotated[
    Path | None,
    option(
        "--audit-records", metavar="DIR", section=_AUDIT, help="Where the record of a difference is written. Default: the cache folder."
    ),
]
OnFail = Annotated[
    str | None,
    option(
        "--on-fail",
        metavar="default",
        section=_AUDIT,
        help="After a difference print FALLBACK and go on in default; still exit 3. Default: stop.",
    ),
]
AllowFallback = Annotated[bool, option("--allow-fallback", section=_AUDIT, help="With --on-fail: exit 0 all the same.")]
Models = Annotated[
    list[str] | None,
    option(
        "--model",
        "-m",
        metavar="[NAME=]MODEL[@MODE]",
        section=options.MODEL,
        help="A model to serve, under NAME and in a MODE of its own, as MODEL may be written too. May be repeated, "
        "with one MODEL in several modes.",
    ),
]
LogJson = Annotated[bool, option("--log-json", section=_SERVER, help="Write a line of JSON for each request.")]
LogPrompts = Annotated[bool, option("--log-prompts", section=_SERVER, help="Let logs hold what users wrote.")]
ApiKeys = Annotated[
    Path | None,
    option(
        "--api-keys",
        metavar="FILE",
        section=_SERVER,
        help="Only these keys may come in: a line each, NAME KEY [standard,priority]. Default: everyone on this machine.",
    ),
]
Open = Annotated[bool, option("--open", section=_SERVER, help="Listen beyond this machine without API keys.")]
Drain = Annotated[
    float, option("--drain", metavar="SECONDS", section=_SERVER, help="Running answers may go on so long after SIGTERM. Default: 30.")
]
MaxRequests = Annotated[
    int,
    option(
        "--max-requests", metavar="N", section=_LIMITS, help="Most requests of the standard tier under way, waiting ones too. Default: 256."
    ),
]
MaxTokens = Annotated[
    int,
    option(
        "--max-tokens-under-way",
        metavar="N",
        section=_LIMITS,
        help="Most tokens that the standard tier's requests may come to. Default: 1000000.",
    ),
]
Deadline = Annotated[
    float, option("--deadline", metavar="SECONDS", section=_LIMITS, help="Longest a request may take, waiting included. Default: 600.")
]
MaxBody = Annotated[int, option("--max-body", metavar="BYTES", section=_LIMITS, help="Largest request. Default: 16777216.")]
MaxRunning = Annotated[
    int,
    option("--max-running", metavar="N", section=_LIMITS, help="Most requests of the standard tier in a pass; others wait. Default: 16."),
]
KvContexts = Annotated[
    int,
    option(
        "--kv-contexts",
        metavar="N",
        section=options.MACHINE,
        help="Keep keys and values of N times --context, for all requests and cached prefixes, as far as memory goes. Default: 4.",
    ),
]
PrefillChunk = Annotated[
    float,
    option(
        "--prefill-chunk-ms",
        metavar="MS",
        section=_LIMITS,
        help="How much longer a pass that decodes may take for the prompts in it. Default: 20.",
    ),
]
ToolCallParser = Annotated[
    list[str] | None,
    option(
        "--tool-call-parser",
        metavar="[NAME=]PARSER",
        section=_SERVER,
        help="How tool calls are written: hermes, qwen, smollm2, llama3_json, mistral, gemma or none; of model NAME, else of all. "
        "Default: auto, as the chat template shows.",
    ),
]
ReasoningParser = Annotated[
    list[str] | None,
    option(
        "--reasoning-parser",
        metavar="[NAME=]PARSER",
        section=_SERVER,
        help="How reasoning is told from the answer: qwen3, deepseek_r1 or none. Default: auto, as the chat template shows.",
    ),
]
PriorityRunning = Annotated[
    int | None,
    option(
        "--priority-running",
        metavar="N",
        section=_TIERS,
        help="Most requests of the priority tier in a pass; others wait. Default: 4, or as many as --priority-rows.",
    ),
]
PriorityRows = Annotated[
    int,
    option("--priority-rows", metavar="N", section=_TIERS, help="Most rows of priority requests in a pass, drafts included. Default: 16."),
]
PrioritySlack = Annotated[
    float,
    option(
        "--priority-slack",
        metavar="SHARE",
        section=_TIERS,
        help="How much longer a pass with priority rows may take for standard ones that ride along. Default: 0.1.",
    ),
]
PriorityRequests = Annotated[
    int,
    option(
        "--priority-requests",
        metavar="N",
        section=_TIERS,
        help="Most requests of the priority tier under way; more are answered 429. Default: 8.",
    ),
]
Price = Annotated[
    float,
    option("--price", metavar="X", section=_TIERS, help="A priority token costs X times a standard one. Default: 6, as fast tiers ask."),
]
PriceIn = Annotated[float, option("--price-input", metavar="P", section=_TIERS, help="Price of a million prompt tokens. Default: 0.")]
PriceOut = Annotated[float, option("--price-output", metavar="P", section=_TIERS, help="Price of a million new tokens. Default: 0.")]


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
    api_keys: ApiKeys = None,
    open_to_all: Open = False,
    drain: Drain = 30.0,
    tool_call_parser: ToolCallParser = None,
    reasoning_parser: ReasoningParser = None,
    max_requests: MaxRequests = 256,
    max_tokens_under_way: MaxTokens = 1_000_000,
    deadline: Deadline = 600.0,
    max_body: MaxBody = 16 * 2**20,
    max_running: MaxRunning = 16,
    prefill_chunk_ms: PrefillChunk = 20.0,
    priority_running: PriorityRunning = None,
    priority_rows: PriorityRows = 16,
    priority_slack: PrioritySlack = 0.1,
    priority_requests: PriorityRequests = 8,
    price: Price = 6.0,
    price_input: PriceIn = 0.0,
    price_output: PriceOut = 0.0,
    audit: Audit = None,
    audit_records: AuditRecords = None,
    on_fail: OnFail = None,
    allow_fallback: AllowFallback = False,
    threads: options.ThreadsOption = None,
    context: options.ContextOption = None,
    kv_memory: options.KvMemoryOption = None,
    kv_contexts: KvContexts = 4,
    isa: options.IsaOption = None,
    no_cache: options.NoCacheOption = False,
    log_json: LogJson = False,
    log_prompts: LogPrompts = False,
) -> int:
    """Serve models to clients of the OpenAI and Anthropic interfaces.

    ACTIVE lines say what each engine runs; LISTENING says where. SIGTERM lets running answers end.
    """
    from swiftsure.cli.licence import settle_licences
    from swiftsure.cli.served_models import model_settings
    from swiftsure.engine.activation import not_active_line
    from swiftsure.engine.load_options import LoadOptions
    from swiftsure.engine.scheduling import Scheduling
    from swiftsure.serve.problems import NotServedError
    from swiftsure.serve.run import run
    from swiftsure.serve.settings import LaneLimits, Prices, ServeSettings, read_keys

    audit_settings = _audit_settings(audit, audit_records, on_fail, allow_fallback)
    load = LoadOptions(
        threads=threads,
        context=context,
        kv_memory=kv_memory,
        kv_contexts=kv_contexts,
        isa=isa,
        without=options.split_names(without),
        draft=draft,
        offline=offline,
        cache=not no_cache,
    )
    written = [*([model] if model else []), *(models or [])] or [options.DEFAULT_MODEL]
    settings = ServeSettings(
        models=model_settings(written, mode, load, calls=tool_call_parser or (), reasoning=reasoning_parser or ()),
        host=host,
        port=port,
        log_json=log_json,
        standard=LaneLimits(requests=max_requests, tokens=max_tokens_under_way),
        priority=LaneLimits(requests=priority_requests, tokens=max_tokens_under_way),
        scheduling=Scheduling(
            max_running=max_running,
            priority_running=priority_running,
            priority_rows=priority_rows,
            priority_slack=priority_slack,
            prefill_chunk_ms=prefill_chunk_ms,
        ),
        prices=Prices(input=price_input, output=price_output, multiple=price),
        keys=read_keys(api_keys) if api_keys is not None else (),
        open_to_all=open_to_all,
        deadline_s=deadline,
        max_body_bytes=max_body,
        drain_s=drain,
        log_prompts=log_prompts,
        audit=audit_settings,
    )
    for served in settings.models:
        settle_licences(served.source, draft, accept=accept_licence, offline=offline)
    try:
        breaches = run(settings)
    except NotServedError as error:
        note(not_active_line(error.mode, str(error)))
        return error.exit_code
    for breach in breaches:
        if not breach.fell_back:
            raise ContractError(f"{breach.model}: {breach.reason}")
    return NotActiveError.exit_code if breaches and not allow_fallback else 0


def _audit_settings(share: str | None, records: Path | None, on_fail: str | None, allow_fallback: bool) -> AuditSettings | None:
    from swiftsure.models.cache import home
    from swiftsure.serve.settings import AuditSettings

    options.check_on_fail(on_fail, allow_fallback=allow_fallback)
    if share is None:
        for name, given in (("--on-fail", on_fail), ("--audit-records", records)):
            if given is not None:
                raise UsageError(f"{name} says what follows from an audit and needs --audit")
        return None
    folder = records if records is not None else home() / "audits"
    return AuditSettings(share=_share(share), records=folder, on_fail="default" if on_fail else "stop")


def _share(text: str) -> float:
    """``1%`` or ``0.01``."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"--audit takes a share such as 1% or 0.01, got {text!r}") from None
