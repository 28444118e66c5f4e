"""An agent that answers a question about files: a small model reads every passage, a big one answers from what it found.

    swiftsure serve big=./big.gguf --model small=smollm2-135m-instruct --mode exact
    python examples/server/sub_tasks.py "Who pays for the bridge?" minutes.txt letters.txt

The small model's sub-tasks are many, short and alike: they go over one WebSocket that is kept open, several at a time (``stream_id``),
begin with the same instructions (the server's prefix cache reads them once) and are forced into JSON by a grammar. The big model is asked
once.
"""

import argparse
import asyncio
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import openai

INSTRUCTIONS = (
    "You read one passage and say whether it helps to answer the question. Answer in JSON: helps is yes or no, and note holds, in a few "
    "words, what the passage says about the question."
)
NOTE = {
    "type": "object",
    "properties": {"helps": {"enum": ["yes", "no"]}, "note": {"type": "string", "maxLength": 120}},
    "required": ["helps", "note"],
    "additionalProperties": False,
}
FORMAT = {"format": {"type": "json_schema", "name": "note", "schema": NOTE, "strict": True}}
LANES = 8  # sub-tasks at a time


@dataclass
class Found:
    place: str
    helps: bool
    note: str


def passages(files: list[Path], size: int) -> list[tuple[str, str]]:
    """Paragraphs, joined up to about ``size`` characters, each with its place."""
    found: list[tuple[str, str]] = []
    for file in files:
        text = ""
        for paragraph in [*file.read_text(encoding="utf-8").split("\n\n"), ""]:
            if text and (not paragraph or len(text) + len(paragraph) > size):
                found.append((f"{file.name}, passage {1 + sum(place.startswith(f'{file.name},') for place, _ in found)}", text))
                text = ""
            text = f"{text}\n\n{paragraph}".strip()
    return found


async def read_all(client: openai.AsyncOpenAI, model: str, question: str, texts: list[tuple[str, str]]) -> tuple[list[Found], int]:
    """Every passage through the small model, on one connection. What was found in order, and the tokens that the model wrote."""
    waiting, under_way, found, written = list(enumerate(texts)), {}, {}, 0

    async with client.responses.connect() as connection:

        async def next_one(lane: str) -> None:
            number, (_, text) = waiting.pop(0)
            under_way[lane] = number
            await connection.response.create(
                model=model,
                stream_id=lane,
                instructions=INSTRUCTIONS,
                input=f"Question: {question}\n\nPassage: {text}",
                text=FORMAT,
                temperature=0,
                max_output_tokens=160,
                store=False,
            )

        for lane in range(min(LANES, len(waiting))):
            await next_one(str(lane))
        while under_way:
            event = await connection.recv()
            if event.type == "error" or event.type == "response.failed":
                raise SystemExit(f"the small model failed: {event.to_json()}")
            if event.type in ("response.completed", "response.incomplete"):
                lane = event.stream_id
                number = under_way.pop(lane)
                written += event.response.usage.output_tokens
                if event.type == "response.completed":  # one that was cut off is no JSON
                    answer = json.loads(event.response.output_text)
                    found[number] = Found(texts[number][0], answer["helps"] == "yes", answer["note"])
                if waiting:
                    await next_one(lane)
    return [found[number] for number in sorted(found)], written


async def answer(client: openai.AsyncOpenAI, model: str, question: str, found: list[Found]) -> int:
    """Streams the big model's answer; the tokens that it wrote."""
    notes = "\n".join(f"- {one.place}: {one.note}" for one in found) or "- nothing was found"
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"{question}\n\nAnswer from these notes and name their places:\n{notes}"}],
        temperature=0,
        max_tokens=200,
        stream=True,
        stream_options={"include_usage": True},
    )
    written = 0
    async for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        if chunk.usage:
            written = chunk.usage.completion_tokens
    print()
    return written


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--big", default="big", help="name of the model that answers")
    parser.add_argument("--small", default="small", help="name of the model that reads")
    parser.add_argument("--passage", type=int, default=800, metavar="CHARACTERS")
    options = parser.parse_args()
    texts = passages(options.files, options.passage)
    async with openai.AsyncOpenAI(base_url=options.url, api_key=options.api_key) as client:
        began = time.perf_counter()
        found, small = await read_all(client, options.small, options.question, texts)
        helpful = [one for one in found if one.helps]
        read = time.perf_counter()
        print(f"{len(texts)} passages: {len(helpful)} help, {len(texts) - len(found)} were cut off", file=sys.stderr)
        big = await answer(client, options.big, options.question, helpful)
        ended = time.perf_counter()
    print(f"{options.small}: {small} tokens in {read - began:.1f} s; {options.big}: {big} tokens in {ended - read:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
