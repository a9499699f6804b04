"""The whole audit: every room's findings, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ldlm_doctor import configuration, python_code, secrets, shell
from ldlm_doctor.model import Finding, Project
from ldlm_monitor.model.names import SEVERITIES

AUDITS: tuple[Callable[[Project], Iterator[Finding]], ...] = (
    shell.audit, configuration.audit, python_code.audit, secrets.audit,
)  # fmt: skip


def audit(project: Project) -> list[Finding]:
    """What is wrong, the worst first, then by file and line; nothing twice."""
    return in_order(finding for look in AUDITS for finding in look(project))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, then by check, file and line; nothing twice."""
    once = {(f.check.id, f.path, f.line, f.detail): f for f in findings}
    return sorted(once.values(), key=_order)


def _order(finding: Finding) -> tuple[int, str, str, int]:
    worst = -SEVERITIES.index(finding.check.severity)
    return worst, finding.check.id, finding.path, finding.line
