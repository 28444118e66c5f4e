"""Shows schedule invariance with one's own eyes: the logits of a text, computed whole, in a batch with drafts, and on the portable path.

python examples/same_bits.py [MODEL]
"""

import sys

import numpy as np

import swiftsure

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m-instruct"
text = "the cat sat on the mat and the dog sat on the rug and the cat sat on"

with swiftsure.load(model, mode="default", context=256) as llm:
    generation = llm.generate(text, max_tokens=48)
    whole = llm.logits([*generation.prompt_ids, *generation.token_ids])

rows: list[np.ndarray] = []
with swiftsure.load(model, mode="exact", isa="portable", threads=1, context=256) as llm:
    other = llm.generate(text, max_tokens=48, on_logits=lambda position, row: rows.append(row.copy()))

first = len(generation.prompt_ids) - 1
same_tokens = other.token_ids == generation.token_ids
differing = np.count_nonzero(np.stack(rows).view(np.uint32) ^ whole[first : first + len(rows)].view(np.uint32))
print(f"same tokens: {same_tokens}; logits compared: {len(rows)} x {whole.shape[1]}; differing: {differing}")
sys.exit(0 if same_tokens and differing == 0 else 1)
