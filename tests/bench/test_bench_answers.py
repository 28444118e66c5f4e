"""What is answered from figures: comparisons, claims, requirements, tables and the page."""

from __future__ import annotations

import contextlib
import csv
import math
import re
import sys
from pathlib import Path

import pytest
from constructed import cell, crowd, exchange, failed, rounds
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.bench import export, require
from swiftsure.bench.claim import judge, parse_claim
from swiftsure.bench.compare import Comparison, compare
from swiftsure.bench.figures import Prices, Settings, Slo, Summary, load_summary, summarize
from swiftsure.bench.report import comparison_table, formulas_table, render_report, text_table, write_report
from swiftsure.errors import UsageError

FEW = Settings(resamples=100, about={"prompts_sha256": "aa", "protocol": {"max_tokens": 100}})


def run(factor: float = 1.0, settings: Settings = FEW, **fields: object) -> Summary:
    dice = iter(0.95 + 0.1 * ((7 * i) % 10) / 10 for i in range(10_000))
    waits = {(p, r, k): 0.2 * factor * (1 + 0.1 * p) * next(dice) for r in range(2) for p in range(6) for k in range(3)}
    return summarize(
        rounds(prompts=6, repeats=3, number=2, ttft=lambda p, r, k: waits[p, r, k], gap_s=0.01 * factor, **fields), [], settings
    )


def verdicts(comparison: Comparison) -> dict[str, str]:
    return {row.figure: row.verdict for row in comparison.rows}


def test_a_run_against_itself_shows_no_difference() -> None:
    found = compare(run(), run())
    assert found.comparable
    assert set(verdicts(found).values()) == {"no difference shown"}
    assert all(row.ratio == pytest.approx(1) for row in found.rows)


def test_a_slower_run_is_called_slower_in_every_figure_and_the_other_way_round() -> None:
    there = {row.figure: row for row in compare(run(), run(1.25)).rows}
    assert {name: there[name].verdict for name in ("ttft", "decode", "e2e", "tpot")} == dict.fromkeys(
        ("ttft", "decode", "e2e", "tpot"), "slower"
    )
    assert there["ttft"].ratio == pytest.approx(0.8)
    back = verdicts(compare(run(1.25), run()))
    assert back["ttft"] == back["decode"] == "faster"


def test_too_few_exchanges_are_inconclusive_not_equal() -> None:
    one = summarize([exchange()], [], FEW)
    assert verdicts(compare(one, one))["ttft"] == "INCONCLUSIVE"


def test_other_prompts_or_another_protocol_are_refused_in_words_or_marked() -> None:
    others = Settings(resamples=100, about={"prompts_sha256": "bb", "protocol": {"max_tokens": 500}})
    found = compare(run(), run(settings=others))
    assert not found.comparable
    assert not found.rows
    assert any("the prompts differ" in words for words in found.refusals)
    assert any("max_tokens is 100 in A and 500 in B" in words for words in found.refusals)
    assert "NOT COMPARABLE" in comparison_table(found)
    despite = compare(run(), run(settings=others), despite=True)
    assert despite.rows
    assert any("the prompts differ" in words for words in despite.marks)


def test_runs_with_other_contexts_or_loads_are_compared_in_what_they_share() -> None:
    def side(tokens: int, users: list[int]) -> Summary:
        protocol = {"max_tokens": 100, "context_tokens": tokens, "users": users}
        chosen = Settings(resamples=100, context_tokens=tokens, about={"prompts_sha256": "aa", "protocol": protocol})
        return summarize([exchange(repeat=i, row=row) for row in ("cold", "context") for i in range(6)], [], chosen)

    found = compare(side(1000, [1]), side(30_000, [1, 2]))
    assert {row.group for row in found.rows} == {"cold"}
    assert "the context row is left out: A pasted 1,000 tokens above the prompts, B 30,000" in found.marks
    assert {row.group for row in compare(side(1000, [1]), side(1000, [1, 2])).rows} == {"cold", "context"}


def test_runs_that_share_no_row_are_refused() -> None:
    assert "share no row" in compare(run(), run(row="warm")).refusals[0]


