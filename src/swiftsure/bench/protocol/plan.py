"""The cells of a round and what each of them sends.

::

    start      one request, before anything else: what the first caller of a cold server waits for. Warm-up, reported apart
    cold       every prompt, ``repeats`` times, a new nonce at the start of each: no prefix cache can know it; at each number of users
    warm       every prompt again, sent once unmeasured and then ``repeats`` times as it is; at the smallest number of users
    context    every prompt, cold, with the long text pasted above it; at the smallest number of users

A cell opens with a wave that is in no figure: one request a user, of staggered lengths, so that the users do not go in step afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from swiftsure.bench.exchange import Exchange, Prompt, Request, Trial
from swiftsure.bench.prompts.change import cold, nonce, with_context
from swiftsure.bench.protocol.settings import RoundSettings

START = "start"
COLD, WARM, CONTEXT = "cold", "warm", "context"
OPENING_TOKENS = 16
"""Of the one opening request of a single user, who has nobody to be out of step with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One load. ``trials``: what is measured in it, in the order of sending."""

    row: str
    users: int
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What the prompts of a plan are made of. ``context``: the long text, None without the context row."""

    prompts: tuple[Prompt, ...]
    context: str | None

    def prompt(self, row: str, name: str) -> Prompt:
        """The prompt as the row sends it; of a cold row with a nonce that was never used before."""
        found = next(prompt for prompt in self.prompts if prompt.name == name)
        if row == CONTEXT and self.context is not None:
            found = with_context(found, self.context)
        return found if row == WARM else cold(found, nonce())


def plan_round(settings: RoundSettings, names: Sequence[str], number: int) -> tuple[Cell, ...]:
    """The cells of round ``number`` in the order in which they are measured; the start is none of them."""
    fewest = settings.users[0]
    rows = [(COLD, fewest)]
    if settings.warm:
        rows.append((WARM, fewest))
    if settings.context_tokens:
        rows.append((CONTEXT, fewest))
    rows += [(COLD, users) for users in settings.users[1:]]
    return tuple(
        Cell(row=row, users=users, trials=tuple(_trials(settings, names, number=number, row=row, users=users))) for row, users in rows
    )


def _trials(settings: RoundSettings, names: Sequence[str], *, number: int, row: str, users: int) -> Iterator[Trial]:
    """Warm rows repeat a prompt at once, while a cache still has it; others go through all prompts before the first comes again."""
    repeats = range(1, settings.repeats + 1)
    if row == WARM and users == 1:
        pairs = [(name, repeat) for name in names for repeat in repeats]
    else:
        pairs = [(name, repeat) for repeat in repeats for name in names]
    for name, repeat in pairs:
        yield Trial(round=number, row=row, users=users, prompt=name, repeat=repeat)


def left_of(cell: Cell, known: Iterable[Exchange]) -> tuple[Trial, ...]:
    """The trials of the cell that no exchange has measured yet."""
    measured = {exchange.trial for exchange in known}
    return tuple(trial for trial in cell.trials if trial not in measured)


def requests_of(cell: Cell, left: Sequence[Trial], known: Iterable[Exchange], material: Material) -> list[Request]:
    """The opening wave, and the trials that are left. Warm-ups go on counting where those of an earlier start ended."""
    mine = (exchange.trial for exchange in known if (exchange.trial.row, exchange.trial.users) == (cell.row, cell.users))
    warm_ups = Counter(trial.prompt for trial in mine if trial.warm_up)
    requests: list[Request] = []

    def warm_up(prompt: Prompt) -> None:
        warm_ups[prompt.name] += 1
        trial = replace(left[0], prompt=prompt.name, repeat=warm_ups[prompt.name], warm_up=True)
        requests.append(Request(prompt=prompt, trial=trial))

    def measured(trials: Iterable[Trial]) -> None:
        requests.extend(Request(prompt=material.prompt(trial.row, trial.prompt), trial=trial) for trial in trials)

    names = list(dict.fromkeys(trial.prompt for trial in left))
    if cell.row == WARM and cell.users == 1:
        for name in names:
            warm_up(material.prompt(WARM, name))
            measured(trial for trial in left if trial.prompt == name)
        return requests
    for prompt in _opening(cell, names, material):
        warm_up(prompt)
    measured(left)
    return requests


def _opening(cell: Cell, names: Sequence[str], material: Material) -> Iterator[Prompt]:
    """One prompt a user, the n-th with n parts of its length; a warm row sends all its prompts once, whole."""
    if cell.row == WARM:
        yield from (material.prompt(WARM, name) for name in names)
        return
    for user in range(cell.users):
        prompt = material.prompt(COLD, names[user % len(names)])
        most = min(OPENING_TOKENS, prompt.max_tokens) if cell.users == 1 else max(1, prompt.max_tokens * (user + 1) // cell.users)
        yield replace(prompt, max_tokens=most)
