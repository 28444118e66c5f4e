"""From the folder of a bench to its figures: the summary, the page, and what another command reads of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from swiftsure.bench.exchange import Exchange
from swiftsure.bench.figures.reading import read
from swiftsure.bench.figures.settings import Cell, Settings
from swiftsure.bench.figures.summary import Summary, load_summary, summarize
from swiftsure.bench.protocol.plan import START
from swiftsure.bench.protocol.store import HEAD, Bench, Say, read_bench
from swiftsure.bench.protocol.store import SCHEMA as FOLDER_SCHEMA
from swiftsure.bench.report.page import write_report
from swiftsure.errors import UsageError

SUMMARY = "summary.json"
PAGE = "report.html"


def summary_of(bench: Bench, settings: Settings | None = None) -> Summary:
    """The figures of all rounds that a folder has. The cold starts are in no figure; they are told beside them."""
    settings = settings or Settings()
    context = bench.head.get("context")
    about = dict(about_of(bench))
    if settings.context_tokens is None and context is not None:
        settings = replace(settings, context_tokens=context["tokens"])
    cells = [Cell(round=cell.round, row=cell.row, users=cell.users, rate_per_s=cell.rate_per_s, facts=cell.facts) for cell in bench.cells]
    return summarize(bench.exchanges, cells, replace(settings, about=about | dict(settings.about)))


def write_results(folder: Path, settings: Settings | None = None, *, say: Say = lambda words: None) -> Summary:
    """Writes summary.json and report.html into the folder."""
    summary = summary_of(read_bench(folder, say=say), settings)
    write_report(summary, folder / SUMMARY)
    write_report(summary, folder / PAGE)
    return summary


def load_results(path: Path, *, say: Say = lambda words: None) -> Summary:
    """The summary of a folder, of its bench.json, or of a summary that was written before. Raises UsageError."""
    if path.is_dir() or path.name == HEAD:
        return summary_of(read_bench(path, say=say))
    try:
        schema = json.loads(path.read_text(encoding="utf-8")).get("schema")
    except (OSError, ValueError, AttributeError, RecursionError) as fault:
        raise UsageError(f"{path} cannot be read as the results of a bench: {fault}") from None
    if schema == FOLDER_SCHEMA:
        raise UsageError(f"{path} is the {HEAD} of a folder: give the folder, which holds the exchanges too")
    return load_summary(path)


def about_of(bench: Bench) -> Iterator[tuple[str, Any]]:
    """What was measured, in the words of the report. ``protocol``: what two runs must share to be compared."""
    head = bench.head
    target, settings = head.get("target", {}), head.get("settings", {})
    yield "target", {name: target.get(name) for name in ("model", "url", "mode", "interface")}
    yield "prompts", f"{len(head['prompts']['items'])}, {head['prompts']['source']}" if "prompts" in head else None
    yield "prompts_sha256", head.get("prompts", {}).get("sha256")
    yield "protocol", {name: settings.get(name) for name in ("repeats", "max_tokens", "context_tokens", "sampling")}
    yield "users", settings.get("users")
    yield "rounds", [f"{entry['started']}{'' if entry.get('ended') else ', under way'}" for entry in head["rounds"]]
    if target.get("window"):
        yield "window", f"{target['window']} tokens ({target.get('window_from')})"
    context = head.get("context")
    if context is not None:
        yield "context", f"about {context['tokens']} tokens" + (f"; {context['scaled']}" if context["scaled"] else "")
    starts = [cold_start(exchange) for exchange in bench.exchanges if exchange.trial.row == START]
    if starts:
        yield "cold_start", "; ".join(starts)
    machine = head.get("machine", {})
    if machine:
        yield "client", f"{machine.get('cpu_model')}, {machine.get('usable_cpus')} processors, {machine.get('system')}"


def cold_start(exchange: Exchange) -> str:
    """The first request of a round, which no cache and no open connection helped."""
    reading = read(exchange)
    ttft_s = reading.values.get("ttft")
    if ttft_s is None:
        return f"round {exchange.trial.round}: failed ({reading.error})"
    connected = "" if exchange.connected_s is None else f" after connecting in {exchange.connected_s * 1000:.1f} ms"
    return f"round {exchange.trial.round}: first token after {ttft_s * 1000:.0f} ms{connected}"