def test_answers_of_another_length_are_marked() -> None:
    assert any("answers have 100 tokens in A and 50 in B" in words for words in compare(run(), run(tokens=50)).marks)


LIMITED = Settings(resamples=100, slo=Slo.parse("ttft=0.25"), about=FEW.about)


def load_of(answers: int, failures: int, **fields: object) -> Summary:
    """One user, an answer or a failure every 2 s."""
    sent = [exchange(repeat=i, sent_s=2.0 * i, **fields) for i in range(answers)]
    return summarize(sent + [failed(repeat=i, sent_s=2.0 * i) for i in range(answers, answers + failures)], [], LIMITED)


@pytest.mark.parametrize("answers", [0, 10])
def test_a_run_whose_exchanges_fail_is_worse_however_fast_the_others_are(answers: int) -> None:
    found = compare(load_of(30, 0), load_of(answers, 30 - answers))
    assert {row.figure: row.verdict for row in found.rows}["ended_well"] == "worse"
    assert "ended_well" in [row.figure for row in found.worse]
    row = next(row for row in found.rows if row.figure == "ended_well")
    assert (row.a, row.b) == (1, pytest.approx(answers / 30))
    assert "100 %" in comparison_table(found)
    assert "ended_well" not in verdicts(compare(load_of(30, 0), load_of(30, 0)))


def test_goodput_that_fell_to_nothing_is_worse_and_one_that_came_from_nothing_is_marked() -> None:
    good, slow = load_of(30, 0), load_of(30, 0, ttft_s=0.3)
    row = next(row for row in compare(good, slow).rows if row.figure == "goodput")
    assert (row.ratio, row.b, row.change) == (0, 0, "worse")
    back = compare(slow, good)
    assert "goodput" not in verdicts(back)
    assert any("good answers a second were 0 in A and are 0.5" in words for words in back.marks)


def test_answers_that_never_began_are_not_left_out_of_a_comparison() -> None:
    """Half of B's answers were all thinking: its time to first answer token is that of the others, and the share says so."""
    thought = [exchange(repeat=i, sent_s=2.0 * i, shares=["reasoning" if i % 2 else "answer"] * 100) for i in range(30)]
    row = next(row for row in compare(load_of(30, 0), summarize(thought, [], LIMITED)).rows if row.figure == "answered")
    assert (row.a, row.b, row.change) == (1, 0.5, "worse")


def ladder() -> Summary:
    """100 tokens/s for each of 1, 4 and 16 users."""
    everything = crowd(users=1, answers=20, row="cold") + crowd(users=4, row="cold") + crowd(users=16, row="cold")
    return summarize(everything, [], FEW)


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        ("3000 tokens/s", "NOT REACHED", "3,000 tokens/s per user: NOT REACHED"),
        ("900 tokens/s", "REACHED ONLY IN AGGREGATE", "900 tokens/s aggregate: REACHED, from cold at 16 users on"),
        ("90 tok/s per user", "REACHED", "per user: REACHED, from cold at 1 user on"),
        ("90 tokens per second for each user at 4 users", "REACHED", "from cold at 4 users on"),
        ("0.2k tps in total", "REACHED", "200 tokens/s aggregate: REACHED, from cold at 4 users on"),
        ("TTFT 240 ms", "REACHED", "time to first token of 240 ms: REACHED"),
        ("time to first token under 0.1 s", "NOT REACHED", "time to first token of 100 ms: NOT REACHED"),
        ("90 t/s per user, TTFT 100 ms", "NOT REACHED", "90 tokens/s per user: REACHED"),
        ("90 tokens/s per user at 64 users", "NOT MEASURED", "measured at 1, 4, 16 users"),
    ],
)
def test_a_claim_is_answered_per_user_and_in_aggregate(text: str, verdict: str, words: str) -> None:
    found = judge(text, ladder_once())
    assert found.verdict == verdict
    assert words in found.words
    assert found.exit_code == {"REACHED": 0, "NOT MEASURED": 3}.get(verdict, 1)


_LADDER: list[Summary] = []


def ladder_once() -> Summary:
    if not _LADDER:
        _LADDER.append(ladder())
    return _LADDER[0]


