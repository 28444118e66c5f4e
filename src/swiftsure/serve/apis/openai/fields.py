"""Every field of chat completions and completions: honoured, refused by name with the reason, or harmless. None is swallowed.

``docs/api-fields.md`` and the OpenAPI page are written from this table, and a test holds it against the SDK's own parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from swiftsure.errors import quotable
from swiftsure.serve.apis.fields import unknown_field
from swiftsure.serve.problems import RefusedError

Endpoint: TypeAlias = Literal["chat", "completions"]
Treatment: TypeAlias = Literal["honoured", "refused", "harmless"]
_BOTH: tuple[Endpoint, ...] = ("chat", "completions")
_CHAT: tuple[Endpoint, ...] = ("chat",)
_COMPLETIONS: tuple[Endpoint, ...] = ("completions",)

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field. types: of its value, as JSON Schema names them; null is always a field left out. note: what happens, or why not.
    neutral: values of a refused field that ask for what is done anyway. ours: not one of OpenAI's."""

    name: str
    endpoints: tuple[Endpoint, ...]
    treatment: Treatment
    types: tuple[str, ...]
    note: str
    neutral: tuple[Any, ...] = ()
    ours: bool = False


def _honoured(name: str, types: str, note: str, endpoints: tuple[Endpoint, ...] = _BOTH, *, ours: bool = False) -> Field:
    return Field(name=name, endpoints=endpoints, treatment="honoured", types=tuple(types.split()), note=note, ours=ours)


def _refused(name: str, types: str, note: str, endpoints: tuple[Endpoint, ...] = _CHAT, *, neutral: tuple[Any, ...] = ()) -> Field:
    return Field(name=name, endpoints=endpoints, treatment="refused", types=tuple(types.split()), note=note, neutral=neutral)


def _harmless(name: str, types: str, note: str, endpoints: tuple[Endpoint, ...] = _BOTH) -> Field:
    return Field(name=name, endpoints=endpoints, treatment="harmless", types=tuple(types.split()), note=note)


