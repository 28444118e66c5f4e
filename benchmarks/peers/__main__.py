"""Runs the comparison, prints its tables and writes its record and page; see the package for what it measures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from benchmarks.peers import page, report
from benchmarks.peers.options import parse
from benchmarks.peers.process import ROOT, PeerError
from benchmarks.peers.run import BUSY_FROM, compare
from swiftsure.errors import SwiftsureError


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        result = compare(options)
    except (PeerError, SwiftsureError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    if result is None:
        return 0
    print(report.tables(result))
    if (result["others_cpu_share"] or 0) > BUSY_FROM:
        print(f"\nBUSY: others used {result['others_cpu_share']:.0%} of the machine meanwhile; such a run proves little", file=sys.stderr)
    path = options.json or ROOT / "benchmarks" / "results" / f"peers-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    report.write(result, path)
    page.write(result, path.with_suffix(".html"))
    print(f"\n{path}\n{path.with_suffix('.html')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
