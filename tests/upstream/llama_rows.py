"""Run by an interpreter that has llama_cpp: logits of given tokens. Argument: a job ``{model, sequences, starts, threads, output}``."""

import json
import sys
from pathlib import Path


def main(job_path: str) -> int:
    job = json.loads(Path(job_path).read_text())
    try:
        import llama_cpp
        import numpy as np
    except ImportError as error:
        print(error, file=sys.stderr)
        return 4
    longest = max(len(ids) for ids in job["sequences"])
    llama = llama_cpp.Llama(
        job["model"], n_ctx=longest + 8, n_threads=job["threads"], n_threads_batch=job["threads"], logits_all=True, verbose=False
    )
    for index, (ids, start) in enumerate(zip(job["sequences"], job["starts"], strict=True)):
        llama.reset()
        llama.eval(ids)
        np.save(Path(job["output"]) / f"rows_{index}.npy", np.array(llama.scores[start : len(ids)], dtype=np.float32))
    (Path(job["output"]) / "version").write_text(llama_cpp.__version__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
