"""Everything Swiftsure raises on purpose.

::

    SwiftsureError                 exit code
    ├── UsageError                 2   an argument breaks a rule; the message states the rule and the value
    ├── ModelError                 2   a model cannot be used
    │   ├── ModelNotFoundError         no such name, file or revision
    │   ├── ModelFileError             the file is damaged, truncated or lies about itself
    │   ├── UnsupportedModelError      a sound file of a kind this build cannot run
    │   ├── DigestError                the bytes are not the pinned ones
    │   └── LicenceError               the model's licence was not accepted
    ├── TemplateError              2   a chat template refused the messages or misbehaved
    ├── ContextLengthError         2   the request does not fit the context
    ├── CapacityError              1   memory or key-value blocks ran out
    │   └── GrammarLimitError          following a grammar took more than its limits allow, or it leads nowhere
    ├── NotActiveError             3   a mode or a lever cannot engage
    ├── UnprovedError              3   occasions arose and the evidence is missing
    ├── ContractError              1   a promise was broken while running
    └── EndpointError              1   an endpoint that is measured does not answer, or refuses what it is asked
"""

from __future__ import annotations

MAX_QUOTED = 2000  # characters of a message that may quote a file: names and values in it can have any length


def quotable(message: str) -> str:
    """A message that may quote a file, fit to be printed: one line, nothing that a terminal obeys, not endless.

    A name in a model file can hold line ends, escape sequences or characters that reverse a line; printed as they stand, they could clear
    the screen or write a line that looks like one of ours.
    """
    if not message.isprintable():
        message = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)
    if len(message) > MAX_QUOTED:
        head, tail = MAX_QUOTED * 3 // 4, MAX_QUOTED // 5
        message = f"{message[:head]} [{len(message) - head - tail} characters left out] {message[-tail:]}"
    return message


class SwiftsureError(Exception):
    """Base of all errors a user is meant to read. ``exit_code`` is what the command line ends with."""

    exit_code = 1


class UsageError(SwiftsureError, ValueError):
    exit_code = 2


class ModelError(SwiftsureError):
    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(quotable(message))


class ModelNotFoundError(ModelError):
    pass


class ModelFileError(ModelError):
    pass


class UnsupportedModelError(ModelError):
    pass


class DigestError(ModelError):
    pass


class LicenceError(ModelError):
    pass


class TemplateError(SwiftsureError):
    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(quotable(message))


class ContextLengthError(SwiftsureError):
    exit_code = 2


class CapacityError(SwiftsureError):
    exit_code = 1


class GrammarLimitError(CapacityError):
    pass


class NotActiveError(SwiftsureError):
    exit_code = 3


class UnprovedError(SwiftsureError):
    exit_code = 3


class ContractError(SwiftsureError):
    exit_code = 1


class EndpointError(SwiftsureError):
    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(quotable(message))
