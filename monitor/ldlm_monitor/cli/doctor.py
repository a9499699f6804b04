"""`ldlm-monitor doctor PATH...`: known dangerous settings of a training repository."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ldlm_monitor import __version__
from ldlm_monitor.cli.flags import DoctorFlags, settings
from ldlm_monitor.cli.logs import printable
from ldlm_monitor.cli.outcome import UNHEALTHY
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.model.names import SEVERITIES

if TYPE_CHECKING:
    from ldlm_doctor.collect import Collected
    from ldlm_doctor.live import Process
    from ldlm_doctor.model import Finding
    from ldlm_doctor.repair import Plan
    from ldlm_monitor.config import FailOn


def doctor(
    *paths: str,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    sarif: Path | None = None,
    check: Annotated[bool, Parameter(negative="")] = False,
    fix: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
    rollback: Annotated[bool, Parameter(negative="")] = False,
    live: int | None = None,
    advice: Annotated[bool, Parameter(negative="")] = False,
    flags: DoctorFlags | None = None,
) -> int:
    """Audits launch scripts, configurations and trainer code for known dangerous settings.

    Exits with 3 where something is found at or above --fail-on.

    Parameters
    ----------
    paths
        Files, or folders that are searched for what concerns a training.
    json_
        Print the findings as JSON.
    sarif
        Also write the findings to this file as SARIF 2.1.0; - is standard output.
    check
        For CI: a line for each finding, nothing is changed.
    fix
        Make the edits that are safe: shows them, asks, and keeps the original files.
    yes
        Do not ask.
    rollback
        Undo the last fix, byte for byte.
    live
        Audit the environment and the options of this running process.
    advice
        Also list settings that would help after a failure and that launch scripts leave unset.
    """
    fail_on = settings(flags).fail_on
    _refuse_contradictions(paths, live=live, check=check, fix=fix, rollback=rollback, yes=yes)
    _require_packages()
    if rollback:
        return _roll_back(paths)
    from ldlm_doctor.collect import collect

    collected = collect(paths)
    for notice in collected.notices:
        print(printable(notice), file=sys.stderr)
    if fix:
        collected = _fix(collected, paths, yes=yes, aside=json_)
    process = _process(live)
    findings = _findings(collected, process, advice=advice)
    if sarif is not None:
        _write_sarif(findings, sarif)
    if json_:
        _print_json(findings, collected, process)
    elif sarif is None or str(sarif) != _DASH:
        _print_text(findings, collected, process, brief=check)
    return UNHEALTHY if _reaches(findings, fail_on) else 0


_DASH = "\0-"
"""How the command line passes `-`."""
_PACKAGES = frozenset({"ldlm_doctor", "tree_sitter", "tree_sitter_bash"})
"""What the extra `doctor` installs."""


def _refuse_contradictions(
    paths: Sequence[str], *, live: int | None, check: bool, fix: bool, rollback: bool, yes: bool
) -> None:
    if not paths and live is None:
        raise UsageError("nothing to look at", where="doctor", remedy="name a folder or a file")
    if fix + check + rollback > 1:
        raise UsageError(
            "--check, --fix and --rollback exclude each other", where="doctor", remedy="choose one"
        )
    if yes and not fix:
        raise UsageError("--yes is for --fix", where="doctor", remedy="add --fix, or leave it out")
    if (fix or rollback) and not paths:
        raise UsageError(
            "a process has no files to change", where="doctor --live", remedy="name a folder"
        )


def _require_packages() -> None:
    """Raises `UsageError` where a package of the extra `doctor` is not installed."""
    try:
        import ldlm_doctor.bash_syntax  # noqa: F401 (it loads tree-sitter and its grammar)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise UsageError(
            f"the package {package} is not installed",
            where="doctor",
            remedy="run: pip install 'ldlm-monitor[doctor]'",
        ) from error


def _clean(text: str) -> str:
    from ldlm_monitor.text.sanitize import redact

    return printable(redact(text))


def _process(pid: int | None) -> Process | None:
    if pid is None:
        return None
    from ldlm_doctor.live import look_at

    return look_at(pid)


def _findings(collected: Collected, process: Process | None, *, advice: bool) -> list[Finding]:
    from ldlm_doctor import live, shell
    from ldlm_doctor.audit import audit, in_order
    from ldlm_doctor.surroundings import surroundings

    def all_() -> Iterator[Finding]:
        yield from audit(collected.project)
        if process is not None:
            yield from live.audit(process, surroundings(collected.project))
        if advice:
            yield from shell.advise(collected.project)

    return in_order(all_())


def _reaches(findings: Sequence[Finding], fail_on: FailOn) -> bool:
    if fail_on == "never":
        return False
    least = SEVERITIES.index(fail_on)
    return any(SEVERITIES.index(finding.check.severity) >= least for finding in findings)


def _print_text(
    findings: Sequence[Finding], collected: Collected, process: Process | None, *, brief: bool
) -> None:
    from ldlm_doctor import live, show

    if process is not None and not brief:
        for line in live.described(process, _clean):
            print(line)
    files = len(collected.project.files)
    if brief:
        for line in show.lines(findings, _clean):
            print(line)
        print(f"{show.summary(findings)} in {files} files")
        return
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for line in show.text(findings, files, _clean, colour=colour):
        print(line)


def _print_json(findings: Sequence[Finding], collected: Collected, process: Process | None) -> None:
    from ldlm_doctor import live, show

    files = len(collected.project.files)
    found = show.as_json(findings, files, collected.notices, _clean)
    if process is not None:
        found["process"] = live.as_json(process, _clean)
    print(json.dumps(found, indent=2))


def _write_sarif(findings: Sequence[Finding], place: Path) -> None:
    from ldlm_doctor import show

    text = json.dumps(show.sarif(findings, __version__, _clean), indent=2) + "\n"
    if str(place) == _DASH:
        sys.stdout.write(text)
        return
    try:
        place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot be written ({error.strerror})",
            where=f"--sarif {place}",
            remedy="name a file in a folder that you may write to",
        ) from error


def _fix(collected: Collected, paths: Sequence[str], *, yes: bool, aside: bool) -> Collected:
    """Shows the changes, asks, and makes them; returns the files as they then are."""
    from ldlm_doctor.audit import audit
    from ldlm_doctor.collect import collect
    from ldlm_doctor.repair import plan
    from ldlm_doctor.show import diff

    planned = plan(collected.project, audit)
    stream = sys.stderr if aside else sys.stdout
    for finding in planned.left:
        place = f"{finding.path}:{finding.line}"
        reason = f"{place}: {finding.check.id} is not fixed: the file would not be valid"
        print(printable(reason), file=sys.stderr)
    if not planned.repairs:
        print("nothing to fix", file=stream)
        return collected
    for line in diff(planned.repairs, _clean):
        print(line, file=stream)
    if not yes and not _agreed(len(planned.repairs)):
        print("nothing was changed", file=stream)
        return collected
    _write(planned, paths)
    names = " ".join(paths)
    print(
        f"fixed: {len(planned.fixed)} findings in {_files(len(planned.repairs))}; "
        f"to undo it: ldlm-monitor doctor --rollback {printable(names)}",
        file=stream,
    )
    print(file=stream)
    return collect(paths)


def _agreed(files: int) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(
            "there is nobody to ask", where="doctor --fix", remedy="add --yes to make these changes"
        )
    sys.stdout.flush()
    sys.stderr.write(f"Change {_files(files)}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _write(planned: Plan, paths: Sequence[str]) -> None:
    from ldlm_doctor.journal import Change, apply

    by_root: dict[Path, list[Change]] = {}
    for repair in planned.repairs:
        path = Path(os.path.realpath(repair.file.path))
        change = Change(path, repair.file.content, repair.after)
        by_root.setdefault(_root_of(path, paths), []).append(change)
    for root, changes in by_root.items():
        apply(root, changes)


def _root_of(path: Path, paths: Sequence[str]) -> Path:
    """The named folder that holds a file, or the folder of a file that was named itself."""
    for root in _roots(paths):
        if path.is_relative_to(root):
            return root
    return path.parent


def _roots(paths: Sequence[str]) -> list[Path]:
    real = [Path(os.path.realpath(path)) for path in paths]
    return list(dict.fromkeys(path if path.is_dir() else path.parent for path in real))


def _roll_back(paths: Sequence[str]) -> int:
    from ldlm_doctor.journal import rollback

    real = list(dict.fromkeys(Path(os.path.realpath(path)) for path in paths))
    for named in real:
        root, of = (named, None) if named.is_dir() else (named.parent, named)
        restored = rollback(root, of)
        for path in restored:
            print(f"put back: {printable(os.path.relpath(path))}")
        if not restored:
            print(f"{printable(str(named))}: every file is as it was")
    return 0


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"
