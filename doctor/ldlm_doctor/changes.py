"""Which lines a change of a git repository adds or edits, and the findings in them as a comment."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import re2

from ldlm_doctor.errors import DoctorError
from ldlm_doctor.model import Clean, Finding
from ldlm_doctor.words import printable

_HUNK = re2.compile(r"^@@ -\S+ \+([0-9]+)(?:,([0-9]+))? @@")
_DIFF = (
    "-c", "core.quotePath=off", "diff", "--merge-base", "--unified=0", "--no-color",
    "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip
"""Its form, however the user has set git up; what the base has got since is no change."""
_TIMEOUT = 60.0
"""Seconds for git: more than a diff of a large repository takes, and an end for one that waits."""


def changed_lines(base: str) -> Mapping[Path, frozenset[int]]:
    """The 1-based lines that are changed since `base` was left, by the resolved path of each file.

    Files that git does not track yet are left out. Raises `DoctorError` without git or without
    such a commit.
    """
    if base.startswith("-"):
        raise DoctorError(
            f"{base} is no commit", where="--diff", remedy="name a branch or a commit"
        )
    top = _git("rev-parse", "--show-toplevel").strip()
    found: dict[Path, set[int]] = {}
    lines: set[int] = set()
    for line in _git("-C", top, *_DIFF, base).split("\n"):
        if line.startswith("+++ "):
            name = line[4:].rstrip("\t").removeprefix("b/")
            lines = found.setdefault(Path(top, name).resolve(), set())
        elif hunk := _HUNK.match(line):
            start, count = int(hunk.group(1)), int(hunk.group(2) or 1)
            lines.update(range(start, start + count))
    return {path: frozenset(each) for path, each in found.items()}


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ("git", *arguments), capture_output=True, timeout=_TIMEOUT, check=True
        )
    except FileNotFoundError as error:
        raise DoctorError("git is not installed", where="--diff", remedy="install git") from error
    except subprocess.TimeoutExpired as error:
        raise DoctorError("git did not answer", where="--diff", remedy="try again") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().split("\n")[0]
        raise DoctorError(
            printable(said),
            where="--diff",
            remedy="name a commit of this repository whose history is fetched",
        ) from error
    return done.stdout.decode(errors="surrogateescape")


def touched(findings: Sequence[Finding], base: str) -> list[Finding]:
    """The findings in lines that a change since `base` adds or edits."""
    changed = changed_lines(base)
    return [
        each
        for each in findings
        if each.line in changed.get(Path(each.path).resolve(), frozenset())
    ]


def comment(findings: Sequence[Finding], base: str, clean: Clean) -> Iterator[str]:
    """Cleaned findings as Markdown for a review: a paragraph a check, with its places."""
    if not findings:
        yield f"The doctor found nothing in the lines that differ from {_code(clean(base))}."
        return
    yield f"The doctor found {len(findings)} in the lines that differ from {_code(clean(base))}."
    for check, group in groupby(findings, key=lambda finding: finding.check):
        yield ""
        yield f"**{check.severity}: {check.title}** ({check.id})"
        yield ""
        for finding in group:
            detail = f" ({_code(finding.detail)})" if finding.detail else ""
            place = _code(f"{clean(finding.path)}:{finding.line}")
            yield f"- {place}: {_code(finding.evidence)}{detail}"
        yield ""
        yield f"{check.why} Fix: {check.fix}"


def _code(text: str) -> str:
    """Text of files as code in Markdown: it cannot end the code or mention anybody."""
    return f"`{text.replace('`', chr(0x2019))}`"
