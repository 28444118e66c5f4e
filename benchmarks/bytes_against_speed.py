"""Is decoding as fast as its bytes are few? One model's weights at 16, 8.5, 5 and 4.5 bits, timed in turn.

    python -m benchmarks.bytes_against_speed [--model NAME] [--random none|350m] [--rounds 8] [--tokens 32] [--threads 2] [--out FOLDER]

Makes, in a temporary folder, the BF16 twin of the catalogue's model and a random llama of about 350 M parameters, and of each the three
quantized versions (plain rounding: the speed does not depend on the method). All versions of a model are loaded at once and take turns, in
an order that moves on by one each round; a turn decodes greedily from the same prompt in mode default. Per version: the median of its
turns' milliseconds a token, and the median of its ratios to BF16 in the same round. The line time = a + b * bytes is fitted to the medians
by least squares. ``gain_kept`` says how proportional it is: the logarithm of the speed-up over the logarithm of the ratio of bytes, 1 when
half the bytes take half the time.

Writes ``bytes_against_speed.json`` and ``.svg`` to the folder (default: benchmarks/results).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import swiftsure
from benchmarks.bytes_against_speed_chart import chart
from benchmarks.peers.neighbours import others_share, read_clock
from benchmarks.wide_models import write_bf16_twin, write_random_llama
from swiftsure.models.catalogue import DEFAULT_MODEL, resolve
from swiftsure.models.quantize_file import quantize_file
from swiftsure.records.machine import read_machine
from swiftsure.records.memory_wall import ReadBandwidth, combine, measure_read_bandwidth
from swiftsure.records.statistics import median, paired_ratio

TYPES = ("BF16", "Q8_0", "Q4_1", "Q4_0")
BITS = {"BF16": 16.0, "Q8_0": 8.5, "Q4_1": 5.0, "Q4_0": 4.5}
RANDOM_SIZES = {"350m": {"layers": 27, "hidden": 1024, "intermediate": 2816, "heads": 16, "kv_heads": 4}}
PROMPT = "Memory bandwidth decides how fast a language model writes, because"
RESULTS = Path(__file__).parent / "results"


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    source = resolve(options.model)
    before = read_clock([os.getpid()])
    models = {}
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        wide = Path(folder) / "wide.gguf"
        write_bf16_twin(source.path, wide)
        models[source.name] = _measure_model(wide, options)
        if options.random != "none":
            write_random_llama(source.path, wide, **RANDOM_SIZES[options.random])
            models[f"random llama {options.random}"] = _measure_model(wide, options)
    result = {
        "what": "decode time of mode default against the bytes a token reads",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": {"name": source.name, "sha256": source.sha256},
        "threads": options.threads,
        "rounds": options.rounds,
        "tokens_a_turn": options.tokens,
        "others_cpu_share": others_share(before, read_clock([os.getpid()])),
        "machine": read_machine().to_dict(),
        "models": models,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "bytes_against_speed.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "bytes_against_speed.svg").write_text(chart(models))
    _print(result)
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bytes_against_speed", description="Decode time against bytes a token.")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="catalogue name or GGUF file of the llama family (default: %(default)s)")
    parser.add_argument(
        "--random", choices=("none", *RANDOM_SIZES), default="350m", help="a larger random model too (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=8, help="turns of each version (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="decoded in a turn (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, help="where the models are made; 3 GB (default: the system's temporary folder)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (default: %(default)s)")
    options = parser.parse_args(argv)
    for name in ("rounds", "tokens", "threads"):
        least = 2 if name == "tokens" else 1
        if getattr(options, name) < least:
            parser.error(f"--{name} must be at least {least}, got {getattr(options, name)}")
    return options


def _measure_model(wide: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All versions of one model, turn by turn."""
    files = {"BF16": wide}
    for kind in TYPES[1:]:
        files[kind] = wide.with_name(f"{kind}.gguf")
        quantize_file(resolve(wide), files[kind], kind, method="rtn", force=True, threads=options.threads, version=swiftsure.__version__)
    turns: dict[str, list[float]] = {kind: [] for kind in TYPES}
    with ExitStack() as stack:
        models = {
            kind: stack.enter_context(swiftsure.load(path, mode="default", threads=options.threads, context=512, cache=False))
            for kind, path in files.items()
        }
        token_bytes = {kind: int(models[kind].model.info()["decode_bytes_per_token"]) for kind in TYPES}
        probes = [_read_probes(token_bytes, options.threads)]
        for turn in range(-1, options.rounds):  # the first round warms up
            for at in range(len(TYPES)):
                kind = TYPES[(at + turn) % len(TYPES)]
                seconds = _decode_s(models[kind], options.tokens)
                if turn >= 0:
                    turns[kind].append(1000 * seconds)
        probes.append(_read_probes(token_bytes, options.threads))
        facts = {"parameters": models["BF16"].model.info()["parameters"], "isa": models["BF16"].activation.isa}
    walls = {kind: 1000 * token_bytes[kind] / combine([probe[kind] for probe in probes]).bytes_per_s for kind in TYPES}
    return facts | summarize(turns, token_bytes, walls)


