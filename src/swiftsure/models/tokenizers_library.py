"""Calls into the tokenizers library with what came from a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from swiftsure.errors import ModelFileError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine


def ids_of(engine: Engine, text: str) -> list[int]:
    """Ids of a text, without special tokens, with the interpreter lock released.

    The library's ``encode`` keeps the lock to its end, for seconds with some megabytes of text: a server would stand still.
    """
    (encoding,) = engine.encode_batch_fast([text], add_special_tokens=False)
    return list(encoding.ids)


@contextmanager
def faults_named(what: str) -> Iterator[None]:
    """Turns whatever the library says inside into a ModelFileError that begins with ``what``.

    It raises bare Exception for most faults and panics at others; a panic arrives as a BaseException of its own, which is told by name
    because the class is not exported.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelFileError(f"{what}: {str(error)[:300]}") from None
