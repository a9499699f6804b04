"""`ldlm-monitor doctor PATH...`: known dangerous settings of a training repository."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ldlm_monitor import __version__
from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.text.format import counted, printable
from ldlm_monitor.service.cli.flags import DASH, UNHEALTHY, DoctorFlags, settings, write_file

if TYPE_CHECKING:
    from ldlm_doctor.collect import Collected


def doctor(
    *paths: str,
    json_: Annotated[bool, Parameter(name="--json")] = False,
    sarif: Path | None = None,
    check: bool = False,
    diff: str | None = None,
    fix: bool = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"])] = False,
    rollback: bool = False,
    live: int | None = None,
    advice: bool = False,
    flags: DoctorFlags | None = None,
) -> int:
    """Audits launch scripts, configurations and trainer code for known dangerous settings.

    Exits with 3 where something is found at or above --fail-on.

    Args:
        paths: Files, or folders that are searched for what concerns a training.
        json_: Print the findings as JSON.
        sarif: Also write the findings to this file as SARIF 2.1.0; - is standard output.
        check: For CI: a line for each finding, nothing is changed.
        diff: Only what lines hold that differ from this commit, as a comment for a review.
        fix: Make the edits that are safe: shows them, asks, and keeps the original files.
        yes: Do not ask.
        rollback: Undo the last fix, byte for byte.
        live: Audit the environment and the options of this running process.
        advice: Also list settings that would help after a failure and that launch scripts leave
            unset.
    """
    fail_on = settings(flags).fail_on
    _refuse_contradictions(
        paths, live=live, diff=diff, check=check, fix=fix, rollback=rollback, yes=yes
    )
    _require_packages()
    if rollback:
        return _roll_back(paths)
    from ldlm_doctor import show
    from ldlm_doctor.audit import everything, reaches
    from ldlm_doctor.changes import comment, touched
    from ldlm_doctor.collect import collect
    from ldlm_doctor.live import look_at
    from ldlm_doctor.model import cleaned

    collected = collect(paths)
    for notice in collected.notices:
        print(printable(notice), file=sys.stderr)
    if fix:
        collected = _fix(collected, paths, yes=yes, aside=json_)
    process = look_at(live) if live is not None else None
    findings = everything(collected.project, process, advice=advice)
    if diff is not None:
        findings = touched(findings, diff)
    findings = cleaned(findings, _clean)
    files = len(collected.project.files)
    to_stdout = str(sarif) == DASH
    if sarif is not None:
        written = json.dumps(show.sarif(findings, __version__), indent=2)
        if to_stdout:
            print(written)
        else:
            write_file(sarif, f"{written}\n", "--sarif")
    if json_:
        report = show.as_json(findings, files, collected.notices, process, clean=_clean)
        print(json.dumps(report, indent=2))
    elif diff is not None and not check:
        print("\n".join(comment(findings, diff, _clean)))
    elif not to_stdout:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        text = show.text(findings, files, process, colour=colour, clean=_clean)
        print("\n".join(show.lines(findings, files, _clean) if check else text))
    return UNHEALTHY if reaches(findings, fail_on) else 0


def _clean(text: str) -> str:
    from ldlm_monitor.base.text.sanitize import redact

    return printable(redact(text))


def _refuse_contradictions(
    paths: Sequence[str],
    *,
    live: int | None,
    diff: str | None,
    check: bool,
    fix: bool,
    rollback: bool,
    yes: bool,
) -> None:
    several = "--check, --fix and --rollback exclude each other"
    for wrong, what, remedy in (
        (not paths and live is None, "no path is named", "name a folder or a file"),
        (fix + check + rollback > 1, several, "choose one"),
        (diff is not None and (fix or rollback), "--diff only looks", "leave out --fix"),
        (yes and not fix, "--yes is for --fix", "add --fix, or leave it out"),
        ((fix or rollback) and not paths, "a process has no files to change", "name a folder"),
    ):
        if wrong:
            raise UsageError(what, where="doctor", remedy=remedy)


def _require_packages() -> None:
    for package in ("ldlm_doctor", "tree_sitter", "tree_sitter_bash"):
        if find_spec(package) is None:
            raise UsageError(
                f"the package {package} is not installed",
                where="doctor",
                remedy="run: pip install 'ldlm-monitor[doctor]'",
            )


def _fix(collected: Collected, paths: Sequence[str], *, yes: bool, aside: bool) -> Collected:
    """Shows the edits, asks (not if `yes`), makes them, reads again. `aside`: prints to stderr."""
    from ldlm_doctor.audit import audit
    from ldlm_doctor.collect import collect
    from ldlm_doctor.journal import Change, apply_below
    from ldlm_doctor.repair import plan
    from ldlm_doctor.show import diff

    planned = plan(collected.project, audit)
    stream = sys.stderr if aside else sys.stdout
    for finding in planned.left:
        what = f"{finding.path}:{finding.line}: {finding.check.id}"
        print(printable(f"{what} is not fixed: the file would not be valid"), file=sys.stderr)
    if not planned.repairs:
        print("nothing to fix", file=stream)
        return collected
    for line in diff(planned.repairs, _clean):
        print(line, file=stream)
    files = counted(len(planned.repairs), "file")
    if not yes and not _agreed(files):
        print("nothing was changed", file=stream)
        return collected
    changes = [
        Change(Path(os.path.realpath(repair.file.path)), repair.file.content, repair.after)
        for repair in planned.repairs
    ]
    apply_below(paths, changes)
    print(
        f"fixed: {counted(len(planned.fixed), 'finding')} in {files}; "
        f"to undo it: ldlm-monitor doctor --rollback {printable(' '.join(paths))}\n",
        file=stream,
    )
    return collect(paths)


def _agreed(files: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(
            "there is nobody to ask", where="doctor --fix", remedy="add --yes to make these changes"
        )
    sys.stdout.flush()
    print(f"Change {files}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _roll_back(paths: Sequence[str]) -> int:
    from ldlm_doctor.journal import rollback_named

    for named, restored in rollback_named(paths):
        for path in restored:
            print(f"put back: {printable(os.path.relpath(path))}")
        if not restored:
            print(f"{printable(str(named))}: every file is as it was")
    return 0
