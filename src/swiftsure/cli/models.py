"""``swiftsure models``: which exact bytes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swiftsure.cli import options
from swiftsure.cli.console import ProgressBar, print_pairs, print_table, size_text
from swiftsure.cli.framework import CommandGroup, PlainCommand, option
from swiftsure.cli.licence import settle_licences

if TYPE_CHECKING:
    from swiftsure.models.files import ModelFiles

app = typer.Typer(cls=CommandGroup, rich_markup_mode=None, help="List, fetch, describe and verify models.")

_TITLES = {"file_bytes": "file", "decode_bytes_per_token": "a token reads", "kv_bytes_per_position": "key-values per token"}

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
    json_output: options.JsonFlag = False,
) -> int:
    """Describe a model: its file, digest, licence, tensors and costs."""
    from swiftsure.models.catalogue import resolve
    from swiftsure.models.model import describe

    name = options.chosen_model(model, None)
    settle_licences(name, accept=accept_licence, offline=offline)
    with ProgressBar("fetching") as progress:
        facts = describe(resolve(name, offline=offline, progress=progress))
    if json_output:
        _print_json(facts)
    else:
        _print_facts(facts)
    return 0


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
        print_pairs({name: value for name, value in facts.items() if value is not None and name != "stamp"} | each)


def _print_facts(facts: dict[str, Any]) -> None:
    """The facts of ``describe`` in words."""
    sizes = ("file_bytes", "decode_bytes_per_token", "kv_bytes_per_position")
    shown: dict[str, object] = {}
    for name, value in facts.items():
        if value is None or name in ("tensor_types", "unsupported"):
            continue
        text = size_text(value) if name in sizes else {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        shown[_TITLES.get(name, name.replace("_", " "))] = text
    kinds = facts["tensor_types"].items()
    shown["tensor types"] = ", ".join(f"{entry['tensors']} {kind} ({size_text(entry['bytes'])})" for kind, entry in kinds)
    if facts["unsupported"]:
        shown["not supported"] = "; ".join(facts["unsupported"])
    print_pairs(shown)
