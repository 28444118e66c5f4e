"""Run by an interpreter that has transformers: continues a text from each folder. Arguments, as JSON: the folders, a text, a number
of tokens, and tokens that must not come.

Prints ``{folder: {"prompt": [ids], "ids": [new tokens], "margins": [distance of the two best logits, in standard deviations]}}``.
"""

import json
import sys


def main(folders: list[str], text: str, count: int, never: list[int]) -> int:
    try:
        import torch
        import transformers
    except ImportError as error:
        print(error, file=sys.stderr)
        return 4
    found = {}
    for folder in folders:
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        ids = tokenizer(text, return_tensors="pt").input_ids
        made = model.generate(
            ids, max_new_tokens=count, do_sample=False, suppress_tokens=never, output_scores=True, return_dict_in_generate=True
        )
        rows = [row[0, len(never) :] for row in made.scores]  # those that must not come are the first
        best = [torch.topk(row, 2).values for row in rows]
        found[folder] = {
            "prompt": ids[0].tolist(),
            "ids": made.sequences[0, ids.shape[1] :].tolist(),
            "margins": [float((two[0] - two[1]) / row.std()) for two, row in zip(best, rows, strict=True)],
        }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(json.loads, sys.argv[1:])))
