"""``swiftsure models``: which exact bytes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftsure.cli import options
from swiftsure.cli.console import ProgressBar, note, print_pairs, print_table, size_text
from swiftsure.cli.framework import CommandGroup, PlainCommand, option
from swiftsure.cli.licence import settle_licences
from swiftsure.errors import UnsupportedModelError

if TYPE_CHECKING:
    from swiftsure.models.files import ModelFiles

app = typer.Typer(cls=CommandGroup, rich_markup_mode=None, help="List, fetch, describe and verify models.")

Force = Annotated[bool, option("--force", section=options.MODEL, help="Fetch a catalogue model again, over what is cached.")]


@app.command("list", cls=PlainCommand)
def list_models(json_output: options.JsonFlag = False) -> int:
    """List the catalogue and what of it is cached."""
    from swiftsure.models.catalogue import listing

    entries = listing()
    if json_output:
        _print_json(entries)
        return 0
    rows = [
        [
            entry["name"] + (" (default)" if entry["default"] else ""),
            size_text(entry["size_bytes"]),
            entry["licence"],
            "cached" if entry["cached"] else "not cached",
        ]
        for entry in entries
    ]
    print_table(["name", "size", "licence", "here"], rows, right=(1,))
    return 0


@app.command("pull", cls=PlainCommand)
def pull(
    model: options.ModelArgument = None,
    force: Force = False,
    accept_licence: options.AcceptLicenceOption = False,
    json_output: options.JsonFlag = False,
) -> int:
    """Fetch a model into the cache and check its digest."""
    from swiftsure.models.catalogue import pull as pull_files

    name = options.chosen_model(model, None)
    settle_licences(name, accept=accept_licence, offline=False, force=force)
    with ProgressBar("fetching") as progress:
        files = pull_files(name, force=force, progress=progress)
    _print_files(files, json_output)
    return 0


@app.command("info", cls=PlainCommand)
def info(
    model: options.ModelArgument = None,
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
    context: options.ContextOption = None,
    json_output: options.JsonFlag = False,
) -> int:
    """Describe a model: bytes, licence, tensors, tokenizer, memory.

    Says what a token must read, what each mode needs for a context, what the chat template can do, and every reason why this build
    cannot run a model; then the exit code is 2.
    """
    from swiftsure.cli.model_facts import print_facts
    from swiftsure.engine.model_info import model_info
    from swiftsure.models.catalogue import resolve

    name = options.chosen_model(model, None)
    settle_licences(name, accept=accept_licence, offline=offline)
    with ProgressBar("fetching") as progress:
        files = resolve(name, offline=offline, progress=progress)
    for text in files.notes:
        note(f"note: {text}")
    facts = model_info(files, context=context)
    if json_output:
        _print_json(facts)
    else:
        print_facts(facts)
    return UnsupportedModelError.exit_code if facts["unsupported"] else 0


@app.command("verify", cls=PlainCommand)
def verify(model: options.ModelArgument = None, json_output: options.JsonFlag = False) -> int:
    """Hash a model's file anew and compare with its pin.

    A catalogue model with other bytes than the pinned ones ends with exit code 2. A file that has no pin has its digest printed.
    """
    from swiftsure.models.catalogue import verify as verify_files

    with ProgressBar("hashing") as progress:
        files = verify_files(options.chosen_model(model, None), progress=progress)
    _print_files(files, json_output)
    return 0


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _print_files(files: ModelFiles, json_output: bool) -> None:
    facts = asdict(files) | {"path": str(files.path)}
    if json_output:
        _print_json(facts)
    else:
        each = facts.pop("file_sha256") or {}
        print_pairs({name: value for name, value in facts.items() if value not in (None, ()) and name not in ("stamp", "notes")} | each)
    for text in files.notes:
        note(f"note: {text}")
