"""The default model against transformers on the same file, and the distance of each engine to the float64 twin."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from prompts import PROMPTS

import swiftsure
from swiftsure.engine.reference import ReferenceModel
from swiftsure.errors import NotActiveError
from swiftsure.kernels import reference as ref
from swiftsure.verify.upstream.agreement import Agreement, UpstreamRun, compare, run_transformers

pytestmark = [pytest.mark.model, pytest.mark.upstream]

SIZE = (4, 32)  # prompts, new tokens
FULL_SIZE = (20, 128)
THREADS = 2
UPSTREAM_THREADS = 1  # its threads spin for each other, which takes for ever on a busy machine


@dataclass(frozen=True, slots=True)
class Measured:
    """Continuations that transformers chose in float32, with rows of logits: one (tokens, vocab) array a prompt."""

    prompts: list[list[int]]
    continuations: list[list[int]]
    agreement: Agreement
    upstream: list[NDArray[np.float32]]
    ours: list[NDArray[np.float32]]
    truth: list[NDArray[np.float64]]

    def distance(self, rows: list[NDArray[np.float32]]) -> float:
        """Relative L2 to the float64 twin over all rows of all prompts."""
        pairs = zip(rows, self.truth, strict=True)
        apart, whole = np.sum([(np.sum(np.square(row - exact)), np.sum(np.square(exact))) for row, exact in pairs], axis=0)
        return float(np.sqrt(apart / whole))

    def worst(self, rows: list[NDArray[np.float32]]) -> float:
        """The largest relative L2 of a single prompt."""
        return max(ref.relative_l2(row, exact) for row, exact in zip(rows, self.truth, strict=True))


def run_or_skip(**arguments: object) -> Iterator[UpstreamRun]:
    context = run_transformers(threads=UPSTREAM_THREADS, **arguments)  # type: ignore[arg-type]
    try:
        run = context.__enter__()
    except NotActiveError as error:
        pytest.skip(str(error))
    try:
        yield run
    finally:
        context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def measured(smollm2_path: Path, warm_python: str, full: bool) -> Measured:
    count, new_tokens = FULL_SIZE if full else SIZE
    with swiftsure.load(str(smollm2_path), mode="default", threads=THREADS) as llm:
        prompts = [llm.model.encode_chat([{"role": "user", "content": text}]) for text in PROMPTS[:count]]
        for run in run_or_skip(model_path=smollm2_path, prompts=prompts, new_tokens=new_tokens, python=warm_python):
            agreement = compare(run, llm.logits)
            upstream = [np.array(item.rows()) for item in run.items]
            continuations = [list(item.tokens) for item in run.items]
        sequences = [[*prompt, *tokens[:-1]] for prompt, tokens in zip(prompts, continuations, strict=True)]
        starts = [len(prompt) - 1 for prompt in prompts]
        ours = [llm.logits(ids)[start:] for ids, start in zip(sequences, starts, strict=True)]
        twin = ReferenceModel(llm.model.schedule(), llm.model.tensors)
        truth = [twin.logits(ids)[start:] for ids, start in zip(sequences, starts, strict=True)]
    return Measured(prompts, continuations, agreement, upstream, ours, truth)


def test_the_default_agrees_with_transformers_in_float32(measured: Measured, figures: list[str]) -> None:
    agreement = measured.agreement
    figures.append(
        f"upstream, float32: largest logit difference {agreement.largest_difference:.2g}, mean KL {agreement.mean_kl:.2g}, same best token "
        f"{agreement.top1_agreement:.2%} of {agreement.rows} rows; {agreement.decided_differing} of {agreement.decided_rows} decided differ"
    )
    assert agreement.rows == sum(len(tokens) for tokens in measured.continuations)
    assert agreement.largest_difference <= 0.02
    assert agreement.decided_rows > 0.8 * agreement.rows
    assert agreement.decided_differing == 0


def test_the_default_is_within_its_distance_of_the_float64_twin(measured: Measured, figures: list[str]) -> None:
    ours, float32 = measured.distance(measured.ours), measured.distance(measured.upstream)
    worst = measured.worst(measured.ours)
    figures.append(
        f"distance to the float64 twin (relative L2): ours {ours:.3g} (worst prompt {worst:.3g}), transformers float32 {float32:.3g}"
    )
    assert ours <= 2e-4
    assert float32 <= 2e-5  # the twin itself is right: an engine that shares no line with it is this close


def test_the_default_is_far_closer_to_the_truth_than_transformers_in_bfloat16(
    measured: Measured, smollm2_path: Path, warm_python: str, figures: list[str]
) -> None:
    forced = {"prompts": measured.prompts, "forced": measured.continuations}
    for run in run_or_skip(model_path=smollm2_path, python=warm_python, dtype="bfloat16", **forced):
        theirs = measured.distance([np.array(item.rows()) for item in run.items])
    ours = measured.distance(measured.ours)
    figures.append(f"distance to the float64 twin (relative L2): transformers bfloat16 {theirs:.3g}, {theirs / ours:.0f} times ours")
    assert theirs >= 20 * ours


def test_the_default_is_far_closer_to_the_truth_than_llama_cpp(
    measured: Measured, smollm2_path: Path, llama_python: str, tmp_path: Path, figures: list[str]
) -> None:
    sequences = [[*prompt, *tokens[:-1]] for prompt, tokens in zip(measured.prompts, measured.continuations, strict=True)]
    job = {"model": str(smollm2_path), "sequences": sequences, "starts": [len(prompt) - 1 for prompt in measured.prompts]}
    (tmp_path / "job.json").write_text(json.dumps(job | {"threads": THREADS, "output": str(tmp_path)}))
    script = Path(__file__).with_name("llama_rows.py")
    done = subprocess.run([llama_python, "-I", str(script), str(tmp_path / "job.json")], capture_output=True, text=True, check=False)
    if done.returncode == 4:
        pytest.skip(f"llama.cpp: NOT MEASURED ({done.stderr.strip().splitlines()[-1]} in {llama_python}; see --llama-python)")
    assert done.returncode == 0, done.stderr
    theirs = measured.distance([np.load(tmp_path / f"rows_{index}.npy") for index in range(len(sequences))])
    ours = measured.distance(measured.ours)
    version = (tmp_path / "version").read_text()
    figures.append(f"distance to the float64 twin (relative L2): llama-cpp-python {version} {theirs:.3g}, {theirs / ours:.0f} times ours")
    assert theirs >= 20 * ours
