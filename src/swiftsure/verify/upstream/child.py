"""Runs transformers in a process of its own. Not imported: :mod:`swiftsure.verify.upstream.agreement` starts it as a script.

The interpreter may be any that has torch and transformers; nothing of Swiftsure is imported here. One argument: the path of a job (JSON)::

    {"gguf": path | null, "folder": path | null,   a GGUF file (needs gguf and accelerate), or config.json + .safetensors files
     "dtype": "float32" | "bfloat16", "threads": n, "output": folder,
     "prompts": [[ids]],                            token ids
     "new_tokens": n,                               greedy tokens a prompt, end-of-turn tokens not heeded
     "forced": [[ids]] | null}                      instead of generating: the tokens that follow each prompt

Writes ``output/rows_<i>.npy`` (float32, (tokens, vocab): row j is what token j of the continuation was or would be chosen from) and
``output/result.json``.
"""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

MISSING = 4  # exit code when a library is missing; its message is the last line of stderr


def main(job_path: str) -> int:
    job = json.loads(Path(job_path).read_text())
    try:
        import torch
        import transformers

        if job["gguf"]:
            import accelerate  # noqa: F401  (transformers asks for it when it reads a GGUF file)
            import gguf  # noqa: F401
    except ImportError as error:
        print(error, file=sys.stderr)
        return MISSING
    torch.set_num_threads(job["threads"])
    transformers.logging.set_verbosity_error()
    begin = time.perf_counter()
    model = load(job, torch, transformers)
    load_s = time.perf_counter() - begin
    output = Path(job["output"])
    with torch.inference_mode():
        if job["forced"] is None:
            generate(model, job["prompts"][0][:16], 2, torch)  # warm-up: allocations and first-call set-up are not measured
            items = [generate(model, prompt, job["new_tokens"], torch) for prompt in job["prompts"]]
        else:
            items = [force(model, *pair, torch) for pair in zip(job["prompts"], job["forced"], strict=True)]
    save(output, items)
    result = {
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "load_s": load_s,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "items": [{key: value for key, value in item.items() if key != "rows"} for item in items],
    }
    (output / "result.json").write_text(json.dumps(result))
    return 0


def load(job: dict[str, Any], torch: Any, transformers: Any) -> Any:
    dtype = getattr(torch, job["dtype"])
    if job["gguf"]:
        path = Path(job["gguf"])
        model = transformers.AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=dtype)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(job["folder"], dtype=dtype)
    return model.eval()


def generate(model: Any, prompt: list[int], new_tokens: int, torch: Any) -> dict[str, Any]:
    """Greedy decoding with a key-value cache, without the overhead of ``generate``."""
    begin = time.perf_counter()
    step = model(input_ids=torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
    rows = [step.logits[0, -1].float()]
    tokens = [int(rows[0].argmax())]
    first = time.perf_counter()
    while len(tokens) < new_tokens:
        step = model(input_ids=torch.tensor([tokens[-1:]]), past_key_values=step.past_key_values, use_cache=True)
        rows.append(step.logits[0, -1].float())
        tokens.append(int(rows[-1].argmax()))
    end = time.perf_counter()
    return {"tokens": tokens, "ttft_s": first - begin, "decode_s": end - first, "rows": torch.stack(rows).numpy()}


def force(model: Any, prompt: list[int], continuation: list[int], torch: Any) -> dict[str, Any]:
    """One pass over prompt and continuation."""
    ids = torch.tensor([[*prompt, *continuation[:-1]]])
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=len(continuation)).logits[0].float()
    return {"tokens": list(continuation), "ttft_s": None, "decode_s": None, "rows": logits.numpy()}


def save(output: Path, items: list[dict[str, Any]]) -> None:
    import numpy as np

    for index, item in enumerate(items):
        np.save(output / f"rows_{index}.npy", item["rows"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
