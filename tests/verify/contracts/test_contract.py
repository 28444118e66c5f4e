"""Contracts are read strictly: what is not understood is refused with the place, the rule and the value."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.contracts.contract import KINDS, load_contract, parse_contract, read_contract, template


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_is_a_contract_of_its_kind_that_promises_nothing_yet(kind: str) -> None:
    contract = parse_contract(template(kind))
    assert contract.kind == kind
    assert (contract.owner, contract.tasks, contract.has_tolerances) == (None, (), False)
    assert contract.activation.required


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_that_a_template_offers_is_understood(kind: str) -> None:
    """Each commented ``key = value`` or ``[table]``, uncommented, is a line of a valid contract."""
    lines = []
    for line in template(kind).splitlines():
        bare = line.removeprefix("# ")
        offered = line.startswith("# ") and (bare.startswith("[") or (" = " in bare and bare.split(" = ")[0].replace("_", "").isalnum()))
        lines.append(bare if offered else line)
    text = "\n".join(lines).replace('weights_sha256 = ""', f'weights_sha256 = "{"0" * 64}"').replace('commit = ""', 'commit = "a1"')
    contract = parse_contract(text)
    assert contract.pins.baseline.weights_sha256 == "0" * 64
    assert contract.recheck == datetime.date(2027, 6, 1)
    assert contract.recovery.metrics[0].label == "errors_total"
    assert contract.time.limits_s == {"whole": 10.0, "forward": 5.0}
    if kind == "upstream":
        assert set(contract.texts) == {"prose", "code"}
        assert contract.limits.kl_mean == 1e-6
    if kind == "fast":
        assert contract.tasks[0].margin == 0.02
        assert contract.limits_of("other").absolute == 1e-3
        assert contract.limits.kl_max == 1.0
    if kind == "big":
        assert contract.big.bar(9_000) == contract.big.bars[0]
        assert contract.big.bar(10_001) is None


def test_a_template_of_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="a contract is one of exact, fast, big, upstream, got 'huge'"):
        template("huge")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind = 'fast'\n[x", "is not TOML"),
        ("", "kind must be one of exact, fast, big, upstream, got None"),
        ("kind = 'exact'\n[environment]\n'A=B' = '1'", "environment must be variables whose names hold no = and which hold no zero byte"),
        (
            'kind = "exact"\n[exact.recipe]\nA = "x\\u0000"',
            "exact.recipe must be variables whose names hold no = and which hold no zero byte",
        ),
        ("kind = 'fast'\nspeed = 3", "the contract has unknown speed; known are activation, big,"),
        ("kind = 'fast'\n[fast.outputs.x]\nabs = 1", "fast.outputs.x has unknown abs; known are absolute, absolute_mean,"),
        ("kind = 'fast'\n[fast.outputs.x]\nabsolute = -1", "fast.outputs.x.absolute must be a number of at least 0, got -1"),
        ("kind = 'fast'\n[fast.outputs.x]\nabsolute = nan", "fast.outputs.x.absolute must be a number of at least 0, got nan"),
        ("kind = 'fast'\n[fast.outputs.x]\nranking = 2", "fast.outputs.x.ranking must be a number of at least 0 and at most 1, got 2"),
        ("kind = 'fast'\n[big]\ntime_limit_s = 1", "keeps the promises apart: its kind is fast, but it has a table big"),
        ("kind = 'fast'\nsizes = [512, 128]", "sizes must be ascending numbers above 0, got [512, 128]"),
        ("kind = 'fast'\nrecheck = '2027-01-01'", "recheck must be a date such as 2027-01-31, without quotes, got '2027-01-01'"),
        ("kind = 'fast'\n[[task]]\nmargin = 0.1", "task[0].name is missing"),
        ("kind = 'fast'\n[[task]]\nname = 'a'\nmargin = 0", "task[0].margin must be a number above 0, got 0"),
        ("kind = 'fast'\n[[task]]\nname = 'a'\n[[task]]\nname = 'a'", "names of their own, got a, a"),
        ("kind = 'fast'\n[[task]]\nname = 'a'\noutput = 'o'\nsuite = 's'", "from an output or from a suite, not from both"),
        (
            "kind = 'fast'\n[[task]]\nname = 'a'\nsuite = 'words'\nitems = 9",
            "task[0].items must be at least least_items, 100, got 9",
        ),
        ("kind = 'fast'\n[pins.baseline]\nweights_sha256 = 'abc'", "pins.baseline.weights_sha256 must be 64 hexadecimal digits, got 'abc'"),
        ("kind = 'fast'\n[activation]\nlog = '('", "activation.log must be a regular expression"),
        ("kind = 'fast'\n[activation]\nurl = 'http://a'", "activation.url and activation.metric belong together"),
        ("kind = 'fast'\n[recovery]\nwhen = ['never']", "recovery.when must be of not_active, breach, metric, recheck, got 'never'"),
        ("kind = 'fast'\n[[recovery.metric]]\nname = 'a'", "a metric needs at_most, at_least or both"),
        ("kind = 'big'\n[[big.size]]\nsize = 2\n[[big.size]]\nsize = 1", "big.size must ascend, got 2, 1"),
        ("kind = 'fast'\n[texts]\na = 'nowhere.txt'", "texts.a: 'nowhere.txt' cannot be read"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_contract(text)
    assert message in str(caught.value)


def test_a_contract_that_is_not_there_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="swiftsure verify init"):
        read_contract(tmp_path / "none.toml")


def test_the_digest_is_of_the_text_so_that_any_change_shows() -> None:
    one, other = parse_contract("kind = 'exact'\n"), parse_contract("kind = 'exact'\n# later\n")
    assert one.digest.startswith("sha256:")
    assert one.digest != other.digest


def test_ranges_of_sizes_are_said_in_the_unit_of_the_contract() -> None:
    contract = parse_contract("kind = 'fast'\nunit = 'residues'\nsizes = [100, 1000]\n")
    assert [contract.range_of(size) for size in (1, 100, 101, 1001)] == [
        "up to 100 residues", "up to 100 residues", "over 100 to 1,000 residues", "over 1,000 residues",
    ]  # fmt: skip
    assert contract.range_of(None) == "all sizes"


def test_the_contract_of_mode_fast_is_one_of_these() -> None:
    contract = load_contract("fast")
    assert contract.kind == "fast"
    assert contract.limits.top1_agreement == 0.9
