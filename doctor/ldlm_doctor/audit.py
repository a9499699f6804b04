"""The whole audit: every room's findings, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ldlm_doctor import configuration, python_code, secrets, shell
from ldlm_doctor.model import Finding, Findings, Project
from ldlm_monitor.model.names import SEVERITIES

AUDITS: tuple[Callable[[Project], Findings], ...] = (
    shell.audit, configuration.audit, python_code.audit, secrets.audit,
)  # fmt: skip


def audit(project: Project) -> list[Finding]:
    """What is wrong, the worst first, then by file and line; nothing twice."""
    return in_order(finding for look in AUDITS for finding in look(project))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, then by check, file and line; nothing twice."""
    once = {(f.check_id, f.path, f.line, f.detail): f for f in findings}
    severity = SEVERITIES.index
    return sorted(
        once.values(), key=lambda f: (-severity(f.check.severity), f.check_id, f.path, f.line)
    )
