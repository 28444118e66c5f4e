"""Who answers: the protocol, a loaded model, and a worker process that holds one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ContextLengthError, UsageError
from swiftsure.verify.proving.client import WorkerClient, WorkerError
from swiftsure.verify.tasks.items import Choice, Completion, Passage


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What one item's choices weigh, higher is likelier, and how many tokens were read before them."""

    weights: tuple[float, ...]
    size: int | None
    reason: str | None = None  # where nothing was weighed


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """``reason`` is set where nothing was written."""

    text: str
    size: int | None = None
    reason: str | None = None


class Scorer(Protocol):
    """Anything that answers items; ContextLengthError says that one is too long for it.

    ``can_weigh``: it gives likelihoods; without, only tasks of texts can be measured.
    """

    name: str
    can_weigh: bool
    batch: int  # completions that it takes at once with profit

    def read(self, passage: Passage) -> list[Weighed]: ...

    def choose(self, choice: Choice) -> Weighed: ...

    def complete(self, items: Sequence[Completion]) -> list[Written]: ...


def read_places(llm: Any, segments: Sequence[str], choices: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """One pass over a passage: the logit of the first token of each choice after each segment."""
    tokenizer = llm.model.tokenizer
    ids: list[int] = list(tokenizer.prefix_ids)
    wanted: dict[int, tuple[int, list[int]]] = {}
    for number, (segment, words) in enumerate(zip(segments, choices, strict=True)):
        ids += tokenizer.encode(segment, special=False, continues=number > 0)
        wanted[len(ids) - 1] = (number, [tokenizer.encode(" " + word, special=False, continues=True)[0] for word in words])
    found: list[dict[str, Any]] = [{} for _ in segments]

    def keep(position: int, rows: NDArray[np.float32]) -> None:
        for i, row in enumerate(rows, start=position):
            if i in wanted:
                number, tokens = wanted[i]
                found[number] = {"weights": [float(row[token]) for token in tokens], "size": i + 1}

    llm.score(ids, keep)
    return found


def weigh_continuations(llm: Any, context: str, choices: Sequence[str]) -> dict[str, Any]:
    """The log-likelihood of each continuation, in nats, per character of its text."""
    tokenizer = llm.model.tokenizer
    head = [*tokenizer.prefix_ids, *tokenizer.encode(context, special=False)]
    return {
        "weights": [_log_likelihood(llm, head, tokenizer.encode(text, special=False, continues=True)) / len(text) for text in choices],
        "size": len(head),
    }


def _log_likelihood(llm: Any, head: list[int], tail: Sequence[int]) -> float:
    ids, total = [*head, *tail], 0.0

    def add(position: int, rows: NDArray[np.float32]) -> None:
        nonlocal total
        for i, row in enumerate(rows, start=position):
            if len(head) - 1 <= i < len(ids) - 1:
                wide = row.astype(np.float64)
                top = wide.max()
                total += float(wide[ids[i + 1]] - top - np.log(np.exp(wide - top).sum()))

    llm.score(ids, add)
    return total


def complete_texts(llm: Any, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Greedy continuations of plain texts, all at once."""
    from swiftsure.engine.sampling import SamplingParams

    sampling = [SamplingParams.of({"max_tokens": r["max_tokens"], "stop": tuple(r["stop"]), "temperature": 0.0}) for r in requests]
    results = llm.generate([r["prompt"] for r in requests], sampling=sampling)
    return [{"text": result.text, "size": len(result.prompt_ids)} for result in results]


class ModelScorer:
    """A model that is loaded in this process."""

    can_weigh = True

    def __init__(self, llm: Any, name: str | None = None, *, batch: int = 8) -> None:
        self.name = name or f"mode:{llm.mode}"
        self.batch = batch
        self._llm = llm

    def read(self, passage: Passage) -> list[Weighed]:
        return _weighed(read_places(self._llm, *_places(passage)))

    def choose(self, choice: Choice) -> Weighed:
        return _weighed([weigh_continuations(self._llm, choice.context, choice.choices)])[0]

    def complete(self, items: Sequence[Completion]) -> list[Written]:
        return [Written(**answer) for answer in complete_texts(self._llm, [_request(item) for item in items])]


class WorkerScorer:
    """A mode in a process of its own, see ``proving/worker.py``."""

    can_weigh = True

    def __init__(self, client: WorkerClient, *, batch: int = 8) -> None:
        self.name = f"mode:{client.name}"
        self.batch = batch
        self._client = client

    def read(self, passage: Passage) -> list[Weighed]:
        segments, choices = _places(passage)
        return _weighed(self._ask("read_places", segments=segments, choices=choices)["places"])

    def choose(self, choice: Choice) -> Weighed:
        return _weighed([self._ask("weigh", context=choice.context, choices=list(choice.choices))["choice"]])[0]

    def complete(self, items: Sequence[Completion]) -> list[Written]:
        answers = self._ask("complete", requests=[_request(item) for item in items])["texts"]
        return [Written(**answer) for answer in answers]

    def _ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._client.ask(op, **arguments)
        except WorkerError as error:
            if error.kind == ContextLengthError.__name__:
                raise ContextLengthError(str(error)) from None
            raise


def require_likelihoods(scorer: Scorer, task: str) -> None:
    """Raises UsageError where a task of likelihoods is asked of one that gives none."""
    if not scorer.can_weigh:
        raise UsageError(f"task {task} needs likelihoods, and {scorer.name} gives texts only; choose tasks of texts")


def _places(passage: Passage) -> tuple[list[str], list[list[str]]]:
    return [place.before for place in passage.places], [list(place.choices) for place in passage.places]


def _weighed(answers: Sequence[dict[str, Any]]) -> list[Weighed]:
    return [Weighed(weights=tuple(answer["weights"]), size=int(answer["size"])) for answer in answers]


def _request(item: Completion) -> dict[str, Any]:
    return {"prompt": item.prompt, "max_tokens": item.max_tokens, "stop": list(item.stop)}
