"""The release itself as a subject: ``upstream:transformers``, in float32, on the weights of ``-m``, in a clean process for each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from swiftsure.errors import NotActiveError, SwiftsureError, UsageError
from swiftsure.verify.subjects.base import Activation, Case, Trial
from swiftsure.verify.subjects.requests import Score, request_of
from swiftsure.verify.upstream.agreement import require_upstream, run_transformers

KIND, LIBRARY = "upstream", "transformers"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamOptions:
    """``model``: as ``swiftsure.load`` takes it. ``threads``: of the library; None is all that this process may use.

    ``time_limit_s``: of one case, the library's start and the reading of the weights included.
    """

    model: str
    threads: int | str | None = None
    offline: bool = False
    time_limit_s: float | None = 600.0


class UpstreamSubject:
    """Scores texts, with the token ids of our tokenizer: outputs ``token_ids`` and ``logits``. What it writes itself is not compared here,
    for two engines that fall out over a near tie go on with different texts; ``prove`` compares on that."""

    def __init__(self, library: str, options: UpstreamOptions, *, spec: str | None = None) -> None:
        if library != LIBRARY:
            raise UsageError(f"the upstream library must be {LIBRARY}, got {library!r}")
        self.spec = spec if spec is not None else f"{KIND}:{library}"
        self._options = options
        self._path: Path | None = None
        self._model_pins: Mapping[str, Any] = {}
        self._tokenizer: Any = None
        self._versions: dict[str, str] = {}

    def start(self) -> Activation:
        """Raises as ``models.catalogue.resolve``; without the library nothing was measured, and that is said."""
        from swiftsure.models.catalogue import resolve
        from swiftsure.models.model import open_model

        try:
            require_upstream()
        except NotActiveError as error:
            return Activation(state="not_active", reason=str(error))
        with open_model(resolve(self._options.model, offline=self._options.offline)) as model:
            self._tokenizer, self._path, self._model_pins = model.tokenizer, Path(model.info()["path"]), model.info()
        self._versions = {name: version(name) for name in (LIBRARY, "torch")}
        return Activation(state="active", evidence=", ".join(f"{name} {found}" for name, found in self._versions.items()) + ", float32")

    def run(self, case: Case) -> Trial:
        if self._path is None:
            raise RuntimeError("run before start")
        try:
            request = request_of(case)
            if not isinstance(request, Score):
                return Trial(case=case, status="refused", reason="upstream scores texts: name them under [texts] of the contract")
            ids = [*self._tokenizer.prefix_ids, *self._tokenizer.encode(request.text, special=False)][: request.tokens]
            return self._score(case, ids)
        except TimeoutError:
            return Trial(case=case, status="timed_out", reason=f"ended after {self._options.time_limit_s:g} s, the time limit")
        except SwiftsureError as error:
            return Trial(case=case, status="failed", reason=str(error))

    def _score(self, case: Case, ids: list[int]) -> Trial:
        """Row i is what follows token i; the last token is given twice, since a continuation's last token is never read."""
        assert self._path is not None
        began = perf_counter()
        with run_transformers(
            self._path,
            prompts=[ids[:1]],
            forced=[[*ids[1:], ids[-1]]],
            threads=self._threads(),
            time_limit_s=self._options.time_limit_s,
        ) as run:
            logits = run.items[0].rows()  # mapped: its bytes stay as long as the array does
        return Trial(
            case=case,
            status="ran",
            outputs={"token_ids": np.asarray(ids, np.int64), "logits": logits},
            peak_bytes=run.peak_rss_bytes,
            notes=(f"{perf_counter() - began:.1f} s, of which {run.load_s:.1f} s reading the weights",),
        )

    def _threads(self) -> int:
        from swiftsure.engine.threads import choose_threads

        return choose_threads(self._options.threads).threads

    def pins(self) -> Mapping[str, Any]:
        return {
            "kind": KIND,
            "library": LIBRARY,
            "version": self._versions.get(LIBRARY),
            "versions": dict(self._versions),
            "dtype": "float32",
            "model": self._options.model,
            "weights_sha256": self._model_pins.get("sha256"),
            "time_limit_s": self._options.time_limit_s,
        }

    def close(self) -> None:
        """Each case's process has ended with it."""
