"""Choice tasks over a public-domain text: Newton's Opticks (fourth edition, 1730), 130 paragraphs that need no figure.

``words``: four words of the same book and of like frequency, which comes next? ``sentences``: the next sentence, or one from elsewhere?
"""

from __future__ import annotations

import random
import re
from functools import lru_cache

from swiftsure.records.texts import opticks
from swiftsure.verify.tasks.items import Choice, Passage, Place

PLACES_PER_PASSAGE = 9
_FIRST_PLACE = 18  # words; before that there is too little to go by
_BETWEEN = 4
_CHOICES = 4
_WORD = re.compile(r"(?<= )[a-z]{4,}(?=[ ,;:.])")


@lru_cache(maxsize=1)
def paragraphs() -> tuple[str, ...]:
    return tuple(" ".join(paragraph.split()) for paragraph in opticks().split("\n\n"))


def word_passages() -> tuple[Passage, ...]:
    """A passage for each paragraph, with a choice every few words from the eighteenth on."""
    vocabulary = _vocabulary()
    return tuple(passage for i, text in enumerate(paragraphs()) if (passage := _passage(i, text, vocabulary)).places)


def sentence_choices() -> tuple[Choice, ...]:
    """The beginning of each paragraph with three sentences : its next one, and two that follow somewhere else."""
    cut = [(i, parts) for i, text in enumerate(paragraphs()) if len(parts := _sentences(text)) >= 3 and len(parts[1]) + len(parts[2]) < 600]
    found = []
    for i, parts in cut:
        rng = random.Random(1000 + i)
        right = " " + parts[2]
        others = [" " + rest[2] for j, rest in cut if j != i and 0.5 < len(rest[2]) / len(parts[2]) < 2]
        if len(others) >= 2:
            choices = [right, *rng.sample(others, 2)]
            rng.shuffle(choices)
            chosen = tuple(choices)
            found.append(
                Choice(id=f"sentences-{i:03}", cluster=f"opticks-{i:03}", context=parts[1], choices=chosen, right=chosen.index(right))
            )
    return tuple(found)


def _passage(number: int, text: str, vocabulary: tuple[str, ...]) -> Passage:
    rng = random.Random(number)
    places: list[Place] = []
    begin = 0  # of the text that no place holds yet
    last_word = -_BETWEEN
    for match in _WORD.finditer(text):
        words_before = text.count(" ", 0, match.start())
        if words_before < _FIRST_PLACE or words_before - last_word < _BETWEEN or match.group() not in vocabulary:
            continue
        at = match.start() - 1  # the blank belongs to the word
        choices = _choices(match.group(), vocabulary, rng)
        places.append(Place(before=text[begin:at], choices=tuple(choices), right=choices.index(match.group())))
        begin, last_word = at, words_before
        if len(places) == PLACES_PER_PASSAGE:
            break
    return Passage(id=f"opticks-{number:03}", places=tuple(places))


def _choices(word: str, vocabulary: tuple[str, ...], rng: random.Random) -> list[str]:
    """The word and three others of neighbouring frequency, each with an initial letter of its own."""
    rank = vocabulary.index(word)
    near = [other for other in vocabulary[max(0, rank - 40) : rank + 41] if other != word]
    rng.shuffle(near)
    chosen = {word[0]: word}
    for other in near:
        if len(chosen) < _CHOICES:
            chosen.setdefault(other[0], other)
    choices = list(chosen.values())
    rng.shuffle(choices)
    return choices


@lru_cache(maxsize=1)
def _vocabulary() -> tuple[str, ...]:
    """Words that come at least three times, the most frequent first."""
    counts: dict[str, int] = {}
    for text in paragraphs():
        for word in _WORD.findall(text):
            counts[word] = counts.get(word, 0) + 1
    return tuple(sorted((word for word, count in counts.items() if count >= 3), key=lambda word: (-counts[word], word)))


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[a-z]{3}[.?!]) (?=[A-Z])", text) if part]
