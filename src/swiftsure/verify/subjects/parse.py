"""From what a user writes after ``--baseline`` and ``--candidate`` to a subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from swiftsure.engine.load_options import LoadOptions
from swiftsure.errors import UsageError
from swiftsure.verify.subjects.activation import LogProbe
from swiftsure.verify.subjects.base import Case, Subject
from swiftsure.verify.subjects.command import CommandOptions, CommandSubject
from swiftsure.verify.subjects.endpoint import EndpointProbe, UrlOptions, UrlSubject
from swiftsure.verify.subjects.mode import ModeOptions, ModeSubject
from swiftsure.verify.subjects.outputs import OutputLimits
from swiftsure.verify.subjects.upstream import UpstreamOptions, UpstreamSubject

KINDS = {
    "mode": "mode:fast, a mode of the built-in engine on the model that -m names",
    "file": "file:x.gguf, another model file in mode default",
    "url": "url:http://host/v1, an endpoint with chat completions",
    "cmd": "cmd:python program.py {input} {output}, any program",
    "upstream": "upstream:transformers, the release itself in float32, on the model that -m names",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectOptions:
    """What may be said beside a specification; each kind takes what concerns it.

    ``model``: of ``mode:``, and the name asked of an endpoint. ``load``: of ``mode:`` and ``file:``. ``folder``: of commands' logs, see
    CommandOptions. ``log_probe`` is for commands, ``endpoint_probe`` for endpoints.
    """

    model: str | None = None
    load: LoadOptions = field(default_factory=LoadOptions)
    logits: bool = False
    time_limit_s: float | None = 600.0
    memory_limit_bytes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    keep_outputs: bool = False
    output_limits: OutputLimits = field(default_factory=OutputLimits)
    log_probe: LogProbe = field(default_factory=LogProbe)
    endpoint_probe: EndpointProbe = field(default_factory=EndpointProbe)
    api_key: str | None = None
    probe_case: Case | None = None


def subject_from_spec(spec: str, options: SubjectOptions | None = None) -> Subject:
    """The subject that a specification names; nothing runs yet. Raises UsageError that lists the kinds."""
    options = options or SubjectOptions()
    kind, colon, rest = spec.partition(":")
    makers: dict[str, Callable[[str, str, SubjectOptions], Subject]] = {
        "mode": _mode,
        "file": _file,
        "url": _url,
        "cmd": _command,
        "upstream": _upstream,
    }
    if not colon or kind not in makers:
        listed = "; ".join(KINDS.values())
        raise UsageError(f"a subject must be of one of these kinds: {listed}; got {spec!r}")
    if not rest.strip():
        raise UsageError(f"nothing follows {kind}:; write {KINDS[kind]}")
    return makers[kind](spec, rest.strip(), options)


def _mode(spec: str, name: str, options: SubjectOptions) -> Subject:
    if options.model is None:
        raise UsageError(f"{spec} needs a model: name it with -m")
    return ModeSubject(name, _mode_options(options, options.model), spec=spec)


def _file(spec: str, name: str, options: SubjectOptions) -> Subject:
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(f"{spec}: there is no file {name!r}")
    return ModeSubject("default", _mode_options(options, str(path)), spec=spec)


def _upstream(spec: str, library: str, options: SubjectOptions) -> Subject:
    if options.model is None:
        raise UsageError(f"{spec} needs a model: name it with -m")
    if options.memory_limit_bytes is not None:
        raise UsageError(f"{spec}: a memory limit cannot be set for {library}")
    load = options.load
    made = UpstreamOptions(model=options.model, threads=load.threads, offline=load.offline, time_limit_s=options.time_limit_s)
    return UpstreamSubject(library, made, spec=spec)


def _mode_options(options: SubjectOptions, model: str) -> ModeOptions:
    return ModeOptions(
        model=model,
        load=options.load,
        logits=options.logits,
        time_limit_s=options.time_limit_s,
        memory_limit_bytes=options.memory_limit_bytes,
        environment=options.environment,
    )


def _url(spec: str, url: str, options: SubjectOptions) -> Subject:
    if options.memory_limit_bytes is not None:
        raise UsageError(f"{spec}: a memory limit cannot be set for an endpoint: its process is not ours")
    made = UrlOptions(
        model=options.model,
        time_limit_s=options.time_limit_s,
        probe=options.endpoint_probe,
        api_key=options.api_key,
        logprobs=options.logits,
    )
    return UrlSubject(url, made, spec=spec)


def _command(spec: str, template: str, options: SubjectOptions) -> Subject:
    made = CommandOptions(
        time_limit_s=options.time_limit_s,
        memory_limit_bytes=options.memory_limit_bytes,
        environment=options.environment,
        folder=options.folder,
        keep_outputs=options.keep_outputs,
        limits=options.output_limits,
        probe=options.log_probe,
        probe_case=options.probe_case,
    )
    return CommandSubject(template, made, spec=spec)
