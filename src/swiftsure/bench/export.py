"""All exchanges as a table, one row each: CSV for a spreadsheet, Parquet for polars, duckdb or pandas."""

from __future__ import annotations

import csv
import importlib
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swiftsure.bench.exchange import Exchange
from swiftsure.bench.figures.group import PER_EXCHANGE
from swiftsure.bench.figures.reading import content, read
from swiftsure.bench.figures.settings import Prices
from swiftsure.errors import UsageError
from swiftsure.records.run_record import write_bytes, write_text

WORDS = ("row", "prompt", "started", "finish_reason", "tokens_by", "error", "error_words", "text_sha256", "tier")
WHOLE = ("round", "users", "repeat", "status", "chunks", "characters", "process", "reasoning_tokens")
YES_NO = ("warm_up", "censored", "burst", "hidden_reasoning")
NUMBERS = ("rate_per_s", "scheduled_s", "sent_s", "ended_s", *PER_EXCHANGE)
COLUMNS = tuple(dict.fromkeys(("round", "row", "users", "rate_per_s", "prompt", "repeat", *WORDS, *WHOLE, *YES_NO, *NUMBERS)))
"""In this order. Seconds, tokens and tokens/s by the definitions of the figures; empty: not reached or not measurable."""


def write(exchanges: Sequence[Exchange], path: str | Path, *, prices: Prices | None = None) -> None:
    """Writes ``.csv`` or ``.parquet`` whole or not at all; Parquet also holds every arrival (``arrivals_s``). Raises UsageError for another
    ending, and for Parquet where pyarrow is not installed."""
    ending = Path(path).suffix.lower()
    if ending == ".csv":
        write_text(path, _csv(exchanges, prices))
    elif ending == ".parquet":
        write_bytes(path, _parquet(exchanges, prices))
    else:
        raise UsageError(f"the table must be a .csv or .parquet file, got {str(path)!r}")


def rows(exchanges: Sequence[Exchange], prices: Prices | None = None) -> list[dict[str, Any]]:
    """One dictionary an exchange, with all of ``COLUMNS``."""
    found = []
    for exchange in exchanges:
        reading, trial = read(exchange, prices), exchange.trial
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row |= {name: getattr(trial, name) for name in ("round", "row", "users", "rate_per_s", "prompt", "repeat", "warm_up")}
        row |= {name: _finite(reading.values[name]) for name in PER_EXCHANGE if name in reading.values}
        row |= {
            name: getattr(exchange, name) for name in ("started", "finish_reason", "status", "characters", "text_sha256", "tier", "process")
        }
        row |= {name: _finite(getattr(exchange, name)) for name in ("scheduled_s", "sent_s", "ended_s")}
        row |= {
            name: getattr(reading, name)
            for name in ("error", "error_words", "tokens_by", "chunks", "censored", "burst", "hidden_reasoning")
        }
        row["reasoning_tokens"] = None if exchange.usage is None else exchange.usage.reasoning_tokens
        found.append(row)
    return found


def _csv(exchanges: Sequence[Exchange], prices: Prices | None) -> str:
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows(exchanges, prices):
        writer.writerow({name: _harmless(value) for name, value in row.items()})
    return table.getvalue()


def _harmless(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula (an endpoint's error can be any text) gets an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _parquet(exchanges: Sequence[Exchange], prices: Prices | None) -> bytes:
    table = {name: [row[name] for row in found] for found in [rows(exchanges, prices)] for name in COLUMNS}
    table["arrivals_s"] = [[_finite(a.at_s) for a in content(exchange)] for exchange in exchanges]
    target = io.BytesIO()
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install 'swiftsure[parquet]', or write a .csv file") from None
    types = dict.fromkeys(WORDS, arrow.string()) | dict.fromkeys(WHOLE, arrow.int64()) | dict.fromkeys(YES_NO, arrow.bool_())
    types |= dict.fromkeys(NUMBERS, arrow.float64()) | {"arrivals_s": arrow.list_(arrow.float64())}
    schema = arrow.schema([(name, types[name]) for name in table])
    parquet.write_table(arrow.table(table, schema=schema), target)
    return target.getvalue()


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
