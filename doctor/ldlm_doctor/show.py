"""Findings, cleaned before (`model.cleaned`), as text, as JSON, as SARIF; a fix as a diff."""

from __future__ import annotations

import difflib
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from ldlm_doctor import live
from ldlm_doctor.live import Process
from ldlm_doctor.model import SEVERITIES, Check, Clean, Finding
from ldlm_doctor.repair import Repair
from ldlm_doctor.words import counted

SCHEMA = "ldlm.doctor/1"
SARIF_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

_WIDTH = 96
_PLACES = 12
_PLACES_OF_INFO = 3
"""A choice: what is no fault takes a paragraph, however often it stands there."""
_EVIDENCE = 160
_LEVELS = {"critical": "error", "error": "error", "warning": "warning", "info": "note"}
_COLOURS = {"critical": "1;31", "error": "31", "warning": "33", "info": "36"}


def text(
    findings: Sequence[Finding],
    files: int,
    process: Process | None,
    *,
    colour: bool,
    clean: Clean,
) -> Iterator[str]:
    """The process, then the findings for people: a paragraph for each check, the worst first."""
    if process is not None:
        yield from live.described(process, clean)
    for check, group in groupby(findings, key=lambda finding: finding.check):
        yield from _paragraph(check, list(group), colour=colour, clean=clean)
    yield f"{summary(findings)} in {counted(files, 'file')}"
    fixable = sum(bool(finding.edits) for finding in findings)
    if fixable:
        yield f"--fix can fix {fixable} of them; it shows the change first"


def summary(findings: Sequence[Finding]) -> str:
    """`2 critical, 1 warning`, or `nothing found`."""
    counts: Counter[str] = Counter(finding.check.severity for finding in findings)
    named = [
        f"{counts[severity]} {severity}" for severity in reversed(SEVERITIES) if counts[severity]
    ]
    return ", ".join(named) or "nothing found"


def lines(findings: Sequence[Finding], files: int, clean: Clean) -> Iterator[str]:
    """The findings as compilers write theirs: one a line, for editors and CI."""
    for finding in findings:
        detail = f": {finding.detail}" if finding.detail else ""
        place = f"{clean(finding.path)}:{finding.line}"
        title = f"{finding.check.severity}: {finding.check.title}{detail}"
        yield f"{place}: {title} [{finding.check_id}]"
    yield f"{summary(findings)} in {files} files"


def _paragraph(check: Check, group: list[Finding], *, colour: bool, clean: Clean) -> Iterator[str]:
    severity = check.severity.upper()
    shown = f"\x1b[{_COLOURS[check.severity]}m{severity}\x1b[0m" if colour else severity
    yield f"{shown}  {check.title}  [{check.id}]"
    places = _PLACES if check.severity != "info" else _PLACES_OF_INFO
    for finding in group[:places]:
        place = f"{clean(finding.path)}:{finding.line}"
        evidence = _short(finding.evidence)
        yield f"  {place}: {evidence}" if evidence else f"  {place}"
        if finding.detail:
            yield from _wrapped(finding.detail, "      ")
    if len(group) > places:
        yield f"  and {len(group) - places} more places (--json has all)"
    yield from _wrapped(check.why, "    ")
    if check.since:
        yield from _wrapped(f"Since: {check.since}", "    ")
    yield from _wrapped(f"Source: {check.source}", "    ")
    fixes = all(finding.edits for finding in group)
    yield from _wrapped(f"Fix: {check.fix}{' (--fix does it)' if fixes else ''}", "    ")
    yield ""


def _wrapped(detail: str, indent: str) -> list[str]:
    return textwrap.wrap(
        detail, _WIDTH, initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _short(detail: str) -> str:
    line = " ".join(detail.split())
    return line if len(line) <= _EVIDENCE else f"{line[: _EVIDENCE - 3]}..."


def as_json(
    findings: Sequence[Finding],
    files: int,
    notices: Sequence[str],
    process: Process | None,
    *,
    clean: Clean,
) -> dict[str, object]:
    """The findings for programs."""
    return {
        "schema": SCHEMA,
        "files": files,
        "notices": list(notices),
        "summary": {
            severity: sum(finding.check.severity == severity for finding in findings)
            for severity in reversed(SEVERITIES)
        },
        "findings": [
            {
                **asdict(finding.check),
                "path": finding.path,
                "line": finding.line,
                "evidence": finding.evidence,
                "detail": finding.detail,
                "fixable": bool(finding.edits),
            }
            for finding in findings
        ],
        **({"process": live.as_json(process, clean)} if process is not None else {}),
    }


def sarif(findings: Sequence[Finding], version: str) -> dict[str, object]:
    """The findings in OASIS SARIF 2.1.0, which code hosts show beside the lines."""
    checks = list(dict.fromkeys(finding.check for finding in findings))
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "ldlm-monitor doctor",
                        "version": version,
                        "rules": [_rule(check) for check in checks],
                    }
                },
                "columnKind": "utf16CodeUnits",
                "results": [_result(finding, checks.index(finding.check)) for finding in findings],
            }
        ],
    }


def _rule(check: Check) -> dict[str, object]:
    since = f" ({check.since})" if check.since else ""
    return {
        "id": check.id,
        "shortDescription": {"text": check.title},
        "fullDescription": {"text": f"{check.why}{since}"},
        "help": {"text": f"{check.fix}\n\nSource: {check.source}"},
        "defaultConfiguration": {"level": _LEVELS[check.severity]},
        "properties": {"severity": check.severity},
    }


def _result(finding: Finding, rule: int) -> dict[str, object]:
    detail = f": {finding.detail}" if finding.detail else ""
    path = Path(finding.path)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    return {
        "ruleId": finding.check.id,
        "ruleIndex": rule,
        "level": _LEVELS[finding.check.severity],
        "message": {"text": f"{finding.check.title}{detail}. {finding.check.fix}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri},
                    "region": {
                        "startLine": finding.line,
                        "snippet": {"text": finding.evidence},
                    },
                }
            }
        ],
    }


def diff(repairs: Sequence[Repair], clean: Clean) -> Iterator[str]:
    """The unified diff of a fix."""
    for repair in repairs:
        path = clean(repair.file.path)
        before, after = (
            content.decode(errors="replace").splitlines()
            for content in (repair.file.content, repair.after)
        )
        for line in difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm=""):
            yield clean(line)
