"""Audits `.env` files and Dockerfiles: lines that give variables to a process."""

from __future__ import annotations

from collections.abc import Iterator

import re2

from ldlm_doctor import environment_rules
from ldlm_doctor.model import Finding, Kind, Project, SourceFile
from ldlm_doctor.setting import Environment, Setting
from ldlm_doctor.surroundings import surroundings

_LINE = re2.compile(
    r"""(?m)^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"""
    r"""("[^"\n]*"|'[^'\n]*'|[^\n#]*)(?:[ \t]*#[^\n]*)?\r?$"""
)
_ENV = re2.compile(r"(?im)^[ \t]*ENV[ \t]+((?:[^\\\n]|\\\r?\n|\\.)*)")
_PAIR = re2.compile(r"""([A-Za-z_][A-Za-z0-9_]*)=("[^"\n]*"|'[^'\n]*'|[^\s"'\\]*)""")
_OLD_PAIR = re2.compile(r"^([A-Za-z_][A-Za-z0-9_]*)[ \t]+([^\n]*)$")


def audit(project: Project) -> Iterator[Finding]:
    """All findings in `.env` files and Dockerfiles."""
    around = surroundings(project)
    for file in project.of(Kind.ENVIRONMENT):
        yield from environment_rules.judge(Environment(_last(dotenv(file))), around)
    for file in project.of(Kind.CONTAINER):
        yield from environment_rules.judge(Environment(_last(dockerfile(file))), around)


def dotenv(file: SourceFile) -> Iterator[Setting]:
    """`NAME=value` and `export NAME='value'`, a line each."""
    text = file.content.decode("latin-1")
    for found in _LINE.finditer(text):
        end = text.find("\n", found.start(1))
        line = (text.rfind("\n", 0, found.start(1)) + 1, end + 1 if end >= 0 else len(text))
        yield _setting(file, found.span(1), found.span(2), (*line, b""))


def dockerfile(file: SourceFile) -> Iterator[Setting]:
    """`ENV NAME=value NAME=value`, over several lines too, and `ENV NAME value`."""
    text = file.content.decode("latin-1")
    for instruction in _ENV.finditer(text):
        start, body = instruction.start(1), str(instruction.group(1))
        old = _OLD_PAIR.match(body)
        if old and "=" not in body.split(maxsplit=1)[0]:
            name, value = old.span(1), old.span(2)
            yield _setting(file, _moved(name, start), _moved(value, start))
            continue
        for pair in _PAIR.finditer(body):
            yield _setting(file, _moved(pair.span(1), start), _moved(pair.span(2), start))


def _moved(span: tuple[int, int], by: int) -> tuple[int, int]:
    return span[0] + by, span[1] + by


def _setting(
    file: SourceFile,
    name_at: tuple[int, int],
    value_at: tuple[int, int],
    removal: tuple[int, int, bytes] | None = None,
) -> Setting:
    content = file.content
    start, end = value_at
    if content[start : start + 1] in (b'"', b"'") and end - start > 1:
        start, end = start + 1, end - 1
    while end > start and content[end - 1 : end] in (b" ", b"\t", b"\r"):
        end -= 1
    value = content[start:end].decode(errors="replace")
    line_start = content.rfind(b"\n", 0, name_at[0]) + 1
    line_end = content.find(b"\n", name_at[0])
    line = content[line_start : line_end if line_end >= 0 else None]
    return Setting(
        content[slice(*name_at)].decode(), None if "$" in value else value, file.path,
        content.count(b"\n", 0, name_at[0]) + 1, line.decode(errors="replace").strip(),
        (start, end), name_at, removal,
    )  # fmt: skip


def _last(settings: Iterator[Setting]) -> tuple[Setting, ...]:
    """The last of each name: it is the one in effect."""
    return tuple({setting.name: setting for setting in settings}.values())