def test_a_claim_is_not_reached_by_a_prompt_that_was_sent_before() -> None:
    cold, warm = [exchange(repeat=i) for i in range(10)], [exchange(repeat=i, row="warm", ttft_s=0.02) for i in range(10)]
    found = judge("TTFT 50 ms", summarize(cold + warm, [], FEW))
    assert (found.verdict, found.exit_code) == ("NOT REACHED", 1)
    assert "the best is cold at 1 user: 200 ms" in found.words
    assert found.words.endswith("; reached warm at 1 user, where the same prompt had just been sent")
    assert judge("TTFT 50 ms", summarize(warm, [], FEW)).verdict == "REACHED"


def test_a_claim_that_company_breaks_says_with_how_many_users() -> None:
    alone, crowded = crowd(users=1, answers=20, row="cold"), [e for n in (4, 8) for e in crowd(users=n, row="cold", gap_s=0.05)]
    found = judge("90 tokens/s per user", summarize(alone + crowded, [], FEW))
    assert found.verdict == "REACHED"
    assert "REACHED, cold at 1 user, not shown at 4, 8 users: 101" in found.words


def test_an_aggregate_claim_on_one_user_is_not_measured_rather_than_missed() -> None:
    assert judge("3000 tokens/s aggregate", run()).verdict == "NOT MEASURED"


@pytest.mark.parametrize("text", ["", "fast", "3000", "240 ms", "0 tokens/s", "-"])
def test_what_claims_nothing_is_refused_in_words(text: str) -> None:
    with pytest.raises(UsageError, match=r"claim"):
        parse_claim(text)


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_no_text_of_a_claim_or_requirement_breaks_its_reader(text: str) -> None:
    for reader in (parse_claim, require.parse, Slo.parse):
        with contextlib.suppress(UsageError):
            reader(text)


def test_requirements_are_kept_or_broken_with_the_figure_in_words() -> None:
    outcomes = require.evaluate(
        require.parse("ttft_p50<0.3, decode_p50>150 cold.ttft_p95<=900ms error_share<=1% aggregate@4>=300"), ladder_once()
    )
    assert [outcome.kept for outcome in outcomes] == [True, False, True, True, True]
    edge = require.evaluate(require.parse("error_share<=0 error_share<0 error_share>=0 error_share>0"), ladder_once())
    assert [outcome.kept for outcome in edge] == [True, False, True, False]
    assert outcomes[1].words.startswith("broken: cold: 101 tokens/s (101 to 101)")
    assert require.exit_code(outcomes) == 1
    assert require.exit_code(outcomes[:1]) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("goodput>1", "broken: cold: not measured"),
        ("warm.ttft_p50<1", "broken: warm was not measured, only cold"),
        ("ttft_p50@99<1", "broken: cold at 99 users was not measured"),
        ("prefill<1", "the rows cold and context were not both measured"),
    ],
)
def test_a_figure_that_is_missing_breaks_its_requirement(text: str, words: str) -> None:
    outcome = require.evaluate(require.parse(text), ladder_once())[0]
    assert not outcome.kept
    assert words in outcome.words


@pytest.mark.parametrize(
    "text", ["", "ttft_p50", "ttft_p50<", "ttft_p50=1", "speed<3", "ttft<1", "ttft_p50<0.3decode_p50>1", "decode_p50<3ms", "ttft_p50<1e999"]
)
def test_what_is_no_requirement_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(UsageError):
        require.parse(text)


def test_an_unknown_figure_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no figure is called 'ttft'; known are ttft_p50, ttft_p90, ttft_p95, ttft_p99"):
        require.parse("ttft<1")


