"""Agreement with the upstream release: transformers, at the version installed, in a clean process on the same weights.

"Same model" means two things that are always shown apart: bits against our own default, and this agreement. Not measured is said, never
assumed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import NotActiveError, SwiftsureError, UsageError
from swiftsure.kernels import reference as ref
from swiftsure.verify.upstream import child

LogitsOf: TypeAlias = Callable[[list[int]], NDArray[np.float32]]  # token ids -> (n, vocab)

LIBRARIES = ("torch", "transformers", "accelerate", "gguf")

# Two logits closer than this are a tie: float32 engines that add in another order may choose either.
DECIDED_GAP = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRow:
    """What transformers did with one prompt."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]  # the continuation
    ttft_s: float | None  # None when the continuation was given
    decode_s: float | None  # from the first to the last token
    rows_path: Path

    def rows(self) -> NDArray[np.float32]:
        """(tokens, vocab): row j is what token j was chosen from. Memory mapped; gone when the run's folder is."""
        return np.asarray(np.load(self.rows_path, mmap_mode="r"))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRun:
    """One process of transformers."""

    versions: dict[str, str]
    dtype: str
    threads: int
    load_s: float
    peak_rss_bytes: int
    items: tuple[UpstreamRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Logits of one engine against another's over the same tokens."""

    rows: int
    largest_difference: float
    mean_kl: float  # KL(upstream || ours), nats
    top1_agreement: float  # share of rows with the same best token
    decided_rows: int  # rows whose two best upstream logits are further apart than DECIDED_GAP
    decided_differing: int  # of those, rows with another best token

    def figures(self) -> dict[str, float]:
        """By the names that a contract limits."""
        return {"absolute": self.largest_difference, "kl_mean": self.mean_kl, "top1_agreement": self.top1_agreement}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamResult:
    """Speeds are medians over prompts; every figure is of this run on this machine."""

    versions: dict[str, str]
    dtype: str
    threads: int
    prompts: int
    new_tokens: int
    load_s: float
    ttft_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    peak_rss_bytes: int
    agreement: Agreement

    def to_dict(self) -> dict[str, Any]:
        return {"library": "transformers", **asdict(self)}

    def line(self) -> str:
        """One line for people."""
        a = self.agreement
        return (
            f"upstream: transformers {self.versions['transformers']}, torch {self.versions['torch']}, {self.dtype}: "
            f"largest logit difference {a.largest_difference:.2g}, mean KL {a.mean_kl:.2g}, "
            f"same best token {a.top1_agreement:.2%} of {a.rows} rows "
            f"({a.decided_differing} of {a.decided_rows} decided rows differ)"
        )


def require_upstream() -> None:
    """Raises NotActiveError before anything runs when a library that a comparison needs is missing."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise NotActiveError(f"upstream: NOT MEASURED ({', '.join(missing)} not installed; pip install 'swiftsure[upstream]')")


def measure_upstream(
    model_path: Path,
    prompts_ids: Sequence[Sequence[int]],
    new_tokens: int,
    threads: int,
    *,
    python: str = sys.executable,
    isa: str | None = None,
    default_logits: LogitsOf | None = None,
) -> UpstreamResult:
    """Runs transformers (float32, greedy) on a model and compares its logits with those of our default on the same tokens.

    Args:
        prompts_ids: token ids of each prompt.
        new_tokens: continuation per prompt, at least 2; end-of-turn tokens are not heeded, so that every prompt counts the same.
        threads: of both engines.
        python: an interpreter that has torch, transformers, accelerate and gguf.
        isa: instruction set of our default; None: as ``swiftsure.load`` chooses.
        default_logits: our default's logits of every position of a sequence; None loads the default of ``model_path``.

    Raises:
        NotActiveError: a library is missing; the message is the line to print, ``upstream: NOT MEASURED (reason)``.
        SwiftsureError: the process failed.
    """
    if new_tokens < 2:
        raise UsageError(f"new_tokens must be at least 2, got {new_tokens}")
    with run_transformers(model_path, prompts=prompts_ids, new_tokens=new_tokens, threads=threads, python=python) as run:
        if default_logits is not None:
            agreement = compare(run, default_logits)
        else:
            import swiftsure

            with swiftsure.load(str(model_path), mode="default", threads=threads, isa=isa) as llm:
                agreement = compare(run, llm.logits)
        timed = [(item, item.ttft_s, item.decode_s) for item in run.items if item.ttft_s is not None and item.decode_s is not None]
        return UpstreamResult(
            versions=run.versions,
            dtype=run.dtype,
            threads=threads,
            prompts=len(run.items),
            new_tokens=new_tokens,
            load_s=run.load_s,
            ttft_s=median(ttft_s for _, ttft_s, _ in timed),
            prefill_tokens_per_s=median(len(item.prompt) / ttft_s for item, ttft_s, _ in timed),
            decode_tokens_per_s=median((len(item.tokens) - 1) / decode_s for item, _, decode_s in timed),
            peak_rss_bytes=run.peak_rss_bytes,
            agreement=agreement,
        )


@contextmanager
def run_transformers(
    model_path: Path,
    *,
    prompts: Sequence[Sequence[int]],
    threads: int,
    new_tokens: int = 0,
    forced: Sequence[Sequence[int]] | None = None,
    dtype: Literal["float32", "bfloat16"] = "float32",
    python: str = sys.executable,
    time_limit_s: float | None = None,
) -> Iterator[UpstreamRun]:
    """Runs :mod:`swiftsure.verify.upstream.child`; the rows live as long as the context.

    Args:
        model_path: a GGUF file or a folder of safetensors.

    Raises as :func:`measure_upstream`, and TimeoutError.
    """
    if not prompts or not all(len(prompt) for prompt in prompts):
        raise UsageError("prompts must hold at least one prompt, and each at least one token")
    with tempfile.TemporaryDirectory(prefix="swiftsure-upstream-") as name:
        output, is_folder = Path(name), model_path.is_dir()
        job_prompts = [[int(token) for token in prompt] for prompt in prompts]
        job = {
            "gguf": None if is_folder else str(model_path.resolve()),
            "folder": str(model_path.resolve()) if is_folder else None,
            "dtype": dtype,
            "threads": threads,
            "output": name,
            "prompts": job_prompts,
            "new_tokens": new_tokens,
            "forced": None if forced is None else [[int(token) for token in tokens] for tokens in forced],
        }
        (output / "job.json").write_text(json.dumps(job))
        _run_child(python, output / "job.json", threads, time_limit_s)
        result = json.loads((output / "result.json").read_text())
        items = tuple(
            UpstreamRow(
                prompt=tuple(prompt),
                tokens=tuple(item["tokens"]),
                ttft_s=item["ttft_s"],
                decode_s=item["decode_s"],
                rows_path=output / f"rows_{index}.npy",
            )
            for index, (prompt, item) in enumerate(zip(job_prompts, result["items"], strict=True))
        )
        yield UpstreamRun(
            versions=result["versions"],
            dtype=dtype,
            threads=threads,
            load_s=result["load_s"],
            peak_rss_bytes=result["peak_rss_bytes"],
            items=items,
        )


def _run_child(python: str, job: Path, threads: int, time_limit_s: float | None) -> None:
    # -I: neither this process's path nor the user's site reaches the child.
    command = [python, "-I", str(Path(child.__file__)), str(job)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=time_limit_s)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    except OSError as error:
        raise NotActiveError(f"upstream: NOT MEASURED ({python}: {error.strerror})") from error
    if done.returncode == 0:
        return
    lines = done.stderr.strip().splitlines() or ["no message"]
    if done.returncode == child.MISSING:
        raise NotActiveError(f"upstream: NOT MEASURED ({lines[-1]} in {python})")
    raise SwiftsureError(f"transformers ended with status {done.returncode}: {lines[-1]}")


def compare(run: UpstreamRun, logits_of: LogitsOf) -> Agreement:
    """Compares every row of ``run`` with ours on the same tokens."""
    largest, kl, same, decided, decided_differing, count = 0.0, 0.0, 0, 0, 0, 0
    for item in run.items:
        theirs = item.rows()
        ours = logits_of([*item.prompt, *item.tokens[:-1]])[len(item.prompt) - 1 :]
        if ours.shape != theirs.shape:
            raise SwiftsureError(f"transformers gives logits of shape {theirs.shape}, we give {ours.shape}: not the same vocabulary")
        for their_row, our_row in zip(theirs, ours, strict=True):
            largest = float(np.maximum(largest, np.max(np.abs(their_row - our_row))))  # NaN stays: max() would drop it
            kl += float(ref.kl_divergence(their_row, our_row))
            second, best = np.partition(their_row, -2)[-2:]
            agree = int(np.argmax(their_row)) == int(np.argmax(our_row))
            count, same = count + 1, same + agree
            if best - second > DECIDED_GAP:
                decided, decided_differing = decided + 1, decided_differing + (not agree)
    return Agreement(
        rows=count,
        largest_difference=largest,
        mean_kl=kl / count,
        top1_agreement=same / count,
        decided_rows=decided,
        decided_differing=decided_differing,
    )
