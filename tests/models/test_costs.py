"""What each step of a schedule costs."""

from __future__ import annotations

import pytest

from swiftsure.models.costs import decode_bytes_per_token, pass_costs, step_costs
from tiny_models import TinyModel, TinySpec, spec_of_architecture

SPEC = TinySpec(seed=1, tied=False)


def test_every_step_of_the_schedule_has_its_cost_in_order() -> None:
    model = TinyModel(SPEC)
    costs = step_costs(model.schedule, model.source(), positions=100)
    assert len(costs) == len(model.schedule.ops)
    assert [cost.name for cost in costs[:4]] == ["embed", "rms_norm", "matmul", "rope"]


def test_a_token_reads_every_tensor_and_of_the_embedding_one_row() -> None:
    model = TinyModel(SPEC)
    sizes = {name: model.source().info(name).nbytes for name in model.tensors}
    embedding = sizes.pop("token_embd.weight")
    assert decode_bytes_per_token(model.source(), model.schedule) == sum(sizes.values()) + embedding // SPEC.vocab


def test_a_matmul_multiplies_and_adds_once_per_weight() -> None:
    model = TinyModel(SPEC)
    costs = step_costs(model.schedule, model.source(), positions=100)
    weights = sum(t.shape[0] * t.shape[1] for t in model.tensors.values() if len(t.shape) == 2 and t.name != "token_embd.weight")
    assert sum(cost.operations for cost in costs if cost.name == "matmul") == 2 * weights


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [("qwen2", {"add_bias": (1, 128)}), ("qwen3", {"head_norm": (2, 4 * 96)}), ("gemma3", {"head_norm": (2, 4 * 96)})],
)
def test_operations_of_other_architectures_cost_their_vectors(architecture: str, expected: dict[str, tuple[int, int]]) -> None:
    model = TinyModel(spec_of_architecture(architecture))
    costs = step_costs(model.schedule, model.source(), positions=100)
    for name, (count, operations) in expected.items():
        found = [cost for cost in costs if cost.name == name]
        assert len(found) == count * model.spec.layers
        assert sum(cost.operations for cost in found) == operations * model.spec.layers
        assert all(cost.weight_bytes == sum(model.source().info(read).nbytes for read in cost.reads[1:]) > 0 for cost in found)


def test_only_attention_grows_with_the_context() -> None:
    model = TinyModel(SPEC)
    short = step_costs(model.schedule, model.source(), positions=10)
    long = step_costs(model.schedule, model.source(), positions=20)
    for a, b in zip(short, long, strict=True):
        if a.name == "attention":
            assert (b.kv_bytes, b.operations) == (2 * a.kv_bytes, 2 * a.operations)
            assert a.kv_bytes == 10 * 2 * SPEC.kv_heads * (2 * SPEC.head_dim + 4)
        else:
            assert a == b


def test_attention_with_a_window_costs_what_it_sees() -> None:
    """Layer 0 sees 20 positions, layer 1 all; rows of a pass share what they read."""
    spec = spec_of_architecture("gemma3", window=20, global_every=2)
    model = TinyModel(spec)

    def attentions(positions: int, rows: int) -> list[tuple[int, int]]:
        costs = pass_costs(model.schedule, model.source(), positions=positions, rows=rows, wanted=1)
        per_key = (2 * spec.kv_heads * (2 * spec.head_dim + 4), 4 * spec.heads * spec.head_dim)
        return [(cost.kv_bytes // per_key[0], cost.operations // per_key[1]) for cost in costs if cost.name == "attention"]

    assert attentions(15, 1) == [(15, 15), (15, 15)]
    assert attentions(100, 1) == [(20, 20), (100, 100)]
    assert attentions(100, 5) == [(24, 100), (100, 96 + 97 + 98 + 99 + 100)]
    assert attentions(22, 4) == [(22, 19 + 20 + 20 + 20), (22, 19 + 20 + 21 + 22)]


def test_a_pass_of_one_row_costs_what_a_step_costs() -> None:
    model = TinyModel(SPEC)
    one = step_costs(model.schedule, model.source(), positions=100)
    assert pass_costs(model.schedule, model.source(), positions=100, rows=1, wanted=1) == one


def test_rows_share_weights_and_cache_and_each_sees_what_is_before_it() -> None:
    model = TinyModel(SPEC)
    one = step_costs(model.schedule, model.source(), positions=100)
    four = pass_costs(model.schedule, model.source(), positions=100, rows=4, wanted=2)
    for a, b in zip(one, four, strict=True):
        if a.name == "attention":
            assert (b.kv_bytes, b.operations) == (a.kv_bytes, a.operations // 100 * (97 + 98 + 99 + 100))
        elif a.name in ("embed", "store_kv"):
            assert (b.weight_bytes, b.kv_bytes) == (4 * a.weight_bytes, 4 * a.kv_bytes)
        else:
            assert (b.weight_bytes, b.kv_bytes) == (a.weight_bytes, a.kv_bytes)
    assert four[-1].operations == 2 * one[-1].operations
    assert four[1].operations == 4 * one[1].operations


def test_a_pass_that_wants_no_logits_does_not_read_the_head() -> None:
    model = TinyModel(SPEC)
    head = pass_costs(model.schedule, model.source(), positions=8, rows=8, wanted=0)[-1]
    assert (head.weight_bytes, head.operations) == (0, 0)
