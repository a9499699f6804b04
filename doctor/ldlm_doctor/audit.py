"""The whole audit: the findings of every part, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ldlm_doctor import configuration, live, python_code, secrets, shell
from ldlm_doctor.live import Process
from ldlm_doctor.model import SEVERITIES, Finding, Findings, Project
from ldlm_doctor.surroundings import surroundings

AUDITS: tuple[Callable[[Project], Findings], ...] = (
    shell.audit, configuration.audit, python_code.audit, secrets.audit,
)  # fmt: skip


def audit(project: Project) -> list[Finding]:
    """What is wrong, the worst first, then by file and line; nothing twice."""
    return in_order(finding for look in AUDITS for finding in look(project))


def everything(project: Project, process: Process | None, *, advice: bool) -> list[Finding]:
    """As `audit`, with what is found in a running process, and what launch scripts leave unset."""
    found = [*audit(project)]
    if process is not None:
        found += live.audit(process, surroundings(project))
    return in_order([*found, *(shell.advise(project) if advice else ())])


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, then by check, file and line; nothing twice."""
    once = {(f.check_id, f.path, f.line, f.detail): f for f in findings}
    severity = SEVERITIES.index
    return sorted(
        once.values(), key=lambda f: (-severity(f.check.severity), f.check_id, f.path, f.line)
    )


def reaches(findings: Iterable[Finding], severity: str) -> bool:
    """Whether one is of that severity, or worse; none is of `never`."""
    worse = SEVERITIES[SEVERITIES.index(severity) :] if severity in SEVERITIES else ()
    return any(finding.check.severity in worse for finding in findings)
