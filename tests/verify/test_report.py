from __future__ import annotations

import dataclasses
import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from swiftsure.verify import ProveResult
from swiftsure.verify.proving import words
from swiftsure.verify.proving.report import render_report

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Collects text and addresses, and checks that every tag is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.addresses: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_report_says_the_verdict_first_and_then_everything_else(honest_result: ProveResult) -> None:
    page = Page(render_report(honest_result))
    assert page.open == []
    text = re.sub(r"\s+", " ", page.text)
    verdict = text.index(words.headlines(honest_result)[0])
    places = [text.index(heading) for heading in ("Plots", "What was proved", "What was not tested", "Pins and machine")]
    assert [verdict, *places] == sorted([verdict, *places])
    assert "0 of" in text[verdict : verdict + 300]


def test_report_needs_nothing_from_elsewhere(honest_result: ProveResult) -> None:
    html = render_report(honest_result)
    assert Page(html).addresses == []
    assert "<script" not in html
    assert not re.search(r"https?://|url\(|@import", html)


def test_report_escapes_what_models_and_prompts_say(honest_result: ProveResult) -> None:
    prompts = [dict(prompt) for prompt in honest_result.prompts]
    prompts[0] |= {"text": "</pre><script>alert(1)</script>", "name": "<b>bold</b>"}
    html = render_report(dataclasses.replace(honest_result, prompts=prompts))
    assert "<script" not in html
    assert "<b>bold" not in html
    assert "&lt;b&gt;bold" in html


def test_report_names_what_was_not_tested(honest_result: ProveResult) -> None:
    text = Page(render_report(honest_result)).text
    assert "big: not active" in text
    assert "NOT MEASURED" in text


def test_report_of_a_failed_run_says_where(honest_result: ProveResult) -> None:
    exact = dataclasses.replace(honest_result.mode("exact"), verdict="FAILED", reason="prompt greedy, cold pass, row 5", bits_differing=3)
    failed = dataclasses.replace(honest_result, modes=(honest_result.modes[0], exact, *honest_result.modes[2:]))
    html = render_report(failed)
    assert 'class="verdict failed"' in html
    assert "exact FAILED: prompt greedy, cold pass, row 5. 3 of" in html


def test_report_shows_the_upstream_column_where_it_was_measured(honest_result: ProveResult) -> None:
    agreement = {"largest_difference": 0.0031, "mean_kl": 1e-7, "top1_agreement": 0.998, "rows": 288}
    upstream = {
        "status": "MEASURED",
        "versions": {"transformers": "5.24.0", "torch": "2.13.0"},
        "dtype": "float32",
        "prompts": 6,
        "new_tokens": 48,
        "decode_tokens_per_s": 27.0,
        "ttft_s": 0.2,
        "peak_rss_bytes": 9e8,
        "agreement": agreement,
        "verdict": {"kind": "FAIL", "reasons": ["absolute 0.0031 against a limit of 0.001"], "exit_code": 1},
    }
    judged = dataclasses.replace(honest_result, upstream=upstream)
    assert judged.exit_code == 1  # though every mode is proved
    text = Page(render_report(judged)).text
    assert "by its contract FAIL: absolute 0.0031 against a limit of 0.001" in text
    assert "transformers 5.24.0" in text
    assert "largest logit difference 0.0031" in text
    assert "NOT MEASURED" not in text


def test_an_interval_that_contains_one_is_not_sold_as_a_speedup(honest_result: ProveResult) -> None:
    exact = honest_result.mode("exact")
    for low, shown in ((0.9, True), (1.1, False)):
        bounds = {**exact.intervals, "decode": {"ratio": 1.2, "low": low, "high": 1.4, "pairs": 9}}
        mode = dataclasses.replace(exact, speedup={**exact.speedup, "decode": 1.2}, intervals=bounds)
        assert ("no difference is shown" in words.sentence(mode)) is shown


@pytest.mark.parametrize("width", [80, 120])
def test_table_fits_the_terminal(honest_result: ProveResult, width: int) -> None:
    out = io.StringIO()
    honest_result.print_table(Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    assert "…" not in out.getvalue()
    assert any(line.split()[:2] == ["exact", "PROVED"] for line in lines)
    assert "bits differ" in out.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not reached"), (0.00005, "50 µs"), (0.0123, "12.3 ms"), (0.4567, "457 ms"), (12.345, "12.3 s"), (234.5, "234 s")],
)
def test_seconds_are_said_as_a_person_would(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


def test_intervals_keep_to_three_digits() -> None:
    assert words.interval({"ratio": 1.2345, "low": 0.5, "high": 123.4}) == "1.23x (0.50-123)"
    assert words.interval({"ratio": 12.345, "low": None}) == "INCONCLUSIVE"


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (999_999, "999,999"), (1_500_000, "1.5 million"), (2_612_264_960, "2.61 billion")])
def test_counts_are_said_as_a_person_would(value: int, text: str) -> None:
    assert words.count(value) == text
