"""Secrets in files: few exact forms, because a false alarm hides the next one."""

from __future__ import annotations

import re2

from ldlm_doctor.model import Finding, Findings, Kind, Project, SourceFile, data, pattern

REDACTED = "REDACTED"

_NAMED = re2.compile(pattern("secret_named"))
_ASSIGNED = re2.compile(pattern("secret_assigned"))
_IN_URL = re2.compile(r"([a-z][a-z0-9+.-]*://[^\s/:@\"'$]{1,64}:)([^\s/@\"'$<>{}]{6,})@")
_ASSIGNMENTS = (_NAMED, _ASSIGNED, _IN_URL)
_PLACEHOLDER = re2.compile(pattern("placeholder"))
_NAME = re2.compile(pattern("secret_name"))
"""The word for a secret, or the name of a stored one: `--env-secret R2_KEY=me_R2_KEY`."""
_PASSWORD, _ADDRESS = "a password or key", "a password in an address"
_BY_NAME = frozenset({_PASSWORD, _ADDRESS})
"""What only the words before it call a secret: less certain than a form of its own."""
_FORMS = tuple((what, re2.compile(pattern)) for what, pattern in data("secrets").items())
_ANY = re2.compile(
    "|".join(f"(?:{p})" for p in (*data("secrets").values(), *(r.pattern for r in _ASSIGNMENTS)))
)
"""One search per line: most lines hold no secret."""
_MAX_LINE = 4096


def audit(project: Project) -> Findings:
    """Each line with a secret, once; the secret itself is left out of the evidence."""
    for file in project.files:
        if file.kind is not Kind.REQUIREMENTS and not file.is_test:
            yield from _in_file(file)


def _in_file(file: SourceFile) -> Findings:
    for number, line in enumerate(file.content.decode(errors="replace").split("\n"), 1):
        if not _ANY.search(line):
            continue
        what, shown = find(line[:_MAX_LINE], code=file.kind is Kind.PYTHON)
        if what:
            check = "secret-by-name" if _BY_NAME.issuperset(what.split(", ")) else "secret-in-file"
            yield Finding(check, file.path, number, shown.strip(), what)


def find(line: str, *, code: bool = False) -> tuple[str, str]:
    """What kind of secret stands in a line (empty: none), and the line without it.

    In `code`, a name that is assigned is no evidence: only forms that nothing else has count.
    """
    kinds, shown = [], line
    for what, form in _FORMS:
        if any(not _PLACEHOLDER.search(str(found.group(0))) for found in form.finditer(shown)):
            kinds.append(what)
            shown = form.sub(REDACTED, shown)
    rules = () if code else ((_NAMED, "a key"), (_ASSIGNED, _PASSWORD))
    for form, what in (*rules, (_IN_URL, _ADDRESS)):
        for found in form.finditer(shown):
            value = str(found.group(2))
            if REDACTED not in value and _is_secret(value, named=form is not _ASSIGNED):
                kinds.append(what)
                shown = shown.replace(value, REDACTED)
    return ", ".join(dict.fromkeys(kinds)), shown


def _is_secret(value: str, *, named: bool) -> bool:
    """No placeholder, no path, no word: it has letters and digits, and few repeat."""
    if _PLACEHOLDER.search(value) or value.startswith(("/", "./", "~", "%", "file:")):
        return False
    if _NAME.search(value):
        return False
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return (named and len(value) < 32) or (mixed and len(set(value)) >= 6)
