"""llama.cpp through llama-cpp-python: plain decoding, and its own prompt-lookup decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from benchmarks.peers.contract import Adapter, Contender, Environment, NotOfferedError, Place, RowComparison, compare_rows

_FLAGS = ("AVX2", "FMA", "F16C", "BMI2", "AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16")

ENVIRONMENT = Environment(
    requirements=("llama-cpp-python==0.3.36",),
    build={"CMAKE_ARGS": " ".join(["-DGGML_NATIVE=OFF", *(f"-DGGML_{flag}=ON" for flag in _FLAGS)]), "FORCE_CMAKE": "1"},
    note="AMX is left out: a native build dies with an illegal instruction where the system has to be asked for the tiles first",
)
CONTENDERS = (
    Contender(name="llama.cpp", variant="plain"),
    Contender(
        name="llama.cpp lookup",
        variant="lookup",
        plain="llama.cpp",
        choices=(2, 4, 8, 10),
        shares_passes="the passes are those of llama.cpp",
    ),
)
BATCH_ROWS = 512


def open_adapter(variant: str) -> Adapter:
    return _LlamaCpp(lookup=variant == "lookup")


class _LlamaCpp:
    def __init__(self, *, lookup: bool) -> None:
        self._lookup = lookup

    def load(self, place: Place, *, threads: int, context: int) -> Mapping[str, Any]:
        import llama_cpp

        self._settings = {
            "model_path": place.model_path,
            "n_ctx": context,
            "n_batch": BATCH_ROWS,
            "n_ubatch": BATCH_ROWS,
            "n_threads": threads,
            "n_threads_batch": threads,
            "verbose": False,
        }
        self._class = llama_cpp.Llama
        # With a draft model every row's logits are kept, but room is made for all of them only when asked for.
        self._llama = llama_cpp.Llama(**self._settings, draft_model=None, logits_all=self._lookup)
        if self._lookup:
            self.choose(4)
        return {
            "llama_cpp_python": llama_cpp.__version__,
            "system_info": llama_cpp.llama_print_system_info().decode(),
            "settings": {name: value for name, value in self._settings.items() if name != "model_path"},
        }

    def choose(self, value: int) -> None:
        """Tokens drafted at a time."""
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        self._llama.draft_model = LlamaPromptLookupDecoding(num_pred_tokens=value)

    def stream(self, ids: Sequence[int], max_tokens: int) -> Iterator[Sequence[int]]:
        self._llama.reset()  # else the cached prefix of the run before would stand in for the prefill
        for token in islice(self._llama.generate(list(ids), temp=0.0, repeat_penalty=1.0), max_tokens):
            yield [int(token)]

    def batch(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        raise NotOfferedError("llama-cpp-python generates one sequence at a time")

    def rows(self, ids: Sequence[int]) -> RowComparison:
        llama = self._class(**(self._settings | {"n_ctx": len(ids)}), logits_all=True)
        try:
            llama.eval(list(ids))
            batch = llama.scores[: len(ids)].copy()
            llama.reset()
            for token in ids:
                llama.eval([token])
            return compare_rows(batch, llama.scores[: len(ids)])
        finally:
            llama.close()
