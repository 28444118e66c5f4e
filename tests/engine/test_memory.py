"""The memory plan: what fits is taken, what was asked for is kept to or refused with the numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftsure.engine.memory import Available, available_memory, parse_bytes, plan_memory
from swiftsure.errors import CapacityError, UsageError
from swiftsure.models.kv_size import kv_bytes_per_position
from tiny_models import TinyModel, TinySpec

SCHEDULE = TinyModel(TinySpec(layers=2, kv_heads=2, head_dim=16, context=4096)).schedule
PER_TOKEN = 2 * 2 * 2 * (2 * 16 + 4)
GIB = 1 << 30


def plan(available_bytes: int = 8 * GIB, **choices):
    return plan_memory(SCHEDULE, weight_bytes=1_000_000, available=Available(bytes=available_bytes, limited_by="system"), **choices)


def test_bytes_of_a_token_are_int16_values_and_a_scale_per_head_vector():
    assert kv_bytes_per_position(SCHEDULE) == PER_TOKEN


def test_int8_values_take_half_of_all_but_the_scales():
    assert kv_bytes_per_position(SCHEDULE, 8) == 2 * 2 * 2 * (16 + 4)
    chosen = plan(kv_bits=8)
    assert (chosen.kv_bytes_per_token, chosen.kv_bytes) == (160, 4096 * 160)


def test_all_of_the_models_context_is_taken_where_it_fits():
    chosen = plan()
    assert (chosen.context, chosen.limited_by, chosen.kv_blocks) == (4096, "model", 128)
    assert chosen.kv_bytes == 4096 * PER_TOKEN
    assert chosen.reason == "context 4096, all of the model's; key-value cache 1.2 MB"


def test_context_is_fitted_to_a_key_value_limit_and_the_plan_says_so():
    chosen = plan(kv_memory=1000 * PER_TOKEN)
    assert (chosen.context, chosen.limited_by) == (992, "kv_memory")
    assert "context 992 of the model's 4096, as much as fits the kv_memory limit" in chosen.reason
    assert chosen.fitted
    assert not plan(context=100).fitted
    assert not plan().fitted


def test_context_is_fitted_to_the_memory_at_hand():
    chosen = plan(available_bytes=1_000_000 + (128 << 20) + 2 * 640 * PER_TOKEN)
    assert (chosen.context, chosen.limited_by) == (640, "system")


def test_a_cache_for_several_contexts_takes_what_fits_and_at_least_one():
    whole, some = plan(context=100, kv_contexts=4), plan(context=100, kv_contexts=4, kv_memory=300 * PER_TOKEN)
    assert (whole.context, whole.kv_blocks, whole.kv_bytes) == (100, 16, 512 * PER_TOKEN)
    assert whole.reason == "context 100 as asked; key-value cache 0.1 MB for 512 tokens of all requests"
    assert (some.context, some.kv_blocks) == (100, 9)
    assert plan(kv_contexts=4, kv_memory=1000 * PER_TOKEN).kv_blocks == plan(kv_memory=1000 * PER_TOKEN).kv_blocks == 31
    close = plan(available_bytes=1_000_000 + (128 << 20) + 700 * PER_TOKEN, context=100, kv_contexts=9, kv_memory=10_000 * PER_TOKEN)
    assert close.kv_blocks == 21, "a limit beyond what is available is no room"
    with pytest.raises(UsageError, match="kv_contexts must be an integer of at least 1, got 0"):
        plan(kv_contexts=0)


def test_context_that_was_asked_for_is_kept_to():
    assert (plan(context=100).context, plan(context=100).kv_blocks, plan(context=100).limited_by) == (100, 4, "request")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"context": 2000, "kv_memory": 1000 * PER_TOKEN},
            r"a context of 2000 tokens needs 0\.6 MB .*limit is 0\.3 MB \(kv_memory\): room for 992",
        ),
        ({"kv_memory": 10}, r"a context of 256 tokens needs .* room for 0 tokens"),
        ({"available_bytes": 1_000_000}, r"1\.0 MB are available by system, the key-value limit is 0\.0 MB \(50% of the rest\)"),
        ({"available_bytes": 1_000_000, "kv_memory": "1GB"}, r"1\.0 MB are available by system"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(choices, message):
    with pytest.raises(CapacityError, match=message):
        plan(**choices)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (0, "context must be an integer of at least 1, got 0"),
        (5000, "context must be at most the model's 4096, got 5000"),
        (1.5, "got 1.5"),
    ],
)
def test_context_outside_the_rules_is_a_usage_error(context, message):
    with pytest.raises(UsageError, match=message):
        plan(context=context)


@pytest.mark.parametrize(("text", "size"), [("512MB", 512_000_000), ("1.5GiB", 3 << 29), ("7", 7), ("2 kb", 2000), (12, 12)])
def test_sizes_are_read_with_their_units(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "5 bananas", "-1", -1, True, 1.5, "nan"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="memory size"):
        parse_bytes(text)


def look(root: Path, **files: str) -> Available:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return available_memory(root)


def test_the_smaller_of_system_and_cgroup_is_available(tmp_path):
    found = look(tmp_path, proc__meminfo="MemTotal: 9 kB\nMemAvailable:    8000 kB\n", proc__self__cgroup="0::/a\n")
    assert found == Available(bytes=8_192_000, limited_by="system")
    group = {"sys__fs__cgroup__a__memory_dot_max": "5000000", "sys__fs__cgroup__a__memory_dot_current": "4000000"}
    found = look(tmp_path, **group, sys__fs__cgroup__a__memory_dot_stat="anon 5\ninactive_file 2000000\n")
    assert found == Available(bytes=3_000_000, limited_by="cgroup")


def test_a_limit_of_the_process_s_own_data_counts(tmp_path):
    limits = "Limit Soft Limit Hard Limit Units\nMax data size             {} unlimited            bytes\n"
    files = {"proc__meminfo": "MemAvailable:    8000 kB\n", "proc__self__status": "VmPeak: 9 kB\nVmData:     1000 kB\n"}
    found = look(tmp_path, **files, proc__self__limits=limits.format("3024000"))
    assert found == Available(bytes=2_000_000, limited_by="data size")
    assert look(tmp_path, **files, proc__self__limits=limits.format("unlimited")).limited_by == "system"
    assert look(tmp_path, **files, proc__self__limits=limits.format("1000")).bytes == 0


def test_a_system_that_does_not_say_is_taken_for_a_small_one(tmp_path):
    assert look(tmp_path) == Available(bytes=4 << 30, limited_by="system")


def test_this_machine_states_its_memory():
    assert available_memory().bytes > 100 << 20
