"""Under any load, each answer has the bits it has when it is served alone in ``default``.

Arrivals, lengths, tiers, sampling, cancellations and shared prefixes are drawn from a seed; the engine runs in ``exact``, prefix cache,
speculation and batching on. The digest of an answer is over all bits of the logits of its tokens. ``--full``: 1,000 requests on SmolLM2.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

import swiftsure
from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduler import Tier
from swiftsure.serve.engine_process.client import Answer, EngineProcess
from swiftsure.serve.jobs import Chunk, Job, Outcome

PREFIXES = 4


@dataclass(frozen=True)
class Request:
    arrives_s: float
    job: Job
    leaves_after: int | None  # tokens, when the client does not wait for the end


def requests(count: int, *, seed: int, vocab: int, longest_prompt: int, longest_answer: int, over_s: float) -> list[Request]:
    draw = random.Random(seed)
    prefixes = [[draw.randrange(10, vocab) for _ in range(longest_prompt // 2)] for _ in range(PREFIXES)]
    made = []
    for index in range(count):
        begin = draw.choice(prefixes)[: draw.choice([0, longest_prompt // 4, longest_prompt // 2])]
        phrase = [draw.randrange(10, vocab) for _ in range(draw.randint(1, 12))]
        prompt = (begin + phrase * draw.randint(1, longest_prompt // 24))[: longest_prompt - 1]
        tokens = draw.choice([1, 2, draw.randint(3, longest_answer)])
        temperature = draw.choice([0.0, 0.0, 0.7, 1.3])
        sampling = SamplingParams(
            max_tokens=tokens,
            temperature=temperature,
            top_p=draw.choice([1.0, 0.9]),
            top_k=draw.choice([0, 40]),
            seed=index,
            frequency_penalty=draw.choice([0.0, 0.0, 0.5]),
            ignore_eos=draw.random() < 0.7,
        )
        tier: Tier = "priority" if draw.random() < 0.2 else "standard"
        leaves = draw.randint(0, tokens) if draw.random() < 0.2 else None
        made.append(Request(draw.uniform(0, over_s), Job(prompt_ids=tuple(prompt), sampling=sampling, tier=tier), leaves))
    return made


async def serve_all(engine: EngineProcess, load: list[Request]) -> list[tuple[Chunk, Outcome] | None]:
    """Whole answers; None for those whose client left."""

    async def client(request: Request) -> tuple[Chunk, Outcome] | None:
        await asyncio.sleep(request.arrives_s)
        answer: Answer = engine.submit(request.job)
        if request.leaves_after is None:
            return await answer.finish()
        seen = 0
        async with answer:
            if request.leaves_after:
                async for chunk in answer:
                    seen += len(chunk.token_ids)
                    if seen >= request.leaves_after:
                        break
        return None

    return await asyncio.gather(*map(client, load))


def check(model: str | Path, load: list[Request]) -> tuple[int, int]:
    """How many answers were compared, and on how many tokens."""

    async def work() -> list[tuple[Chunk, Outcome] | None]:
        engine = EngineProcess({"model": str(model), "mode": "exact", "cache": False})
        await engine.start()
        try:
            found = await asyncio.wait_for(serve_all(engine, load), 1500)
            while engine.under_way:  # answers that were left end too
                await asyncio.sleep(0.01)
            for name in ("speculation", "batching", "prefix_cache"):
                assert engine.levers[name]["state"] == "on", f"{name} was never at work: {engine.levers[name]}"
            return found
        finally:
            await engine.stop()

    found = asyncio.run(work())
    compared = tokens = 0
    with swiftsure.load(model, mode="default", cache=False) as llm:
        for request, served in zip(load, found, strict=True):
            if served is None:
                continue
            chunk, outcome = served
            alone = llm.generate(list(request.job.prompt_ids), sampling=request.job.sampling, digest=True)
            assert chunk.token_ids == alone.token_ids
            assert outcome.digest == alone.digest is not None
            assert chunk.text == alone.text
            assert outcome.finish_reason == alone.finish_reason
            compared, tokens = compared + 1, tokens + len(chunk.token_ids)
    return compared, tokens


def test_every_answer_has_the_bits_of_the_same_request_alone(tiny_gguf: Path) -> None:
    load = requests(150, seed=1, vocab=290, longest_prompt=192, longest_answer=96, over_s=1.0)
    compared, _ = check(tiny_gguf, load)
    assert compared > 100


@pytest.mark.model
def test_every_answer_of_smollm2_has_the_bits_of_the_same_request_alone(smollm2_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("a quarter of an hour: runs with --full")
    count = 1000
    load = requests(count, seed=2, vocab=49_000, longest_prompt=256, longest_answer=48, over_s=count / 10)
    compared, tokens = check(smollm2_path, load)
    print(f"random load on a server's engine, SmolLM2-135M: {compared} answers, {tokens} tokens, 0 differ from the same request alone")
    assert compared > count * 0.6
