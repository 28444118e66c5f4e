"""Answers several prompts in one call: their passes are shared, their answers are those of each alone.

python examples/batch.py [MODEL]
"""

import sys

import swiftsure

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m-instruct"
questions = ["Name a river in Europe.", "Name a mountain in Asia.", "Name a desert in Africa."]
prompts = [[{"role": "user", "content": question}] for question in questions]

with swiftsure.load(model, mode="exact") as llm:
    together = llm.generate(prompts, max_tokens=32)
    alone = [llm.generate(prompt, max_tokens=32) for prompt in prompts]

for question, generation in zip(questions, together, strict=True):
    print(f"{question}\n  {generation.text.strip()}")
sys.exit(0 if [g.token_ids for g in together] == [g.token_ids for g in alone] else 1)
