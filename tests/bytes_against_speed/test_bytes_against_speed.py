"""The curve of bytes against speed: models of the stated types, the least-squares line, a record and a chart of every version."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import gguf
import numpy as np
import pytest
from benchmarks.bytes_against_speed import TYPES, fit_line, main, summarize
from benchmarks.wide_models import to_bf16, write_bf16_twin, write_random_llama

from swiftsure.kernels import reference
from swiftsure.models.gguf import GGUFFile
from tiny_models import TinyModel, TinySpec

BYTES = {"BF16": 1600, "Q8_0": 850, "Q4_1": 500, "Q4_0": 450}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(seed=5)).write_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def test_times_in_proportion_to_bytes_keep_the_whole_gain() -> None:
    facts = summarize({kind: [BYTES[kind] / 100] * 6 for kind in TYPES}, BYTES, {kind: BYTES[kind] / 200 for kind in TYPES})
    assert facts["fit"]["fixed_ms"] == pytest.approx(0, abs=1e-9)
    assert facts["fit"]["largest_residual"] == pytest.approx(0, abs=1e-9)
    assert [facts["versions"][kind]["gain_kept"] for kind in TYPES[1:]] == pytest.approx([1, 1, 1])
    assert facts["versions"]["Q4_0"]["speed_up"]["ratio"] == pytest.approx(16 / 4.5)
    assert facts["versions"]["Q4_0"]["wall_fraction"] == pytest.approx(0.5)


def test_a_fixed_part_is_found_and_costs_gain() -> None:
    facts = summarize({kind: [4 + BYTES[kind] / 100] * 6 for kind in TYPES}, BYTES, dict.fromkeys(TYPES, 1.0))
    assert facts["fit"]["fixed_ms"] == pytest.approx(4)
    assert facts["fit"]["fixed_share_at_16_bits"] == pytest.approx(0.2)
    assert facts["versions"]["Q4_0"]["gain_kept"] < 0.8


def test_the_line_is_that_of_least_squares() -> None:
    x, y = [1.0, 2.0, 5.0, 9.0], [3.0, 3.5, 9.0, 12.0]
    b, a = np.polyfit(x, y, 1)
    assert fit_line(x, y) == pytest.approx((a, b))


def test_bf16_is_rounded_to_nearest_even_as_gguf_does() -> None:
    values = np.random.default_rng(0).normal(0, 1, (64, 64)).astype(np.float32)
    values[0, :4] = [1 + 2**-8, 1 + 3 * 2**-8, -0.0, 1e-40]  # two ties, a signed zero, a subnormal
    np.testing.assert_array_equal(to_bf16(values), gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16))


def test_the_twin_has_the_sources_values_rounded_once(tiny: Path, tmp_path: Path) -> None:
    write_bf16_twin(tiny, tmp_path / "twin.gguf")
    with GGUFFile(tiny) as before, GGUFFile(tmp_path / "twin.gguf") as after:
        for name in before.names():
            old, new = (reference.dequantize(f.info(name).type, f.read(name), f.info(name).shape) for f in (before, after))
            assert after.info(name).type == ("BF16" if old.ndim == 2 else "F32")
            assert np.all(np.abs(new - old) <= np.abs(old) * 2.0**-8)


def test_a_random_llama_has_the_stated_sizes(tiny: Path, tmp_path: Path) -> None:
    write_random_llama(tiny, tmp_path / "random.gguf", layers=3, hidden=96, intermediate=64, heads=6, kv_heads=3)
    with GGUFFile(tmp_path / "random.gguf") as file:
        assert file.info("blk.2.ffn_down.weight").shape == (96, 64)
        assert file.info("blk.2.attn_k.weight").shape == (48, 96)
        assert file.metadata.integer("llama.block_count") == 3
        values = reference.dequantize("BF16", file.read("token_embd.weight"), file.info("token_embd.weight").shape)
        assert values.std() == pytest.approx(96**-0.5, rel=0.05)


def test_a_run_writes_a_record_and_a_chart_of_every_version(tiny: Path, tmp_path: Path) -> None:
    arguments = ["--model", str(tiny), "--random", "none", "--rounds", "5", "--tokens", "3", "--threads", "1"]
    assert main([*arguments, "--out", str(tmp_path / "out"), "--work", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "out" / "bytes_against_speed.json").read_text())
    (model,) = record["models"].values()
    assert list(model["versions"]) == list(TYPES)
    assert all(len(version["turns_ms"]) == 5 for version in model["versions"].values())
    assert [version["bytes_a_token"] for version in model["versions"].values()] == sorted(
        (version["bytes_a_token"] for version in model["versions"].values()), reverse=True
    )
    chart = ET.parse(tmp_path / "out" / "bytes_against_speed.svg").getroot()
    assert len(chart.findall("{http://www.w3.org/2000/svg}circle")) == len(TYPES)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]  # the models are gone


def test_too_few_rounds_or_tokens_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value, rule in (
        ("--rounds", "0", "--rounds must be at least 1, got 0"),
        ("--tokens", "1", "--tokens must be at least 2, got 1"),
    ):
        with pytest.raises(SystemExit):
            main([option, value])
        assert rule in capsys.readouterr().err
