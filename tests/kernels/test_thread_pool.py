"""The thread pool under stress, plain and under the race detector, and what idle workers cost."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from swiftsure.kernels import KVCache, PackedMatrix, Program

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("flags", [["-O2"], ["-O1", "-g", "-fsanitize=thread"]], ids=["plain", "race-detector"])
def test_every_chunk_runs_once_and_stages_stay_in_order(tmp_path: Path, flags: list[str]) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++ to build the stress program")
    program = tmp_path / "stress"
    sources = [str(ROOT / "tests/kernels/thread_pool_stress.cpp"), str(ROOT / "csrc/thread_pool.cpp")]
    built = subprocess.run(
        [compiler, "-std=c++20", *flags, f"-I{ROOT / 'csrc'}", *sources, "-o", str(program), "-pthread"], capture_output=True, text=True
    )
    if built.returncode and "tsan" in built.stderr:
        pytest.skip("this compiler has no race detector library")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_idle_workers_sleep() -> None:
    matrix = PackedMatrix("F32", 16, 16)
    program = Program("portable", 8, 1, 1, KVCache(1, 1, 16, 32, 1))
    for name in ("x", "last"):
        program.buffer(name, 16)
    program.embed(matrix, "x")
    program.select_rows("x", "last")
    zero = np.zeros(1, dtype=np.int32)
    program.run(zero, zero, zero, np.zeros((1, 1), dtype=np.int32), zero)
    time.sleep(0.05)  # past the bounded spin
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05