def _read_probes(token_bytes: Mapping[str, int], threads: int) -> dict[str, ReadBandwidth]:
    return {kind: measure_read_bandwidth(count, threads=threads, passes=7) for kind, count in token_bytes.items()}


def _decode_s(llm: swiftsure.LLM, tokens: int) -> float:
    """Seconds a token."""
    llm.clear_caches()
    made = llm.generate(PROMPT, max_tokens=tokens, temperature=0.0, ignore_eos=True)
    return made.timing.decode_s / (made.timing.output_tokens - 1)


def summarize(turns: Mapping[str, Sequence[float]], token_bytes: Mapping[str, int], walls: Mapping[str, float]) -> dict[str, Any]:
    """What the record says of one model: milliseconds and bytes a token by type, the line through them, and how proportional they are.

    ``walls``: milliseconds that reading as many bytes took. The first type is the base of ratios.
    """
    base = next(iter(turns))
    times = {kind: median(values) for kind, values in turns.items()}
    a, b = fit_line([token_bytes[kind] for kind in turns], list(times.values()))
    versions = {}
    for kind in turns:
        ratio = paired_ratio([list(zip(turns[base], turns[kind], strict=True))])
        fewer = token_bytes[base] / token_bytes[kind]
        versions[kind] = {
            "bits_a_weight": BITS[kind],
            "bytes_a_token": token_bytes[kind],
            "ms_a_token": times[kind],
            "turns_ms": list(turns[kind]),
            "gb_per_s": token_bytes[kind] / times[kind] / 1e6,
            "wall_fraction": walls[kind] / times[kind],
            "bytes_ratio": fewer,
            "speed_up": ratio.to_dict() if ratio else None,
            "gain_kept": math.log(ratio.value) / math.log(fewer) if ratio and kind != base else None,
            "fit_ms": a + b * token_bytes[kind],
        }
    return {
        "versions": versions,
        "fit": {
            "fixed_ms": a,
            "ns_a_byte": b * 1e6,
            "gb_per_s": 1 / b / 1e6,
            "fixed_share_at_16_bits": a / times[base],
            "largest_residual": max(abs(times[kind] / (a + b * token_bytes[kind]) - 1) for kind in turns),
        },
    }


def fit_line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Least squares: y = a + b * x."""
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    b = float(((xs - xs.mean()) * (ys - ys.mean())).sum() / np.square(xs - xs.mean()).sum())
    return float(ys.mean() - b * xs.mean()), b


def _print(result: Mapping[str, Any]) -> None:
    print(f"others used {result['others_cpu_share']:.0%} of the machine meanwhile")
    for name, model in result["models"].items():
        print(f"\n{name}: {model['parameters'] / 1e6:.0f} M parameters, {model['isa']}")
        for kind, version in model["versions"].items():
            kept = "" if version["gain_kept"] is None else f"  gain kept {version['gain_kept']:.2f}"
            up = version["speed_up"]
            print(
                f"  {kind:5} {version['bytes_a_token'] / 1e6:7.1f} MB {version['ms_a_token']:7.2f} ms {version['gb_per_s']:5.1f} GB/s"
                f"  wall {version['wall_fraction']:4.0%}  bytes 1/{version['bytes_ratio']:.2f}  speed {up['ratio']:.2f}{kept}"
            )
        fit = model["fit"]
        print(
            f"  time = {fit['fixed_ms']:.2f} ms + bytes / ({fit['gb_per_s']:.1f} GB/s); the fixed part is"
            f" {fit['fixed_share_at_16_bits']:.0%} of a token at 16 bits; residuals up to {fit['largest_residual']:.0%}"
        )


if __name__ == "__main__":
    sys.exit(main())
