"""llama.cpp through llama-cpp-python: plain decoding, and its own prompt-lookup decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from benchmarks.peers.contract import Adapter, Contender, Environment, RowComparison, Run, compare_rows

_FLAGS = ("AVX2", "FMA", "F16C", "BMI2", "AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16")

ENVIRONMENT = Environment(
    requirements=("llama-cpp-python==0.3.36",),
    build={"CMAKE_ARGS": " ".join(["-DGGML_NATIVE=OFF", *(f"-DGGML_{flag}=ON" for flag in _FLAGS)]), "FORCE_CMAKE": "1"},
    note="AMX is left out: a native build dies with an illegal instruction where the system has to be asked for the tiles first",
)
CONTENDERS = (
    Contender(name="llama.cpp", variant="plain"),
    Contender(name="llama.cpp lookup", variant="lookup", plain="llama.cpp"),
)
LOOKUP_TOKENS = 4
BATCH_ROWS = 512


def open_adapter(variant: str) -> Adapter:
    return _LlamaCpp(lookup=variant == "lookup")


class _LlamaCpp:
    def __init__(self, *, lookup: bool) -> None:
        self._lookup = lookup

    def load(self, model_path: str, *, threads: int, context: int) -> Mapping[str, Any]:
        import llama_cpp
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        self._settings = {
            "model_path": model_path,
            "n_ctx": context,
            "n_batch": BATCH_ROWS,
            "n_ubatch": BATCH_ROWS,
            "n_threads": threads,
            "n_threads_batch": threads,
            "verbose": False,
        }
        self._class = llama_cpp.Llama
        draft = LlamaPromptLookupDecoding(num_pred_tokens=LOOKUP_TOKENS) if self._lookup else None
        # With a draft model every row's logits are kept, but room is made for all of them only when asked for.
        self._llama = llama_cpp.Llama(**self._settings, draft_model=draft, logits_all=self._lookup)
        return {
            "llama_cpp_python": llama_cpp.__version__,
            "system_info": llama_cpp.llama_print_system_info().decode(),
            "settings": {name: value for name, value in self._settings.items() if name != "model_path"},
            "lookup_tokens": LOOKUP_TOKENS if self._lookup else None,
        }

    def generate(self, ids: Sequence[int], max_tokens: int) -> Run:
        self._llama.reset()  # else the cached prefix of the run before would stand in for the prefill
        tokens: list[int] = []
        started = first = last = perf_counter()
        for token in self._llama.generate(list(ids), temp=0.0, repeat_penalty=1.0):
            last = perf_counter()
            if not tokens:
                first = last
            tokens.append(int(token))
            if len(tokens) == max_tokens:
                break
        return Run(token_ids=tokens, ttft_s=first - started, decode_s=last - first, total_s=last - started)

    def rows(self, ids: Sequence[int]) -> RowComparison:
        llama = self._class(**self._settings, logits_all=True)
        try:
            llama.eval(list(ids))
            batch = llama.scores[: len(ids)].copy()
            llama.reset()
            for token in ids:
                llama.eval([token])
            return compare_rows(batch, llama.scores[: len(ids)])
        finally:
            llama.close()
