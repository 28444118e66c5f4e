"""``swiftsure quantize``: an 8- or 4-bit model from a 16-bit one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swiftsure.cli import options
from swiftsure.cli.console import ProgressBar, note, print_pairs, print_table, size_text
from swiftsure.cli.framework import option
from swiftsure.cli.licence import settle_licences
from swiftsure.errors import UsageError

if TYPE_CHECKING:
    from swiftsure.models.quantize_file import QuantizeReport

_TYPES = "Types"

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", show_default=False, help="A model with 16-bit weights: a .gguf file, a catalogue name or hf:ORG/NAME."
    ),
]
Output = Annotated[Path, typer.Argument(metavar="OUTPUT", show_default=False, help="The new .gguf file.")]
Kind = Annotated[
    str | None,
    option("--type", metavar="TYPE", section=_TYPES, help="Of all matrices: Q8_0, Q4_0 or Q4_1 (8.5, 4.5, 5 bits). Default: as they are."),
]
Head = Annotated[str | None, option("--head", metavar="TYPE", section=_TYPES, help="Of the output head. Default: that of --type.")]
Embedding = Annotated[str | None, option("--embedding", metavar="TYPE", section=_TYPES, help="Of the embedding. Default: that of --type.")]
Method = Annotated[
    str,
    option("--method", metavar="NAME", section=_TYPES, help="search (least squared error) or rtn (round to nearest). Default: search."),
]
Requantize = Annotated[
    bool, option("--requantize", section=_TYPES, help="Let 8-bit weights be rounded a second time, to 4 bits: lossy on lossy.")
]
Force = Annotated[bool, option("--force", section=options.OUTPUT, help="Replace OUTPUT if it exists.")]


def quantize(
    source: Source,
    output: Output,
    kind: Kind = None,
    head: Head = None,
    embedding: Embedding = None,
    method: Method = "search",
    requantize: Requantize = False,
    force: Force = False,
    json_output: options.JsonFlag = False,
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
    threads: options.ThreadsOption = None,
) -> int:
    """Make an 8- or 4-bit model from a 16-bit one.

    Prints how far each tensor is from the source's. Norms and other vectors stay float32. OUTPUT appears when it is whole, or not at all.
    """
    if kind is None and head is None and embedding is None:
        raise UsageError("nothing to do: give --type, --head or --embedding")
    from swiftsure import __version__
    from swiftsure.engine.threads import choose_threads
    from swiftsure.models.catalogue import resolve
    from swiftsure.models.quantize_file import quantize_file

    settle_licences(source, accept=accept_licence, offline=offline)
    with ProgressBar("hashing") as progress:
        files = resolve(source, offline=offline, progress=progress)
    with ProgressBar("quantizing") as progress:
        report = quantize_file(
            files,
            output,
            kind,
            head=head,
            embedding=embedding,
            method=method,
            requantize=requantize,
            force=force,
            threads=choose_threads(threads).threads,
            version=__version__,
            progress=progress,
        )
    if report.requantized:
        count = len(report.requantized)
        note(f"LOSSY ON LOSSY: {count} tensor{'s' if count > 1 else ''} held 8-bit weights already; errors below are against those")
    if json_output:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        _print_report(report)
    return 0


def _print_report(report: QuantizeReport) -> None:
    rows = [
        [
            tensor.name,
            f"{tensor.source_type} -> {tensor.type}",
            size_text(tensor.source_bytes),
            size_text(tensor.bytes),
            _error_text(tensor.relative_l2),
        ]
        for tensor in report.tensors
    ]
    print_table(["tensor", "type", "before", "after", "relative L2 error"], rows, right=(2, 3, 4))
    errors = {tensor.name: tensor.relative_l2 for tensor in report.tensors}
    print()
    print_pairs(
        {
            "output": report.output,
            "bytes": f"{size_text(report.output_bytes)} from {size_text(report.source_bytes)}",
            "tensors": f"{len(report.tensors)} changed, {report.copied} as they were",
            "method": report.method,
            "relative L2 error": f"{_error_text(report.relative_l2)} over all changed weights",
            "worst tensor": f"{report.worst}: {_error_text(errors[report.worst])}" if report.worst else "none",
            "time": f"{report.wall_s:.1f} s",
        }
    )


def _error_text(error: float | None) -> str:
    return "all zero" if error is None else f"{error:.5f}"
