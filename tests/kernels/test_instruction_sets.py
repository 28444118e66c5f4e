"""The choice of an instruction set: a name that cannot run is refused, never replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from swiftsure.errors import NotActiveError, UsageError
from swiftsure.kernels import KNOWN_ISAS, _core, resolve_isa, supported_isas


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWIFTSURE_ISA", raising=False)


def test_portable_is_always_there_and_last() -> None:
    assert supported_isas()[-1] == "portable"
    assert set(supported_isas()) <= set(KNOWN_ISAS)


def test_without_a_request_the_best_runs() -> None:
    assert resolve_isa() == supported_isas()[0]


def test_the_environment_chooses_unless_an_argument_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFTSURE_ISA", "portable")
    assert resolve_isa() == "portable"
    assert resolve_isa(supported_isas()[0]) == supported_isas()[0]


def test_an_unknown_name_is_a_usage_error_that_lists_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"isa must be one of amx, avx512_vnni, .*portable, got 'sse2'"):
        resolve_isa("sse2")
    monkeypatch.setenv("SWIFTSURE_ISA", "fastest")
    with pytest.raises(UsageError, match=r"SWIFTSURE_ISA must be one of .* got 'fastest'"):
        resolve_isa()


def test_this_build_offers_nothing_it_has_not_got() -> None:
    assert set(supported_isas()) <= set(_core.built_isas()) <= set(KNOWN_ISAS)


@pytest.mark.parametrize("name", [name for name in KNOWN_ISAS if name != "portable"])
def test_a_name_that_this_build_lacks_is_not_active(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "built_isas", lambda: ["portable"])
    monkeypatch.setattr(_core, "supported_isas", lambda: ["portable"])
    with pytest.raises(NotActiveError, match=f"{name} is not available: no kernels for it in this build; available: portable"):
        resolve_isa(name)


@pytest.mark.skipif(_core.built_isas()[0] != "amx", reason="this build has no amx kernels")
def test_amx_is_offered_where_the_processor_has_tiles_and_the_system_grants_them() -> None:
    """Asked for in a process of its own, in the test's own words."""
    grant = "import ctypes; print(ctypes.CDLL(None, use_errno=True).syscall(158, 0x1023, 18))"  # arch_prctl(ARCH_REQ_XCOMP_PERM, 18)
    granted = subprocess.run([sys.executable, "-c", grant], capture_output=True, text=True, check=True).stdout.strip() == "0"
    words = Path("/proc/cpuinfo").read_text().split()
    assert ("amx" in supported_isas()) == (granted and "amx_tile" in words and "amx_int8" in words and "avx512_vnni" in words)


def test_a_name_this_machine_does_not_run_is_not_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "built_isas", lambda: ["avx2", "portable"])
    monkeypatch.setattr(_core, "supported_isas", lambda: ["portable"])
    with pytest.raises(NotActiveError, match="avx2 is not available: this machine does not run it; available: portable"):
        resolve_isa("avx2")
