"""Tasks answered in words, made by seeded generators: arithmetic, copying, extraction into JSON, a fact found in a long text.

All prompts show examples first, so that a model without a chat template can do them too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from swiftsure.verify.tasks.items import Completion
from swiftsure.verify.tasks.prose import paragraphs

LINE = ("\n",)
NEEDLE_WORDS = (50, 150, 400, 800)
SCHEMA = {"name": str, "item": str, "count": int, "price": int}
_NAMES = ("Ana", "Bruno", "Chiara", "David", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Karin", "Luis", "Mina", "Nils")
_ITEMS = ("lamps", "chairs", "books", "clocks", "mugs", "shelves", "carpets", "mirrors", "radios", "towels", "bells", "kettles")
_WORDS = (
    "river", "stone", "cloud", "lantern", "violet", "hammer", "garden", "silver", "window", "basket",
    "copper", "meadow", "thunder", "ribbon", "candle", "harbor", "pepper", "island", "saddle", "mirror",
)  # fmt: skip


def sums() -> tuple[Completion, ...]:
    """120 sums and differences of numbers with one to three digits."""
    rng, found = random.Random(21), []
    for i in range(120):
        reach = (10, 100, 1000)[i % 3]
        a, b = rng.randrange(reach), rng.randrange(reach)
        sign, answer = ("+", a + b) if rng.random() < 0.6 else ("-", a - b)
        prompt = f"7 + 5 = 12\n38 - 21 = 17\n120 + 46 = 166\n{a} {sign} {b} ="
        found.append(_line(f"arithmetic-{i:03}", prompt, 6, _equals(str(answer))))
    return tuple(found)


def copies() -> tuple[Completion, ...]:
    """80 lists of 3 to 24 words to repeat."""
    rng, found = random.Random(22), []
    for i in range(80):
        words = " ".join(rng.choice(_WORDS) for _ in range((3, 6, 12, 24)[i % 4]))
        shown = ("candle meadow silver", "basket river ribbon stone")
        prompt = "".join(f"Text: {text}\nCopy: {text}\n\n" for text in shown) + f"Text: {words}\nCopy:"
        found.append(_line(f"copying-{i:03}", prompt, 64, _equals(words)))
    return tuple(found)


def records() -> tuple[Completion, ...]:
    """60 orders in a sentence, to be written as a JSON object of four fields with the right types and values."""
    rng, found = random.Random(23), []
    for i in range(60):
        record = _record(rng)
        prompt = "\n\n".join(
            [
                "Write each order as a JSON object with name, item, count and price.",
                *(f"Order: {_order(one, i)}\nJSON: {json.dumps(one)}" for one in (_record(random.Random(s)) for s in (1, 2))),
                f"Order: {_order(record, i)}\nJSON:",
            ]
        )
        found.append(_line(f"json-{i:03}", prompt, 48, _matches(record)))
    return tuple(found)


def needles() -> tuple[Completion, ...]:
    """40 texts of four lengths with four people's numbers in them, at depths of their own; one of the numbers is asked for."""
    book = " ".join(paragraphs()).split()
    rng, found = random.Random(24), []
    for length in NEEDLE_WORDS:
        for i in range(10):
            start = rng.randrange(len(book) - length)
            words = book[start : start + length]
            people = rng.sample(_NAMES, 4)
            numbers = rng.sample(range(1000, 10_000), 4)
            for name, number in zip(people, numbers, strict=True):
                words.insert(rng.randrange(len(words)), f"{name} wrote down the number {number}.")
            asked = i % 4
            prompt = f"{' '.join(words)}\n\nQuestion: Which number did {people[asked]} write down?\nAnswer: The number is"
            found.append(_line(f"needle-{length:03}-{i:02}", prompt, 8, _starts(str(numbers[asked]))))
    return tuple(found)


def _record(rng: random.Random) -> dict[str, str | int]:
    return {"name": rng.choice(_NAMES), "item": rng.choice(_ITEMS), "count": rng.randrange(2, 40), "price": rng.randrange(5, 900)}


def _order(record: dict[str, str | int], number: int) -> str:
    forms = (
        "{name} ordered {count} {item} and paid {price} euros.",
        "For {price} euros, {count} {item} went to {name}.",
        "We sold {count} {item} at {price} euros in all; the buyer is {name}.",
    )
    return forms[number % len(forms)].format(**record)


def _line(name: str, prompt: str, max_tokens: int, check: Callable[[str], float]) -> Completion:
    return Completion(id=name, cluster=name, prompt=prompt, max_tokens=max_tokens, stop=LINE, check=check)


def _equals(expected: str) -> Callable[[str], float]:
    return lambda text: float(text.split("\n", 1)[0].strip().rstrip(".") == expected)


def _starts(expected: str) -> Callable[[str], float]:
    return lambda text: float(text.strip().rstrip(".").replace(",", "").split(".")[0].split(" ")[0] == expected)


def _matches(record: dict[str, str | int]) -> Callable[[str], float]:
    def check(text: str) -> float:
        try:
            found, _ = json.JSONDecoder().raw_decode(text.strip())
        except ValueError:
            return 0.0
        if not isinstance(found, dict) or set(found) != set(SCHEMA):
            return 0.0
        return float(all(type(found[key]) is kind and found[key] == record[key] for key, kind in SCHEMA.items()))

    return check
