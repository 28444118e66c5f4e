"""An endpoint that answers items: plain texts over ``/completions``, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from swiftsure.errors import UsageError
from swiftsure.verify.subjects.answer import AnswerError
from swiftsure.verify.subjects.endpoint import UrlSubject
from swiftsure.verify.tasks.items import Choice, Completion, Passage
from swiftsure.verify.tasks.scoring import Weighed, Written


class EndpointScorer:
    """Texts alone. An item that the endpoint declines is one that it did not answer, with its words as the reason."""

    can_weigh = False
    batch = 1

    def __init__(self, subject: UrlSubject) -> None:
        self.name = subject.spec
        self._subject = subject

    def read(self, passage: Passage) -> list[Weighed]:
        raise UsageError(f"{self.name} gives texts and no likelihoods: passage {passage.id} cannot be asked of it")

    def choose(self, choice: Choice) -> Weighed:
        raise UsageError(f"{self.name} gives texts and no likelihoods: choice {choice.id} cannot be asked of it")

    def complete(self, items: Sequence[Completion]) -> list[Written]:
        return [self._complete(item) for item in items]

    def _complete(self, item: Completion) -> Written:
        try:
            text, size = self._subject.continue_text(item.prompt, max_tokens=item.max_tokens, stop=item.stop)
        except AnswerError as error:
            return Written(text="", reason=str(error))
        return Written(text=text, size=size)
