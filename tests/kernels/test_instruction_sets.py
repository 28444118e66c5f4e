"""The choice of an instruction set: a name that cannot run is refused, never replaced."""

from __future__ import annotations

import pytest

from swiftsure.errors import NotActiveError, UsageError
from swiftsure.kernels import KNOWN_ISAS, resolve_isa, supported_isas


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


def test_amx_is_known_and_not_active_in_this_build() -> None:
    with pytest.raises(NotActiveError, match="amx is not available: no kernels for it in this build"):
        resolve_isa("amx")


def test_a_name_this_machine_does_not_run_is_not_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swiftsure.kernels.instruction_sets.supported_isas", lambda: ("portable",))
    with pytest.raises(NotActiveError, match="avx2 is not available: this machine does not run it; available: portable"):
        resolve_isa("avx2")
