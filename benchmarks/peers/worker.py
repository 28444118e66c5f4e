"""The process of one contender: reads requests, one JSON object a line, and answers each with one line.

    {"do": "load", "adapter" (a module), "variant", "model_path", "threads", "context"}   -> facts
    {"do": "generate", "ids", "max_tokens"}                                    -> Run
    {"do": "rows", "ids"}                                                      -> RowComparison
    {"do": "peak_rss_bytes"}                                                   -> number

An answer is ``{"result": ...}`` or ``{"error": "..."}``. The end of the input ends the process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from dataclasses import asdict
from typing import Any

from benchmarks.peers.contract import Adapter


def peak_rss_bytes() -> int | None:
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def answer(request: dict[str, Any], adapter: Adapter | None) -> tuple[Any, Adapter | None]:
    do = request["do"]
    if do == "load":
        module = importlib.import_module(request["adapter"])
        opened: Adapter = module.open_adapter(request["variant"])
        return opened.load(request["model_path"], threads=request["threads"], context=request["context"]), opened
    if do == "peak_rss_bytes":
        return peak_rss_bytes(), adapter
    if adapter is None:
        raise RuntimeError(f"{do} before load")
    if do == "generate":
        return asdict(adapter.generate(request["ids"], request["max_tokens"])), adapter
    if do == "rows":
        return asdict(adapter.rows(request["ids"])), adapter
    raise RuntimeError(f"unknown request {do!r}")


def main() -> None:
    # Engines print where they like: answers keep the real output to themselves, everything else goes to the error stream.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    adapter: Adapter | None = None
    for line in sys.stdin:
        try:
            result, adapter = answer(json.loads(line), adapter)
            reply = {"result": result}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
