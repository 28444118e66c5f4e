"""``swiftsure gate``: may what was verified go on running? For CI from a record, for a running server from its metrics too.

Nothing is measured here. A record that was judged by another contract, a recheck date that has come and a metric that is missing never
pass; a breach says openly what is gone back to, and leaves a line that names who and when.
"""

from __future__ import annotations

import datetime
import getpass
import json
import math
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftsure.errors import UsageError
from swiftsure.records.run_record import utc_now
from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.contracts.sections import MetricLimit
from swiftsure.verify.judging.verdict import Finding, Verdict, VerdictKind, decide
from swiftsure.verify.prometheus import samples
from swiftsure.verify.verification import Verification

_LARGEST_PAGE = 16 << 20
_PATIENCE_S = 10.0
_CAUSES: Mapping[VerdictKind, str] = {"NOT_ACTIVE": "not_active", "FAIL": "breach"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """``fallback``: the cause of ``recovery.when`` that applies; None where nothing asks to go back."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    candidate: str
    to: str
    fallback: str | None

    def fallback_line(self) -> str:
        """One line, key=value, as the activation grammar has it; blanks inside a value become underscores."""
        reason = "; ".join(self.verdict.reasons)
        return f"FALLBACK from={_unbroken(self.candidate)} to={_unbroken(self.to)} reason={_unbroken(reason)}"


def decide_gate(verification: Verification, contract: Contract, today: datetime.date, metrics: str | None = None) -> GateDecision:
    """``metrics``: the text of a running server's metrics page; None where none is looked at."""
    record = verification.record
    findings = [*_record_findings(record, contract, today)]
    if metrics is not None:
        findings += metric_findings(metrics, contract)
    verdict = decide(findings)
    causes = [cause for cause in _causes(findings, contract, today) if cause in contract.recovery.when]
    return GateDecision(
        verdict=verdict,
        findings=tuple(findings),
        candidate=str(record.get("candidate", {}).get("spec", "candidate")),
        to=contract.recovery.to,
        fallback=next(iter(causes), None),
    )


def _record_findings(record: Mapping[str, Any], contract: Contract, today: datetime.date) -> Iterator[Finding]:
    verdict = record["verdict"]
    for words in verdict.get("reasons") or [str(verdict["kind"])]:
        yield Finding(verdict=verdict["kind"], about="record", words=words, items_needed=verdict.get("items_needed"))
    digest = record["contract"].get("digest")
    if digest != contract.digest:
        words = f"the record was judged by another contract: {digest}, this one is {contract.digest}"
        yield Finding(verdict="HOLD", about="contract", words=words)
    if contract.recheck is not None and contract.recheck <= today:
        words = f"the recheck date, {contract.recheck.isoformat()}, has come: verify again and set another"
        yield Finding(verdict="HOLD", about="recheck", words=words)
    if contract.owner is None:
        yield Finding(verdict="HOLD", about="contract", words="nobody owns it: the contract names no owner")


def _causes(findings: Sequence[Finding], contract: Contract, today: datetime.date) -> Iterator[str]:
    for finding in findings:
        if finding.about == "metric" and finding.verdict != "PASS":
            yield "metric"
        if finding.about == "recheck":
            yield "recheck"
        if finding.verdict in _CAUSES:
            yield _CAUSES[finding.verdict]


def metric_findings(text: str, contract: Contract) -> Iterator[Finding]:
    """Each limit of ``[[recovery.metric]]``, and the activation metric where the contract names one."""
    probe = contract.activation
    if probe.metric is not None:
        value = metric_value(text, MetricLimit(metric=probe.metric))
        if value is None or not value >= probe.at_least:
            shown = "is missing" if value is None else f"is {value:g}"
            words = f"not active: metric {probe.metric} {shown}, at least {probe.at_least:g} is needed"
            yield Finding(verdict="NOT_ACTIVE", about="activation", words=words)
    if not contract.recovery.metrics and probe.metric is None:
        yield Finding(verdict="HOLD", about="metric", words="the contract limits no metric: recovery.metric is empty")
    for limit in contract.recovery.metrics:
        yield _metric_finding(text, limit)


def _metric_finding(text: str, limit: MetricLimit) -> Finding:
    value = metric_value(text, limit)
    if value is None:
        return Finding(verdict="HOLD", about="metric", words=f"metric {limit.label} is missing, so its limit cannot be checked")
    if limit.at_most is not None and not value <= limit.at_most:
        return Finding(verdict="FAIL", about="metric", words=f"metric {limit.label} is {value:g}, at most {limit.at_most:g} is allowed")
    if limit.at_least is not None and not value >= limit.at_least:
        return Finding(verdict="FAIL", about="metric", words=f"metric {limit.label} is {value:g}, at least {limit.at_least:g} is needed")
    return Finding(verdict="PASS", about="metric", words=f"metric {limit.label} is {value:g}")


def metric_value(text: str, limit: MetricLimit) -> float | None:
    """The sum of a metric's samples in the Prometheus text format, or the first group of a pattern's first match; None where absent."""
    if limit.metric is not None:
        found = samples(text, limit.metric)
    else:
        match = re.search(limit.pattern or "", text, re.MULTILINE)
        found = [match[1]] if match is not None and match.re.groups and match[1] is not None else []
    try:
        return math.fsum(map(float, found)) if found else None
    except (ValueError, OverflowError):
        return math.nan  # within nothing


def read_metrics(url: str) -> str:
    """The page at ``url``. Raises UsageError for what is no address, and for a server that does not answer with such a page."""
    import httpx

    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--metrics takes an address that begins with http:// or https://, got {url!r}")
    try:
        with httpx.stream("GET", url, timeout=_PATIENCE_S, follow_redirects=False) as response:
            if response.status_code != 200:
                raise UsageError(f"{url} answered {response.status_code}, its metrics cannot be read")
            page = b""
            for piece in response.iter_bytes():
                page += piece
                if len(page) > _LARGEST_PAGE:
                    raise UsageError(f"{url}: a metrics page must be at most {_LARGEST_PAGE:,} bytes")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UsageError(f"{url} cannot be read: {error or type(error).__name__}") from None
    return page.decode(errors="replace")


def append_log(path: Path, decision: GateDecision, *, contract: Contract, record: Path, who: str | None, action: str) -> None:
    """Appends one JSON line: when, who, what was decided and why."""
    line = {
        "time": utc_now(),
        "who": who or _user(),
        "host": platform.node(),
        "verdict": decision.verdict.kind,
        "reasons": list(decision.verdict.reasons),
        "action": action,
        "from": decision.candidate,
        "to": decision.to if action == "fallback" else None,
        "contract": contract.digest,
        "owner": contract.owner,
        "record": str(record),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such entry in the user data base, as in some containers
        return "unknown"


def _unbroken(value: str) -> str:
    return re.sub(r"\s+", "_", value.strip()) or "none"
