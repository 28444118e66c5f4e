"""OpenVINO GenAI: reads the GGUF file itself; plain decoding, and its own prompt-lookup decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers.contract import Adapter, Contender, Environment, NotOfferedError, Place, RowComparison

ENVIRONMENT = Environment(
    requirements=("openvino-genai==2026.4.1.0", "numpy==2.4.6"),
    note="without LLMPipeline's prefix cache, which is on by default: with it, reading a prompt again takes a tenth of the first time",
)
CONTENDERS = (
    Contender(name="OpenVINO GenAI", variant="plain"),
    Contender(
        name="OpenVINO GenAI lookup",
        variant="lookup",
        plain="OpenVINO GenAI",
        choices=(3, 5, 8),
        shares_passes="the passes are those of OpenVINO GenAI",
    ),
)
NGRAM = 3


def open_adapter(variant: str) -> Adapter:
    return _OpenVino(lookup=variant == "lookup")


class _OpenVino:
    def __init__(self, *, lookup: bool) -> None:
        self._lookup = lookup
        self._draft_tokens = 5

    def load(self, place: Place, *, threads: int, context: int) -> Mapping[str, Any]:
        import openvino
        import openvino_genai

        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = context  # a prompt in one pass, as LLMPipeline does: the class's own 256 is slower
        properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads}
        if self._lookup:
            properties["prompt_lookup"] = True
        # LLMPipeline runs this one on a thread that goes on while a streamer waits: it would work in the others' turns.
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(place.model_path, scheduler, "CPU", properties)
        self._requests = 0
        return {
            "openvino_genai": openvino_genai.__version__,
            "openvino": openvino.__version__,
            "settings": {
                "enable_prefix_caching": False,
                "max_num_batched_tokens": context,
                "max_ngram_size": NGRAM if self._lookup else None,
            },
        }

    def choose(self, value: int) -> None:
        """Tokens drafted at a time."""
        self._draft_tokens = value

    def _config(self, max_tokens: int) -> Any:
        from openvino_genai import GenerationConfig

        config = GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample, config.apply_chat_template = max_tokens, True, False, False
        if self._lookup:
            config.num_assistant_tokens, config.max_ngram_size = self._draft_tokens, NGRAM
        return config

    def stream(self, ids: Sequence[int], max_tokens: int) -> Iterator[Sequence[int]]:
        self._requests += 1
        handle = self._pipeline.add_request(self._requests, _tensor(ids), self._config(max_tokens))
        try:
            while self._pipeline.has_non_finished_requests():
                self._pipeline.step()
                if handle.can_read():
                    for output in handle.read().values():
                        yield list(output.generated_ids)
        finally:
            if self._pipeline.has_non_finished_requests():
                handle.cancel()
                self._pipeline.step()

    def batch(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        made = self._pipeline.generate([_tensor(ids) for ids in prompts], [self._config(max_tokens)] * len(prompts))
        return [list(one.m_generation_ids[0]) for one in made]

    def rows(self, ids: Sequence[int]) -> RowComparison:
        raise NotOfferedError("the pipeline hands out no logits")


def _tensor(ids: Sequence[int]) -> Any:
    import numpy as np
    import openvino

    return openvino.Tensor(np.array([ids], np.int64))
