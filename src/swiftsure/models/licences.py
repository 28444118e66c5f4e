"""Licences of the catalogue's models: shown before the first download, and agreed to where their terms ask for that.

An agreement is recorded once, in ``licences/<model>.json`` of the cache folder, and not asked for again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from swiftsure.errors import LicenceError, ModelError, UsageError
from swiftsure.models import cache

VARIABLE = "SWIFTSURE_ACCEPT_LICENCE"
_YES, _NO = ("1", "true", "yes"), ("", "0", "false", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """``gist``: one sentence for who must agree; None where using a model asks for no agreement."""

    name: str
    url: str
    gist: str | None = None

    @property
    def needs_consent(self) -> bool:
        return self.gist is not None


LICENCES: dict[str, Licence] = {
    "apache-2.0": Licence(name="Apache License 2.0", url="https://www.apache.org/licenses/LICENSE-2.0"),
    "mit": Licence(name="MIT License", url="https://opensource.org/license/mit"),
    "gemma": Licence(
        name="Gemma Terms of Use",
        url="https://ai.google.dev/gemma/terms",
        gist="They allow use, changes and distribution, forbid what Google's prohibited use policy lists, and must be passed on with the "
        "model and with what is made from it.",
    ),
}

Consent = Callable[[str, Licence], bool]
"""Asks whoever can answer whether the licence of the model (first argument) is accepted."""

AcceptLicence = bool | Consent


def settle(model: str, licence: Licence, *, pin: str, accept_licence: AcceptLicence) -> None:
    """Sees to it that the licence of ``model`` is agreed to before anything is fetched.

    ``accept_licence``: True agrees, False does not, a callback is asked; ``SWIFTSURE_ACCEPT_LICENCE=1`` agrees too. ``pin``: SHA-256 of the
    file, for the record. Raises LicenceError where nobody agrees, UsageError for another value of the variable.
    """
    if not licence.needs_consent or agreed(model, licence):
        return
    if _accepted_by_variable():
        how = VARIABLE
    elif accept_licence is True:
        how = "accept_licence"
    elif accept_licence is False:
        raise LicenceError(
            f"'{model}' comes under the {licence.name} ({licence.url}), which must be accepted before it is fetched: read them, "
            f"then give --accept-licence, set {VARIABLE}=1 or, in Python, pass accept_licence=True"
        )
    elif accept_licence(model, licence):
        how = "asked"
    else:
        raise LicenceError(f"the {licence.name} ({licence.url}) were not accepted: '{model}' was not fetched")
    _record(model, licence, pin=pin, how=how)


def agreed(model: str, licence: Licence) -> bool:
    """Whether this very licence of the model was agreed to before, on this cache folder."""
    try:
        record = json.loads(_record_path(model).read_text())
        return (record["model"], record["licence"], record["url"]) == (model, licence.name, licence.url)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # absent, unreadable or another's: asked anew


def _accepted_by_variable() -> bool:
    value = os.environ.get(VARIABLE, "").strip().lower()
    if value not in (*_YES, *_NO):
        raise UsageError(f"{VARIABLE} must be one of {', '.join(_YES)}, or {', '.join(_NO[1:])} or unset, got {os.environ[VARIABLE]!r}")
    return value in _YES


def _record(model: str, licence: Licence, *, pin: str, how: str) -> None:
    record = {
        "model": model,
        "sha256": pin,
        "licence": licence.name,
        "url": licence.url,
        "accepted_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "accepted_by": how,
    }
    try:
        cache.write_whole(_record_path(model), json.dumps(record, indent=2))
    except OSError as error:
        raise ModelError(f"the cache folder {cache.home()} cannot be written ({error.strerror or error}); set SWIFTSURE_HOME") from None


def _record_path(model: str) -> Path:
    return cache.home() / "licences" / f"{model}.json"
