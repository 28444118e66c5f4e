"""The page at ``/``: what it is sent with, what it draws from, and a race in a real browser, read off the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from serve.browser import CHROMIUM, Page, browser
from serve.conftest import MODEL, RunningServer, running_server
from swiftsure.serve.apis.watch import MOST_WATCHERS
from swiftsure.serve.page import FILES, read_files
from swiftsure.serve.settings import ServeSettings, read_keys

KEY = "a-key-for-the-page-1"
INLINE = r"\son[a-z]+\s*=\s*[\"']|<style|style=|innerHTML|insertAdjacentHTML|document\.write|eval\("
SECRET = "Nobody is told of this"


@pytest.fixture(scope="module")
def guarded(tiny_settings: Callable[..., ServeSettings], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One model in two modes, behind a key of the standard tier."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"page {KEY} standard\n")
    [exact] = tiny_settings().models
    models = tuple(replace(exact, name=mode, mode=mode) for mode in ("exact", "default"))
    with running_server(tiny_settings(models=models, keys=read_keys(keys))) as running:
        yield running


@pytest.fixture(scope="module")
def page(guarded: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One tab for all tests, in their order: a key is asked for, given, and kept."""
    with browser(tmp_path_factory.mktemp("profile")) as page:
        page.open(f"{guarded.url}/")
        yield page