FIELDS: tuple[Field, ...] = (
    _honoured("model", "string", "a name from `/v1/models`; the first model served where none is given"),
    _honoured("messages", "array", "texts and text parts; `developer` is `system`; other parts are refused by their type", _CHAT),
    _honoured("prompt", "string array", "a text, token ids, or a list of either", _COMPLETIONS),
    _honoured("stream", "boolean", "server-sent events"),
    _honoured("stream_options", "object", "`include_usage`; `include_obfuscation` is harmless"),
    _honoured("temperature", "number", "0 to 10; 1 where none is given, as OpenAI documents it; 0 takes the best token"),
    _honoured("top_p", "number", "above 0, at most 1; 1 where none is given"),
    _honoured("max_tokens", "integer", "at least 1; chat: up to the context's edge where none is given, completions: 16"),
    _honoured("max_completion_tokens", "integer", "the newer name of `max_tokens`; not beside it", _CHAT),
    _honoured("n", "integer", "1 to 128 answers, each with noise of its own from the one seed"),
    _honoured("stop", "string array", "at most 16 strings, each of at most 4,096 characters"),
    _honoured("seed", "integer", "0 to 2^64 - 1; drawn and reported where none is given and the temperature is above 0"),
    _honoured("presence_penalty", "number", "-2 to 2"),
    _honoured("frequency_penalty", "number", "-2 to 2"),
    _honoured("logit_bias", "object", "token id to a number from -100 to 100, at most 4,096 of them"),
    _honoured("logprobs", "boolean integer", "chat: true or false; completions: 0 to 20; of the raw logits, one entry a generated token"),
    _honoured("top_logprobs", "integer", "0 to 20, with `logprobs`", _CHAT),
    _honoured("echo", "boolean", "the prompt's text first; refused with `logprobs`: those of prompts are not computed", _COMPLETIONS),
    _honoured("service_tier", "string", "`auto`, `default` and `flex`: standard; `priority` and `fast`: priority; a full tier answers 429"),
    _honoured("top_k", "integer", "keeps the k best tokens; 0: all", ours=True),
    _honoured("min_p", "number", "keeps tokens of at least this share of the best one's probability", ours=True),
    _honoured("repetition_penalty", "number", "0.01 to 10; 1: none", ours=True),
    _honoured("ignore_eos", "boolean", "goes on past end tokens", ours=True),
    _honoured("chat_template_kwargs", "object", "variables that the model's chat template reads", _CHAT, ours=True),
    _honoured("documents", "array", "for chat templates that read documents", _CHAT, ours=True),
    _honoured("return_token_ids", "boolean", "adds `token_ids` to choices and `prompt_token_ids`", ours=True),
    _honoured("deadline_s", "number", "most seconds, waiting included; beyond, the request fails with 504", ours=True),
    _honoured("tools", "array", "functions; a template that reads none gets them described in the system message", _CHAT),
    _honoured("tool_choice", "string object", "`auto`, `none`, `required` or a function; the last two force calls by a grammar", _CHAT),
    _honoured("parallel_tool_calls", "boolean", "false: at most one call; refused with `auto`, which nothing stops after a call", _CHAT),
    _honoured(
        "response_format", "object", "`text`, `json_object`, `json_schema`; ours: `regex`, `grammar` (Lark); kept to by a grammar", _CHAT
    ),
    _refused("reasoning_effort", "string", "these models have no levels of effort; see chat_template_kwargs"),
    _refused("functions", "array", "deprecated by OpenAI; see tools", neutral=([],)),
    _refused("function_call", "string object", "deprecated by OpenAI; see tool_choice", neutral=("none", "auto")),
    _refused("modalities", "array", "text alone comes out", neutral=(["text"], [])),
    _refused("audio", "object", "text alone comes out"),
    _refused("moderation", "object", "nothing here judges texts"),
    _refused("verbosity", "string", "these models have no levels of verbosity", neutral=("medium",)),
    _refused("web_search_options", "object", "the server asks no other servers"),
    _refused("best_of", "integer", "answers are not ranked; use n", _COMPLETIONS, neutral=(1,)),
    _refused("suffix", "string", "these models do not fill in", _COMPLETIONS, neutral=("",)),
    _harmless("prediction", "object", "a hint for speed that changes no answer; drafts come from other sources", _CHAT),
    _harmless("prompt_cache_key", "string", "prefixes are cached for everyone without being named"),
    _harmless("prompt_cache_options", "object", "prefixes are cached for everyone without being marked"),
    _harmless("prompt_cache_retention", "string", "prefixes are kept while there is room"),
    _harmless("safety_identifier", "string", "says who asks; nothing here depends on it, and it is not kept"),
    _harmless("user", "string", "says who asks; nothing here depends on it, and it is not kept"),
    _harmless("metadata", "object", "nothing here depends on it, and it is not kept"),
    _harmless("store", "boolean", "answers are not kept"),
)


def fields_of(endpoint: Endpoint) -> Mapping[str, Field]:
    return {field.name: field for field in FIELDS if endpoint in field.endpoints}


def checked(body: Mapping[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    """The honoured fields that are set. Raises RefusedError, with the field, for what is unknown, refused or of another type."""
    known = fields_of(endpoint)
    wanted = {}
    for name, value in body.items():
        if value is None:
            continue
        field = known.get(name)
        if field is None:
            raise RefusedError(unknown_field(name, known), param=quotable(name[:80]), code="unknown_parameter")
        if not any(_is(value, kind) for kind in field.types):
            raise RefusedError(f"{name} must be of type {' or '.join(field.types)}, got {_type_of(value)}", param=name, code="invalid_type")
        if field.treatment == "honoured":
            wanted[name] = value
        elif field.treatment == "refused" and value not in field.neutral:
            raise RefusedError(f"{name} is not supported: {field.note}", param=name, code="unsupported_parameter")
    return wanted


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _type_of(value: Any) -> str:
    return next((kind for kind in ("boolean", *_TYPES) if _is(value, kind)), type(value).__name__)


def openapi_body(endpoint: Endpoint) -> dict[str, Any]:
    """The request's body as OpenAPI describes it."""
    properties = {
        field.name: {"type": [*field.types, "null"], "description": f"{field.treatment}: {field.note}"}
        for field in fields_of(endpoint).values()
    }
    needed = ["messages"] if endpoint == "chat" else ["prompt"]
    schema = {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def table_lines() -> Iterator[str]:
    """The table as Markdown."""
    yield "| field | where | what happens | |"
    yield "|---|---|---|---|"
    for field in FIELDS:
        where = "both" if field.endpoints == _BOTH else field.endpoints[0]
        yield f"| `{field.name}`{' (ours)' if field.ours else ''} | {where} | {field.treatment} | {field.note} |"
