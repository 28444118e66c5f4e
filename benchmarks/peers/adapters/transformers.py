"""Hugging Face transformers on torch: float32, bfloat16, and its own prompt-lookup decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers.bridge import Push, groups
from benchmarks.peers.contract import Adapter, Contender, Environment, NotOfferedError, Place, RowComparison, compare_rows

ENVIRONMENT = Environment(
    requirements=("torch==2.13.0", "transformers==5.24.0", "safetensors==0.8.0", "numpy==2.4.6"),
    variables={"HF_HUB_OFFLINE": "1"},
    note="the file's weights dequantized to float32, then in the named type",
)
CONTENDERS = (
    Contender(name="transformers float32", variant="float32"),
    Contender(name="transformers bfloat16", variant="bfloat16"),
    Contender(
        name="transformers lookup",
        variant="lookup",
        plain="transformers float32",
        choices=(4, 10),
        shares_passes="the passes are those of transformers float32",
    ),
)


def open_adapter(variant: str) -> Adapter:
    return _Transformers(variant)


class _LeftError(Exception):
    """Nobody wants more tokens."""


class _Streamer:
    """What ``generate`` calls: first with the prompt, then with new tokens."""

    def __init__(self, push: Push) -> None:
        self._push = push
        self._prompt_seen = False

    def put(self, value: Any) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
        elif not self._push(value.reshape(-1).tolist()):
            raise _LeftError

    def end(self) -> None:
        """Nothing is held back."""


class _Transformers:
    def __init__(self, variant: str) -> None:
        self._lookup = variant == "lookup"
        self._dtype = "float32" if self._lookup else variant
        self._draft_tokens = 4

    def load(self, place: Place, *, threads: int, context: int) -> Mapping[str, Any]:
        import torch
        import transformers

        torch.set_num_threads(threads)
        transformers.logging.set_verbosity_error()
        self._torch = torch
        self._model = transformers.AutoModelForCausalLM.from_pretrained(place.folder, dtype=getattr(torch, self._dtype)).eval()
        limit = self._model.config.max_position_embeddings
        if context > limit:
            raise NotOfferedError(f"the model takes {limit} positions, {context} are needed")
        defaults = self._model.generation_config
        defaults.eos_token_id, defaults.bos_token_id, defaults.pad_token_id = None, None, 0
        return {
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "settings": {"dtype": self._dtype, "attention": self._model.config._attn_implementation},
        }

    def choose(self, value: int) -> None:
        """Tokens drafted at a time."""
        self._draft_tokens = value

    def stream(self, ids: Sequence[int], max_tokens: int) -> Iterator[Sequence[int]]:
        prompt = self._torch.tensor([list(ids)])
        return groups(lambda push: self._generate(prompt, max_tokens, _Streamer(push)))

    def _generate(self, prompt: Any, max_tokens: int, streamer: _Streamer | None, mask: Any = None) -> Any:
        extra = {"prompt_lookup_num_tokens": self._draft_tokens} if self._lookup else {}
        mask = self._torch.ones_like(prompt) if mask is None else mask
        try:
            with self._torch.inference_mode():
                return self._model.generate(
                    prompt, attention_mask=mask, max_new_tokens=max_tokens, do_sample=False, streamer=streamer, **extra
                )
        except _LeftError:
            return None

    def batch(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        width = max(map(len, prompts))
        ids = self._torch.zeros((len(prompts), width), dtype=self._torch.long)
        mask = self._torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = self._torch.tensor(list(prompt))
            mask[row, width - len(prompt) :] = 1
        made = self._generate(ids, max_tokens, None, mask)
        return [list(row) for row in made[:, width:].tolist()]

    def rows(self, ids: Sequence[int]) -> RowComparison:
        torch = self._torch
        prompt = torch.tensor([list(ids)])
        with torch.inference_mode():
            batch = self._model(input_ids=prompt).logits[0].float()
            single, past = torch.empty_like(batch), None
            for position in range(len(ids)):
                step = self._model(input_ids=prompt[:, position : position + 1], past_key_values=past, use_cache=True)
                single[position], past = step.logits[0, -1].float(), step.past_key_values
        return compare_rows(batch.numpy(), single.numpy())
