"""Run by an interpreter that has transformers: saves small random models. Argument: a list of jobs.

A job: ``{folder, class, config_class, config, dtype, shard_bytes}``; the classes are names of the library, ``config`` holds fields.
"""

import json
import sys
from pathlib import Path


def main(job_path: str) -> int:
    jobs = json.loads(Path(job_path).read_text())
    try:
        import torch
        import transformers
    except ImportError as error:
        print(error, file=sys.stderr)
        return 4
    for job in jobs:
        torch.manual_seed(7)
        config = getattr(transformers, job["config_class"])(**job["config"])
        model = getattr(transformers, job["class"])(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # Norms and biases that do something, and matrices with logits of a trained model's size.
                spread = 0.2 if parameter.ndim == 1 else 1.5 / parameter.shape[-1] ** 0.5
                noise = torch.randn(parameter.shape) * spread
                parameter.copy_(parameter + noise if name.endswith("norm.weight") else noise)
        model.to(getattr(torch, job["dtype"])).save_pretrained(job["folder"], max_shard_size=job["shard_bytes"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