class TestFiles:
    def test_every_file_comes_with_its_type_and_the_policy(self, server: RunningServer) -> None:
        paths = {"/": "text/html", **{f"/page/{name}": file.media_type for name, file in read_files().items()}}
        assert len(paths) > 8
        for path, kind in paths.items():
            answer = httpx.get(server.url + path)
            assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind.partition(";")[0]), path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            again = httpx.get(server.url + path, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")

    def test_no_other_path_is_a_file(self, server: RunningServer) -> None:
        for path in ("/page/", "/page/none.js", "/page/__init__.py", "/page/..%2f__init__.py", "/page/%2e%2e/__init__.py"):
            assert httpx.get(server.url + path).status_code == 404, path

    def test_nothing_comes_from_elsewhere_and_nothing_runs_inline(self) -> None:
        for path in FILES.iterdir():
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[a-z0-9-]+\.[a-z]", text), path.name
            assert not re.search(INLINE, text), path.name
        index = (FILES / "index.html").read_text()
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", index))

    def test_every_file_that_one_names_is_there(self) -> None:
        named = {name for path in FILES.iterdir() for name in re.findall(r"/page/([\w.]+)", path.read_text(encoding="utf-8"))}
        assert named <= {path.name for path in FILES.iterdir()} == set(read_files())


class TestState:
    def test_it_says_what_runs_and_holds_no_text_of_users(self, server: RunningServer) -> None:
        body = {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": SECRET}]}
        assert httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).status_code == 200
        answer = httpx.get(f"{server.url}/v1/swiftsure/state")
        state = answer.json()
        [model] = state["models"]
        facts = server.service.model(MODEL).facts
        assert (state["ready"], state["audit"], state["tiers"]) == (True, None, ["standard", "priority"])
        assert (model["name"], model["state"], model["chat"]) == (MODEL, "ready", True)
        assert (model["facts"]["mode"], model["facts"]["keeps_bits"], model["facts"]["numerics"]) == ("exact", True, facts.numerics)
        assert model["facts"]["active_line"] == facts.active_line
        assert set(model["levers"]) == {"speculation", "prefix_cache", "batching", "chunked_prefill"}
        assert model["lanes"]["priority"]["requests_limit"] == 2
        assert SECRET not in answer.text

    def test_events_begin_with_the_state_and_pulse_while_an_answer_comes(self, server: RunningServer) -> None:
        with httpx.stream("GET", f"{server.url}/v1/swiftsure/events", timeout=60) as events:
            lines = events.iter_lines()
            assert next(lines) == "event: state"
            assert json.loads(next(lines).removeprefix("data: "))["ready"]
            body = {"model": MODEL, "max_tokens": 8, "prompt": "ab"}
            assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 200
            while next(lines) != "event: pulse":
                pass
            pulse = json.loads(next(lines).removeprefix("data: "))["models"][MODEL]
        assert pulse["engine"]["passes"] > 0
        assert set(pulse) == {"engine", "levers", "lanes"}

    def test_keys_guard_the_state_and_not_the_files(self, guarded: RunningServer) -> None:
        for path in ("state", "events"):
            answer = httpx.get(f"{guarded.url}/v1/swiftsure/{path}")
            assert (answer.status_code, "an API key is needed" in answer.text) == (401, True)
        state = httpx.get(f"{guarded.url}/v1/swiftsure/state", headers={"x-api-key": KEY})
        assert state.json()["tiers"] == ["standard"]
        assert [model["facts"]["mode"] for model in state.json()["models"]] == ["exact", "default"]
        page = httpx.get(guarded.url)
        assert page.status_code == 200
        assert KEY not in state.text + page.text

    def test_so_many_may_watch_and_no_more(self, server: RunningServer) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        with httpx.Client(limits=limits, timeout=60) as client:

            def watch() -> httpx.Response:
                return client.send(client.build_request("GET", f"{server.url}/v1/swiftsure/events"), stream=True)

            refused, watching = watch(), []
            while refused.status_code == 200 and len(watching) <= MOST_WATCHERS:
                watching.append((refused, lines := refused.iter_lines()))  # the lines too: a response ends with its iterator
                assert next(lines) == "event: state"
                refused = watch()
            for each, _ in (*watching, (refused, None)):
                each.close()
        assert MOST_WATCHERS - 1 <= len(watching) <= MOST_WATCHERS  # one that left may be noticed late
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (Debian and Ubuntu: apt install chromium)")
class TestInABrowser:
    def test_it_asks_for_a_key_says_that_one_is_wrong_and_keeps_the_right_one_for_this_tab(self, page: Page) -> None:
        page.wait_for("!document.getElementById('key-form').hidden")
        self.give_key(page, "not-a-key-of-this-server")
        assert "not known here" in page.wait_for("document.getElementById('key-problem').textContent")
        self.give_key(page, KEY)
        page.wait_for("document.getElementById('readiness').textContent === 'ready'")
        kept = page.evaluate("[Object.values(sessionStorage).join(), Object.values(localStorage).join(), document.cookie, location.href]")
        assert (kept[0], [KEY in place for place in kept[1:]]) == (KEY, [False, False, False])
        assert KEY not in page.evaluate("document.documentElement.outerHTML")
        assert page.evaluate("[...document.querySelectorAll('#tier option')].map((option) => option.disabled)") == [False, True]

    def test_a_race_ends_with_0_bits_differ_by_the_digests_of_both_lanes(self, page: Page) -> None:
        found = self.race(page, temperature=0.8)
        assert (found["kind"], found["title"]) == ("same", "0 bits differ")
        assert found["states"] == ["done", "done"]
        assert found["digests"][0] == found["digests"][1]
        assert re.fullmatch("sw1:[0-9a-f]{64}", found["digests"][0])
        assert found["outputs"][0] == found["outputs"][1] != ""
        assert "24 tokens in each of 2 lanes" in found["text"]

    def test_without_digests_no_bits_are_claimed(self, page: Page) -> None:
        def of(**changes: Any) -> Any:
            lane = {"name": "a", "mode": "default", "keepsBits": True, "weights": "w", "numerics": "n", "fingerprint": "n-w", "whole": True}
            return {**lane, "promptIds": [1], "tokenIds": [5, 6], "digest": "sw1:aa", **changes}

        fast = {"mode": "fast", "keepsBits": False, "numerics": "f", "fingerprint": "f-w", "digest": "sw1:bb"}
        for changes, kind, words in (
            ({}, "same", "0 bits differ"),
            ({"digest": None}, "tokens", "only tokens were compared"),
            ({"digest": "other"}, "tokens", "only tokens were compared"),
            ({"digest": "sw1:bb"}, "broken", "some logit behind them is not the same"),
            ({"tokenIds": [5, 7]}, "broken", "tokens part at 2, though mode exact promises the bits"),
            (fast, "tokens", "need not be"),
            ({**fast, "tokenIds": [5]}, "differ", "number 2 (mode fast promises no bits)"),
            ({"promptIds": [2]}, "none", "not comparable"),
            ({"whole": False}, "none", "an answer is not whole"),
        ):
            lanes = [of(), of(**{"name": "b", "mode": "exact", **changes})]
            found = page.evaluate(f"import('/page/compare.js').then((m) => m.verdict({json.dumps(lanes)}))")
            assert (found["kind"], words in found["pairs"]["b"]["text"]) == (kind, True), (changes, found)
            assert kind == "same" or "0 bits" not in json.dumps(found), found

    def test_what_is_refused_is_said_in_words(self, page: Page) -> None:
        found = self.race(page, temperature=0.8, max_tokens=24, tier="priority")
        assert (found["kind"], found["title"]) == ("failed", "A lane failed")
        assert "may use standard, not the priority tier" in found["text"]

    def test_engines_and_facts_are_drawn(self, page: Page) -> None:
        assert page.evaluate("document.querySelectorAll('.engine canvas[aria-label]').length") == 2
        facts = page.evaluate("document.getElementById('facts').innerText")
        for words in ("ready", "sha256:", "cpu1", "speculation", "prefix cache", "No levers: this is the reference"):
            assert words in facts
        assert "Audits are off" in page.evaluate("document.getElementById('audit').innerText")

    def test_it_fits_a_phone_and_follows_the_system_into_the_dark(self, page: Page) -> None:
        page.look(width=360, height=740, dark=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ground)
        for theme, colour in (("light", "differs"), ("dark", "same")):
            page.evaluate("document.getElementById('theme').click()")
            assert page.evaluate("document.documentElement.dataset.theme") == theme
            assert (page.evaluate(ground) == dark) == (colour == "same")

    def test_the_policy_had_nothing_to_refuse(self, page: Page) -> None:
        assert [error for error in page.errors if "401" not in error and "403" not in error] == []

    @staticmethod
    def give_key(page: Page, key: str) -> None:
        form = "document.getElementById('key-form')"
        page.evaluate(f"document.getElementById('key').value = {json.dumps(key)}; {form}.requestSubmit()")

    @staticmethod
    def race(page: Page, *, temperature: float, max_tokens: int = 24, tier: str = "standard") -> dict[str, Any]:
        """Runs one and reads the page."""
        values = {"prompt": "Hello there", "max-tokens": max_tokens, "temperature": temperature, "tier": tier}
        page.evaluate("document.querySelectorAll('#tier option').forEach((option) => { option.disabled = false; })")
        for name, value in values.items():
            page.evaluate(f"document.getElementById('{name}').value = {json.dumps(str(value))}")
        page.evaluate("document.getElementById('race').requestSubmit()")
        page.wait_for(
            "!['idle', 'running'].includes(document.getElementById('verdict').dataset.kind) && document.getElementById('stop').hidden"
        )
        read = """(() => {
            const all = (selector, what) => [...document.querySelectorAll(selector)].map(what);
            const box = document.getElementById("verdict");
            return {
                kind: box.dataset.kind, title: box.querySelector(".title").textContent, text: box.querySelector(".text").textContent,
                states: all(".lane", (lane) => lane.dataset.state), digests: all(".lane .digest", (one) => one.textContent),
                outputs: all(".lane .output", (one) => one.textContent),
            };
        })()"""
        return dict(page.evaluate(read))
