from __future__ import annotations

from swiftsure.verify.tasks.prose import paragraphs, sentence_choices, word_passages


def test_words_are_more_than_five_hundred_items_and_the_same_every_time() -> None:
    passages = word_passages()
    assert sum(passage.items for passage in passages) > 900
    assert passages == word_passages()
    assert len({passage.id for passage in passages}) == len(passages) > 100


def test_the_right_word_is_what_the_book_says_and_choices_begin_differently() -> None:
    books = paragraphs()
    for passage in word_passages():
        text = books[int(passage.id.removeprefix("opticks-"))]
        read = ""
        for place in passage.places:
            read += place.before
            assert text.startswith(f"{read} {place.choices[place.right]}")
            assert len({word[0] for word in place.choices}) == len(place.choices) == 4


def test_the_right_word_has_no_favourite_place_among_the_choices() -> None:
    right = [place.right for passage in word_passages() for place in passage.places]
    assert all(0.18 < right.count(i) / len(right) < 0.32 for i in range(4))


def test_a_sentence_follows_its_paragraph_and_the_others_do_not() -> None:
    books = paragraphs()
    choices = sentence_choices()
    assert len(choices) >= 40
    for choice in choices:
        text = books[int(choice.id.removeprefix("sentences-"))]
        for i, sentence in enumerate(choice.choices):
            assert (choice.context + sentence in text) == (i == choice.right)
