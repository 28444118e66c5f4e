from __future__ import annotations

import subprocess
import sys

import pytest

from swiftsure.errors import UsageError
from swiftsure.records.memory_wall import ReadBandwidth, combine, measure_read_bandwidth


def test_bandwidth_is_the_buffer_over_the_median_pass() -> None:
    probe = ReadBandwidth(buffer_bytes=1_000_000, threads=1, pass_s=(0.5, 0.001, 0.002))
    assert probe.bytes_per_s == pytest.approx(500_000_000)
    assert probe.to_dict()["read_gb_per_s"] == pytest.approx(0.5)


def test_probe_reads_the_whole_buffer_with_every_thread_count() -> None:
    for threads in (1, 2, 3):
        probe = measure_read_bandwidth(8_000_000, threads=threads, passes=5)
        assert len(probe.pass_s) == 5
        # No machine of today reads less than 100 MB/s or more than 2 TB/s per thread; a loop that was optimized away would.
        assert 1e8 < probe.bytes_per_s < 2e12 * threads


def test_a_buffer_eight_times_as_large_takes_several_times_as_long() -> None:
    small = measure_read_bandwidth(16 << 20, threads=1, passes=21)
    large = measure_read_bandwidth(128 << 20, threads=1, passes=21)
    assert min(large.pass_s) > 3 * min(small.pass_s)


@pytest.mark.parametrize(("size", "threads", "message"), [(100, 1, "at least 4096 bytes, got 100"), (8192, 0, "at least 1, got 0")])
def test_bad_requests_name_rule_and_value(size: int, threads: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        measure_read_bandwidth(size, threads=threads)


def test_probes_over_a_run_become_one_and_strangers_are_refused() -> None:
    probes = [ReadBandwidth(buffer_bytes=10, threads=1, pass_s=(1.0,)), ReadBandwidth(buffer_bytes=10, threads=1, pass_s=(3.0, 2.0))]
    assert combine(probes).pass_s == (1.0, 3.0, 2.0)
    with pytest.raises(ValueError, match="cannot be combined"):
        combine([*probes, ReadBandwidth(buffer_bytes=11, threads=1, pass_s=(1.0,))])


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space, and reads its size from /proc")
def test_threads_that_the_system_refuses_are_an_error_and_no_abort() -> None:
    code = """
import resource
from swiftsure.kernels import _core
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
try:
    _core.read_passes(1 << 20, 512, 1)
except RuntimeError as error:
    print("refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout[:9]) == (0, "refused: "), done.stderr
