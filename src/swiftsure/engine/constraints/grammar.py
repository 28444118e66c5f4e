"""What a generation must conform to, as a caller states it. Pure data; :mod:`.compiler` turns it into something that runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from swiftsure.errors import UsageError

GrammarKind: TypeAlias = Literal["json_schema", "json_object", "regex", "lark"]
MAX_TEXT = 128 * 1024  # characters of a schema, an expression or a grammar
MAX_DEPTH = 64  # of a schema: objects and lists within each other

# Fixed separators, as most models' training data has them: a small model cannot lose itself in blanks, and more of each object is forced.
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """A language that all of a generation's text belongs to once it ended with reason ``stop``.

    kind: ``json_schema``: JSON that ``text``, a schema, admits. ``json_object``: any JSON object; text is empty. ``regex``: the whole
    text matches the expression (Rust's syntax: no look-around, no back references). ``lark``: a context-free grammar in llguidance's
    notation, with the rule ``start``.

    JSON is written on one line with ``", "`` and ``": "`` between its parts, unless the schema says otherwise (``x-guidance``).

    Raises UsageError for what can be seen without compiling: unknown kind, no JSON, more than 131,072 characters, nested deeper than 64.
    """

    kind: GrammarKind
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(GrammarKind):
            raise UsageError(f"the kind of a grammar must be {', '.join(get_args(GrammarKind))}, got {self.kind!r}")
        if not isinstance(self.text, str):
            raise UsageError(f"the text of a grammar must be a string, got {type(self.text).__name__}")
        if len(self.text) > MAX_TEXT:
            raise UsageError(f"a {self.kind} must have at most {MAX_TEXT} characters, got {len(self.text)}")
        if self.kind == "json_object":
            if self.text:
                raise UsageError("json_object takes no text; for a given schema say json_schema")
        elif not self.text:
            raise UsageError(f"a {self.kind} must not be empty")
        if any("\ud800" <= character <= "\udfff" for character in self.text) or "\0" in self.text:
            raise UsageError(f"a {self.kind} must hold valid Unicode without NUL")
        if self.kind == "json_schema":
            self._check_schema()

    @classmethod
    def of_schema(cls, schema: Any) -> Grammar:
        """Of a JSON schema as Python has it: a dictionary, or True for any JSON."""
        if not isinstance(schema, (dict, bool)):
            raise UsageError(f"a JSON schema must be an object, got {type(schema).__name__}")
        try:
            check_depth(schema)
            return cls(kind="json_schema", text=json.dumps(schema, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise error if isinstance(error, UsageError) else UsageError(f"a JSON schema must be JSON: {error}") from None

    def _check_schema(self) -> None:
        try:
            schema = json.loads(self.text)
        except RecursionError:
            raise UsageError(f"a JSON schema must be nested at most {MAX_DEPTH} deep") from None
        except ValueError as error:
            raise UsageError(f"a JSON schema must be JSON: {error}") from None
        if not isinstance(schema, (dict, bool)):
            raise UsageError(f"a JSON schema must be an object, got {type(schema).__name__}")
        check_depth(schema)


def check_depth(value: Any) -> None:
    """Raises UsageError for JSON nested deeper than 64. Without recursion, and so for any depth."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [part for item in level for part in _parts(item)]
        if not level:
            return
    raise UsageError(f"a JSON schema must be nested at most {MAX_DEPTH} deep")


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