def test_a_table_has_a_row_an_exchange_and_no_formula_of_a_spreadsheet(tmp_path: Path) -> None:
    export.write([exchange(), failed(error_words="=HYPERLINK(1)")], tmp_path / "a.csv")
    with open(tmp_path / "a.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(row["ttft"]) if row["ttft"] else None for row in table] == [pytest.approx(0.2), None]
    assert table[1]["error_words"] == "'=HYPERLINK(1)"
    assert tuple(table[0]) == export.COLUMNS


def test_a_parquet_file_has_the_rows_of_the_csv_and_the_arrivals(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    exchanges = [exchange(tokens=5), failed(error_words="=1"), exchange(rate_per_s=2.5, warm_up=True, first_byte_s=None, usage=None)]
    prices = Prices(prompt=1, output=2)
    export.write(exchanges, tmp_path / "a.parquet", prices=prices)
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == [*export.COLUMNS, "arrivals_s"]
    found = table.to_pylist()
    assert [row.pop("arrivals_s") for row in found] == [[arrival.at_s for arrival in one.arrivals] for one in exchanges]
    assert found == export.rows(exchanges, prices)
    kinds = {name: str(table.schema.field(name).type) for name in ("ttft", "round", "warm_up", "error", "arrivals_s")}
    assert kinds == {"ttft": "double", "round": "int64", "warm_up": "bool", "error": "string", "arrivals_s": "list<element: double>"}
    export.write([], tmp_path / "none.parquet")
    assert parquet.read_table(tmp_path / "none.parquet").schema.equals(table.schema)


def test_parquet_without_pyarrow_is_refused_in_words_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'swiftsure\[parquet\]'"):
        export.write([exchange()], tmp_path / "a.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a", "a.xlsx"])
def test_a_table_or_report_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"must be"):
        export.write([], tmp_path / name)
    with pytest.raises(UsageError, match=r"must be"):
        write_report(summarize([]), tmp_path / name)


def everything() -> Summary:
    chosen = Settings(
        slo=Slo.parse("ttft=0.3"), prices=Prices(prompt=5, output=30), hardware_gb_per_s=1, model_bytes=10**9, resamples=100,
        about={"target": {"model": "m<script>", "url": "http://localhost:8000/v1"}},
    )  # fmt: skip
    whole = rounds(prompts=6, repeats=2) + rounds(prompts=6, repeats=2, row="warm", ttft=lambda p, r, k: 0.05)
    whole += rounds(prompts=6, repeats=2, row="context", ttft=lambda p, r, k: 3.0, prompt_tokens=30_100)
    whole += crowd(users=4, row="cold") + crowd(users=8, row="cold")
    whole += [failed(repeat=99, error_words="<b>\x1b[2J no")]
    return summarize(whole, [cell(), cell(users=8, saturated="the processor was full")], chosen)


def test_the_page_stands_alone_and_trusts_no_text(tmp_path: Path) -> None:
    page = render_report(everything())
    assert not re.search(r"""(?:src|href)\s*=|url\(|@import|<script""", page)
    assert "m&lt;script&gt;" in page
    assert "<b>" not in page
    for title in ("Time to first token against context", "Gaps between arrivals", "First token, by row", "First token, round by round"):
        assert title in page
    assert "refused: round 0: the processor was full" in page
    assert "nan" not in page.replace("nanmedian", "").lower().split("<body>")[1]
    write_report(everything(), tmp_path / "r.html")
    write_report(everything(), tmp_path / "r.json")
    assert load_summary(tmp_path / "r.json").verdict == "MEASURED"


@pytest.mark.parametrize("exchanges", [[], [exchange()], [failed(repeat=i) for i in range(5)], [exchange(gap_s=0.0)]])
def test_page_and_table_hold_for_runs_that_came_to_little(exchanges: list) -> None:
    summary = summarize(exchanges, [], FEW)
    assert "What was not measured" in render_report(summary)
    assert summary.verdict in text_table(summary)


def test_no_line_of_the_tables_is_wider_than_80_columns() -> None:
    for table in (text_table(everything()), comparison_table(compare(run(), run(1.2))), formulas_table()):
        assert max(map(len, table.splitlines())) <= 80
        assert "\x1b" not in table
        assert not math.isnan(len(table))


@pytest.mark.parametrize("text", ["1e400 tokens/s", "-5 tokens/s", "about -5 tokens/s", "TTFT -240 ms", "v1.5.300 tokens/s", "TTFT 1e9 ms"])
def test_the_tail_of_a_number_is_no_claim(text: str) -> None:
    with pytest.raises(UsageError, match="a number above 0 with its unit"):
        parse_claim(text)
