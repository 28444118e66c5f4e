"""An exchange as one flat JSON object, and back: a line of ``round-N.jsonl``, which polars and duckdb read as a table.

The trial's fields and the usage's stand beside the exchange's own; ``usage.output_tokens`` is ``usage_output_tokens``, because the
exchange has its own count. The arrivals are three lists of one length. Moments are kept to the microsecond.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from swiftsure.bench.exchange import SCHEMA, Arrival, ClientFacts, Exchange, Trial, Usage
from swiftsure.errors import UsageError

_TRIAL = tuple(field.name for field in fields(Trial))
_FACTS = tuple(field.name for field in fields(ClientFacts))
_USAGE = {"prompt_tokens": "prompt_tokens", "output_tokens": "usage_output_tokens"} | {
    name: name for name in ("reasoning_tokens", "cached_tokens")
}
_OWN = tuple(field.name for field in fields(Exchange) if field.name not in ("trial", "arrivals", "usage"))


def to_row(exchange: Exchange) -> dict[str, Any]:
    """The columns in a fixed order; every line has them all."""
    row: dict[str, Any] = {"schema": SCHEMA}
    row |= {name: getattr(exchange.trial, name) for name in _TRIAL}
    row |= {name: _plain(getattr(exchange, name)) for name in _OWN}
    row["has_usage"] = exchange.usage is not None
    row |= {column: getattr(exchange.usage, name, None) for name, column in _USAGE.items()}
    row["arrival_at_s"] = [round(arrival.at_s, 6) for arrival in exchange.arrivals]
    row["arrival_share"] = [arrival.share for arrival in exchange.arrivals]
    row["arrival_characters"] = [arrival.characters for arrival in exchange.arrivals]
    return row


def from_row(row: Mapping[str, Any]) -> Exchange:
    """Raises UsageError for a row that is not an exchange of this schema. A field that came later than the row has its default."""
    if row.get("schema") != SCHEMA:
        raise UsageError(f"an exchange of schema {SCHEMA} is expected, got {row.get('schema')!r:.100}")
    try:
        columns = zip(row["arrival_at_s"], row["arrival_share"], row["arrival_characters"], strict=True)
        arrivals = tuple(Arrival(at_s=at_s, share=share, characters=characters) for at_s, share, characters in columns)
        usage = Usage(**{name: row[column] for name, column in _USAGE.items()}) if row["has_usage"] else None
        own = {name: row[name] for name in _OWN if name in row} | {"settings_dropped": tuple(row["settings_dropped"])}
        return Exchange(trial=Trial(**{name: row[name] for name in _TRIAL}), arrivals=arrivals, usage=usage, **own)
    except KeyError as error:
        raise UsageError(f"the exchange has no column {error.args[0]}") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"the exchange's columns do not fit: {error}") from None


def to_line(exchange: Exchange) -> str:
    return json.dumps(to_row(exchange), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def facts_row(facts: ClientFacts) -> dict[str, Any]:
    return {name: _plain(getattr(facts, name)) for name in _FACTS}


def facts_from_row(row: Mapping[str, Any]) -> ClientFacts:
    """Raises UsageError where a field is missing."""
    missing = [name for name in _FACTS if name not in row]
    if missing:
        raise UsageError(f"the client's facts have no {missing[0]}")
    return ClientFacts(**{name: row[name] for name in _FACTS})


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    return list(value) if isinstance(value, tuple | list) else value
