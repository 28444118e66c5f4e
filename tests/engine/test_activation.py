"""Modes, levers and the activation grammar."""

from __future__ import annotations

import pytest
from fakes import ALL_LEVERS, FakeBackend, make_engine, make_llm, request, run_all

from swiftsure.engine.activation import Activation, lever_states, not_active_line, require_available, resolve_mode
from swiftsure.engine.evidence import Evidence
from swiftsure.engine.modes import LEVERS, MODES, EngineFacts, active_levers, mode_spec
from swiftsure.engine.numerics import NUMERIC_LEVERS
from swiftsure.errors import NotActiveError, UsageError


def activation(**changes) -> Activation:
    values = {
        "mode": "exact",
        "model": "smollm2-135m-instruct",
        "weights_sha256": "b179c953",
        "numerics": "cpu1",
        "isa": "avx2",
        "threads": 2,
        "levers": ("speculation", "prefix_cache"),
    }
    return Activation(**values | changes)


def test_lines_follow_the_grammar():
    states = lever_states(("speculation",), ("prefix_cache",), evidence(occasions=57, drafted=412, accepted=371))
    run = activation(levers=("speculation",), levers_off=("prefix_cache",), lever_states=states)
    assert run.active_line() == (
        "ACTIVE mode=exact model=smollm2-135m-instruct weights=sha256:b179c953 numerics=cpu1 isa=avx2 threads=2 levers=speculation "
        "levers_off=prefix_cache"
    )
    assert run.lever_lines() == [
        "LEVER name=speculation state=on occasions=57 declined=0 drafted=412 accepted=371 passes=0",
        "LEVER name=prefix_cache state=off occasions=0 evicted=0 lookups=0 hits=0 tokens_reused=0",
    ]
    assert run.exit_line("ok", 20, 20, 12.44) == "EXIT mode=exact status=ok items=20/20 wall_s=12.4"
    assert not_active_line("fast", "no levers  yet\n") == "NOT ACTIVE mode=fast reason=no_levers_yet"
    assert activation(mode="default", levers=()).active_line().endswith("levers=none")


def test_values_hold_no_blanks():
    for line in (activation(model="my model.gguf").active_line(), not_active_line("fast", "a b")):
        words = line.removeprefix("NOT ACTIVE").removeprefix("ACTIVE").split()
        assert all("=" in word for word in words)


def evidence(**counts: int) -> Evidence:
    found = Evidence()
    for name, value in counts.items():
        setattr(found.speculation, name, value)
    return found


@pytest.mark.parametrize(
    ("counts", "state", "proved"),
    [
        ({}, "idle", True),
        ({"occasions": 5, "drafted": 9}, "on", True),
        ({"occasions": 5, "drafted": 0}, "on", False),
        ({"occasions": 5, "declined": 5}, "on", True),
        ({"occasions": 5, "declined": 4}, "on", False),
    ],
)
def test_lever_is_unproved_where_occasions_arose_and_its_evidence_is_missing(counts, state, proved):
    (lever,) = lever_states(("speculation",), (), evidence(**counts))
    run = activation(lever_states=(lever,))
    assert lever.state == state
    assert (run.status == "ok") == proved
    assert bool(run.unproved) != proved


def test_lever_that_is_off_owes_no_evidence():
    (lever,) = lever_states((), ("speculation",), evidence(occasions=5))
    assert (lever.state, lever.unproved) == ("off", None)


def test_broken_lever_is_noticed():
    """A drafter that offers drafts which the passes then never carry must end as unproved."""
    engine = make_engine(FakeBackend(reach=1), levers=("speculation",))
    plan_drafts = engine._plan_drafts

    def plan_and_lose():
        plan_drafts()
        for seq in engine.running:
            seq.draft_length = 0

    engine._plan_drafts = plan_and_lose
    run_all(engine, [request([1], max_tokens=100)])
    (state,) = lever_states(engine.levers, (), engine.evidence)
    assert engine.evidence.speculation.drafted == 0
    assert state.unproved is not None


def test_dictionary_names_levers_states_and_status():
    found = activation(lever_states=lever_states(("speculation",), (), evidence(occasions=1))).to_dict()
    assert found["levers"]["speculation"]["state"] == "on"
    assert found["status"] == "unproved"
    assert found["levers_on"] == ["speculation", "prefix_cache"]


def test_mode_comes_from_argument_or_variable_and_they_must_agree(monkeypatch):
    monkeypatch.delenv("SWIFTSURE_MODE", raising=False)
    assert (resolve_mode(None), resolve_mode("exact")) == ("default", "exact")
    monkeypatch.setenv("SWIFTSURE_MODE", "exact")
    assert (resolve_mode(None), resolve_mode("exact")) == ("exact", "exact")
    with pytest.raises(UsageError, match="mode 'default' and SWIFTSURE_MODE='exact' disagree"):
        resolve_mode("default")


def test_unknown_mode_names_the_known_ones(monkeypatch):
    with pytest.raises(UsageError, match="unknown mode 'turbo'; known modes: default, exact, fast, big"):
        resolve_mode("turbo")
    monkeypatch.setenv("SWIFTSURE_MODE", "turbo")
    with pytest.raises(UsageError, match="SWIFTSURE_MODE: unknown mode 'turbo'"):
        resolve_mode(None)


def test_mode_of_a_later_release_is_not_active_and_says_why():
    with pytest.raises(NotActiveError, match=r"mode big is not active: its levers .* not part of this release"):
        require_available("big")


def test_levers_can_be_left_off_by_name_only_where_the_mode_has_them():
    assert active_levers(mode_spec("exact"), ["batching", "speculation"]) == (
        ("prefix_cache", "chunked_prefill"),
        ("speculation", "batching"),
    )
    with pytest.raises(
        UsageError, match="mode exact has no lever 'warp'; its levers: speculation, prefix_cache, batching, chunked_prefill"
    ):
        active_levers(mode_spec("exact"), ["warp"])
    with pytest.raises(UsageError, match="mode default has no lever 'speculation'; its levers: none"):
        active_levers(mode_spec("default"), "speculation")


def test_every_lever_of_a_mode_is_specified_and_counted():
    assert {name for mode in MODES.values() for name in mode.levers} == set(LEVERS)
    for lever in LEVERS.values():
        counts = Evidence().of(lever.name)
        assert {"occasions", lever.proof} <= set(counts)
        assert lever.excused is None or lever.excused in counts


def test_requirement_of_a_lever_is_checked_with_a_reason():
    small = EngineFacts(max_rows=1, max_logit_rows=1, kv_blocks=1)
    assert [lever.unmet(small) is None for lever in LEVERS.values()] == [name in NUMERIC_LEVERS for name in LEVERS]
    assert LEVERS["speculation"].unmet(small) == "logit rows a pass must be at least 2, got 1"
    assert all(lever.unmet(EngineFacts(max_rows=2, max_logit_rows=2, kv_blocks=2)) is None for lever in LEVERS.values())


def test_activation_of_a_loaded_model_counts_while_it_runs():
    with make_llm(FakeBackend(reach=1), levers=ALL_LEVERS) as llm:
        assert {state.state for state in llm.activation.lever_states} == {"idle"}
        llm.generate([1, 2, 3], max_tokens=100)
        states = {state.name: state for state in llm.activation.lever_states}
        assert states["speculation"].state == "on"
        assert states["batching"].state == "idle"
        assert llm.activation.status == "ok"
        assert llm.activation.passes["passes"] > 0
