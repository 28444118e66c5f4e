"""Step 1: the model talks to itself. One ``.npz`` a round: token ids of 16 conversations, their lengths, where each answer begins."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np

import swiftsure
from swiftsure.engine.llm import LLM
from swiftsure.engine.sampling import SamplingParams

MODEL = "smollm2-135m-instruct"
TOGETHER = 16
ROLES = (
    *["You are a helpful AI assistant named SmolLM, trained by Hugging Face"] * 5,
    "You are a helpful coding assistant. You write complete, correct Python programs.",
    "You are a senior software engineer.",
    "You answer with JSON only.",
    "You are a careful editor who rewrites texts.",
    "You summarize documents accurately.",
    "You are a writer of stories.",
    "You explain science to students.",
    "You are a translator.",
)
BEGINNINGS = (
    *[""] * 14,
    *("Write a Python function that", "Write a Python class", "Write a complete Python module", "Write unit tests for", "Write SQL"),
    *("Fix the bug in this code:\n\n```python\n", "Return a JSON object with", "Convert the following table to CSV:\n\n"),
    *(
        "Summarize the following text:\n\n",
        "Rewrite the following paragraph",
        "Correct the grammar of:\n\n",
        "Translate the following sentence",
    ),
    *(
        "Extract the names and dates from the following text as JSON:\n\n",
        "Write a short story about",
        "Write a poem about",
        "Write an email",
    ),
    *("Explain how", "What is", "List ten", "Compare", "How do I", "Give me a recipe for"),
)


def converse(llm: LLM, number: int) -> dict[str, list[int] | list[list[int]]]:
    """One round: the questions, sampled by the model, then its answers, two in five of them greedy."""
    rng, tokenizer = random.Random(number), llm.model.tokenizer
    end = tokenizer.encode("<|im_end|>", special=True)[0]
    turn = list(tokenizer.encode("<|im_end|>\n<|im_start|>assistant\n", special=True))
    heads = [f"<|im_start|>system\n{rng.choice(ROLES)}<|im_end|>\n<|im_start|>user\n{rng.choice(BEGINNINGS)}" for _ in range(TOGETHER)]
    begun = [list(tokenizer.encode(head, special=True)) for head in heads]
    questions = llm.generate(begun, sampling=[_sampling(rng, number, i, (0.8, 1.0), (60, 120, 250), 0.95) for i in range(TOGETHER)])
    asked = [[t for t in question.token_ids if t != end] for question in questions]
    prompts = [[*head, *question, *turn] for head, question in zip(begun, asked, strict=True)]
    answers = llm.generate(
        prompts, sampling=[_sampling(rng, number, i, (0.0, 0.0, 0.7, 0.7, 1.0), (200, 300, 400), 1.0) for i in range(TOGETHER)]
    )
    llm.clear_caches()
    texts = [[*prompt, *answer.token_ids] for prompt, answer in zip(prompts, answers, strict=True)]
    return {"ids": [t for text in texts for t in text], "lengths": [len(text) for text in texts], "answers": [len(p) for p in prompts]}


def _sampling(
    rng: random.Random, number: int, i: int, temperatures: tuple[float, ...], lengths: tuple[int, ...], top_p: float
) -> SamplingParams:
    fields = {"temperature": rng.choice(temperatures), "top_p": top_p, "seed": number * TOGETHER + i, "max_tokens": rng.choice(lengths)}
    return SamplingParams.of(fields)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with swiftsure.load(MODEL, mode="exact", context=1024) as llm:
        for number in range(chosen.rounds):
            found = converse(llm, number)
            arrays = {name: np.array(values, np.int32) for name, values in found.items()}
            np.savez(chosen.folder / f"{number:05d}.npz", **arrays)  # type: ignore[arg-type]  # arrays by name
            print(f"round {number + 1} of {chosen.rounds}: {len(found['ids'])} tokens", flush=True)


if __name__ == "__main__":
    main()
