"""Streams an answer and says how fast it came.

python examples/stream.py [MODEL]
"""

import sys

import swiftsure

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m-instruct"

with swiftsure.load(model, mode="exact") as llm:
    stream = llm.stream([{"role": "user", "content": "Explain a memory bus in three sentences."}], max_tokens=96, temperature=0.7, seed=7)
    for piece in stream:
        print(piece, end="", flush=True)
    print()
    rate = stream.generation.timing.decode_tokens_per_s
    print(f"{len(stream.generation.token_ids)} tokens, {rate:.0f} tokens/s" if rate else "one token", file=sys.stderr)
