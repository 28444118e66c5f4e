"""One mode in a process of its own: JSON lines in, JSON lines out.

``python -m swiftsure.verify.proving.worker`` reads one command a line from standard input and answers with one line on the stream that
was standard output; whatever else prints goes to standard error. A mode so proves itself clean: no other mode ever ran in its process, and
the peak memory is its own. The process ends when its input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.activation import Status
from swiftsure.engine.inputs import prompt_ids, prompt_of_messages
from swiftsure.engine.request import Generation
from swiftsure.engine.sampling import SamplingParams
from swiftsure.errors import SwiftsureError
from swiftsure.records.machine import peak_rss_bytes

Load = Callable[..., Any]


class LogitsFile:
    """Appends rows of logits to a file. Written, not mapped: mapped pages would count as this process's memory."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self.rows = 0

    def append(self, _position: int, rows: NDArray[np.float32]) -> None:
        """One row ``(vocab,)``, or several ``(rows, vocab)``."""
        self._file.write(np.ascontiguousarray(rows, dtype="<f4").data)
        self.rows += len(rows) if rows.ndim == 2 else 1

    def close(self) -> None:
        self._file.close()


class Worker:
    """Holds one loaded model and answers commands. Every answer is a JSON object."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._llm: Any = None

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        operations: dict[str, Callable[..., dict[str, Any]]] = {
            "load": self.load,
            "examine": self.examine,
            "generate": self.generate,
            "score": self.score,
            "read_places": self.read_places,
            "weigh": self.weigh,
            "complete": self.complete,
            "evidence": self.evidence,
            "finish": self.finish,
        }
        return operations[command.pop("op")](**command)

    def load(self, *, model: str, mode: str, options: dict[str, Any]) -> dict[str, Any]:
        """``options``: the keywords of LoadOptions."""
        began = time.perf_counter()
        self._llm = llm = self._load(model, mode=mode, **options)
        load_s = time.perf_counter() - began
        activation, backend = llm.activation, llm.backend
        print(activation.active_line(), file=sys.stderr, flush=True)
        if llm.memory.fitted:
            print(f"note: {llm.memory.reason}", file=sys.stderr, flush=True)
        for text in llm.load_notes:
            print(f"note: {text}", file=sys.stderr, flush=True)
        return {
            "load_s": load_s,
            "load_phases_s": dict(llm.load_phases),
            "numerics": activation.numerics,
            "isa": activation.isa,
            "threads": activation.threads,
            "levers": list(activation.levers),
            "draft": asdict(activation.draft) if activation.draft else None,
            "vocab_size": backend.vocab_size,
            "weight_bytes": backend.weight_bytes,
            "pass_bytes": backend.pass_bytes,
            "kv_bytes_per_position": llm.memory.kv_bytes_per_token,
            "kv_bytes": backend.kv_bytes,
            "kv_positions": backend.kv_blocks * backend.kv_block_size,
        }

    def examine(self, *, requests: list[dict[str, Any]]) -> dict[str, Any]:
        """Refuses a prompt that is longer than the context, or that the chat template refuses, before anything runs."""
        counts = []
        for request in requests:
            try:
                prompt = prompt_of_messages(self._llm.model, request["messages"])
                counts.append(len(prompt_ids(self._llm.model, prompt, context=self._llm.context)))
            except SwiftsureError as error:
                raise type(error)(f"prompt {request['name']}: {error}") from None
        return {"prompt_tokens": counts}

    def generate(self, *, requests: list[dict[str, Any]], clear: bool) -> dict[str, Any]:
        """Runs requests, all at once where there are several, and answers one result each.

        A request has ``messages``, ``sampling`` and ``logits``: the file that gets every generated position's row, or None. ``clear``
        forgets everything that earlier requests left behind.
        """
        llm = self._llm
        if clear:
            llm.clear_caches()
        prompts = [prompt_of_messages(self._llm.model, request["messages"]) for request in requests]
        sampling = [SamplingParams.of(request["sampling"]) for request in requests]
        files = [LogitsFile(Path(request["logits"])) if request["logits"] is not None else None for request in requests]
        callbacks = [file.append if file is not None else None for file in files]
        try:
            began = time.perf_counter()
            if len(requests) == 1:
                results = [llm.generate(prompts[0], sampling=sampling[0], on_logits=callbacks[0])]
            else:
                results = llm.generate(prompts, sampling=sampling, on_logits=callbacks)
            wall_s = time.perf_counter() - began
        finally:
            for file in files:
                if file is not None:
                    file.close()
        rows = [file.rows if file is not None else 0 for file in files]
        described = [describe(result, count, wall_s) for result, count in zip(results, rows, strict=True)]
        for answer, result in zip(described, results, strict=True):  # off the clock
            best = llm.draft_ceiling(result)
            answer["draft_ceiling"] = {"passes": best.passes, "cost": best.cost} if best is not None else None
        return {"results": described}

    def score(self, *, text: str, tokens: int, logits: str) -> dict[str, Any]:
        """Logits of every position of the first ``tokens`` tokens of a text, or of as many as it and the context have, to a file."""
        llm = self._llm
        tokenizer = llm.model.tokenizer
        # With what the vocabulary puts before every text: models that were trained so are not themselves without it.
        ids = [*tokenizer.prefix_ids, *tokenizer.encode(text, special=False)][: min(tokens, llm.context)]
        file = LogitsFile(Path(logits))
        try:
            llm.score(ids, file.append)
        finally:
            file.close()
        return {"token_ids": ids}

    def read_places(self, *, segments: list[str], choices: list[list[str]]) -> dict[str, Any]:
        """See ``tasks/scoring.py``, as for the next two."""
        from swiftsure.verify.tasks.scoring import read_places

        return {"places": read_places(self._llm, segments, choices)}

    def weigh(self, *, context: str, choices: list[str]) -> dict[str, Any]:
        from swiftsure.verify.tasks.scoring import weigh_continuations

        return {"choice": weigh_continuations(self._llm, context, choices)}

    def complete(self, *, requests: list[dict[str, Any]]) -> dict[str, Any]:
        from swiftsure.verify.tasks.scoring import complete_texts

        return {"texts": complete_texts(self._llm, requests)}

    def evidence(self) -> dict[str, Any]:
        """What the levers did since the load, and a reason for each whose evidence is missing."""
        activation = self._llm.activation
        return {"levers": activation.to_dict()["levers"], "unproved": list(activation.unproved)}

    def finish(self, *, status: Status, done: int, total: int, wall_s: float) -> dict[str, Any]:
        """Says LEVER and EXIT."""
        activation = self._llm.activation
        for line in (*activation.lever_lines(), activation.exit_line(status, done, total, wall_s)):
            print(line, file=sys.stderr, flush=True)
        return {"peak_rss_bytes": peak_rss_bytes()}


def describe(result: Generation, rows: int, wall_s: float) -> dict[str, Any]:
    """What the parent is told about one generation."""
    timing = result.timing
    return {
        "prompt_ids": list(result.prompt_ids),
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason,
        "text": result.text,
        "rows": rows,
        "wall_s": wall_s,
        "ttft_s": timing.ttft_s,
        "phases_s": {
            "tokenize": timing.tokenize_s,
            "prefill": timing.queue_s + timing.prefill_s,
            "decode": timing.decode_s,
            "detokenize": timing.detokenize_s,
        },
        "prompt_tokens": timing.prompt_tokens,
        "output_tokens": timing.output_tokens,
        "levers": {name: dict(evidence) for name, evidence in result.levers.items()},
    }


def serve(load: Load) -> None:
    """Answers commands until the input ends. A refused command is answered with the error; the process stays."""
    answers = _claim_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business: it ends its workers
    worker = Worker(load)
    for line in sys.stdin:
        try:
            answer = {"ok": True, **worker.answer(json.loads(line))}
        except SwiftsureError as error:
            answer = {"ok": False, "error": type(error).__name__, "exit_code": error.exit_code, "reason": str(error)}
        except Exception as error:  # the parent decides what a fault of a mode means; the trace is for the reader of stderr
            traceback.print_exc()
            answer = {"ok": False, "error": type(error).__name__, "exit_code": 1, "reason": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _claim_stdout() -> IO[str]:
    """Keeps the answers' stream to ourselves and sends whatever libraries print to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    import swiftsure

    serve(swiftsure.load)
