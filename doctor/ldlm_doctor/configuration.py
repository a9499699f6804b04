"""Audits configurations: YAML and JSON of trainers, containers and jobs, `.env`, Dockerfiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePath

import re2
import yaml

from ldlm_doctor import environment_rules, option_rules, shell
from ldlm_doctor.model import Findings, Kind, Project, SourceFile, pattern
from ldlm_doctor.options import Group
from ldlm_doctor.setting import Environment, Setting, Surroundings
from ldlm_doctor.surroundings import surroundings
from ldlm_doctor.yaml_nodes import Document, nodes, read, scalars

_PAIR = re2.compile(r"^([A-Z][A-Z0-9_]{3,})=(.*)$")
_ENVIRONMENT = re2.compile(r"(?i)env|variables")
_SCRIPT_KEYS = {"run", "setup", "script", "command", "args", "entrypoint", "before_script"}
_HOSTS = frozenset({".github", ".circleci", ".gitlab", ".buildkite", ".azure", "workflows"})
_PIPELINES = (".gitlab-ci", ".travis", "azure-pipelines", "cloudbuild", "appveyor")
_LINE = re2.compile(pattern("env_line"))
_ENV = re2.compile(r"(?im)^[ \t]*ENV[ \t]+((?:[^\\\n]|\\\r?\n|\\.)*)")
_ENV_PAIR = re2.compile(r"""([A-Za-z_][A-Za-z0-9_]*)=("[^"\n]*"|'[^'\n]*'|[^\s"'\\]*)""")


def audit(project: Project) -> Findings:
    """All findings in YAML, JSON and `.env` files and in Dockerfiles."""
    around = surroundings(project)
    for file in project.of(Kind.ENVIRONMENT):
        yield from environment_rules.judge(Environment(_last(dotenv(file))), around)
    for file in project.of(Kind.CONTAINER):
        yield from environment_rules.judge(Environment(_last(dockerfile(file))), around)
    for file in (*project.of(Kind.YAML), *project.of(Kind.JSON)):
        document = None if _is_of_code_host(file) else read(file)
        if document is not None:
            yield from _audit_document(document, around)


def _is_of_code_host(file: SourceFile) -> bool:
    """What a code host runs on its own machines is no training."""
    path = PurePath(file.path)
    return not _HOSTS.isdisjoint(path.parts) or path.name.startswith(_PIPELINES)


def _audit_document(document: Document, around: Surroundings) -> Findings:
    settings: list[Setting] = []
    groups: list[tuple[Setting, ...]] = []
    for key, node in nodes(document.roots):
        pairs = scalars(node)
        settings.extend(_settings(document, pairs))
        if isinstance(node, yaml.SequenceNode) and _ENVIRONMENT.search(key):
            settings.extend(_listed(document, node))
        groups.append(tuple(document.option(name, value) for name, value in pairs))
        for name, value in pairs:
            if name.value in _SCRIPT_KEYS and "\n" in value.value:
                yield from _script(document, value, around)
        for text in _given_to_shell(node):
            yield from _script(document, text, around)
    yield from environment_rules.judge(Environment(tuple(settings)), around)
    for options in groups:
        yield from option_rules.judge(Group(options))


def _settings(
    document: Document, pairs: list[tuple[yaml.ScalarNode, yaml.ScalarNode]]
) -> Iterator[Setting]:
    """`NAME: value`, and `name: NAME` with `value: value`."""
    by_name = {str(name.value): value for name, value in pairs}
    if "name" in by_name and "value" in by_name:
        pairs = [(by_name["name"], by_name["value"])]
    for name, value in pairs:
        if environment_rules.is_known(str(name.value)):
            line, evidence = document.line(name)
            yield Setting(
                str(name.value), _known(str(value.value)), document.file.path, line, evidence,
                document.span(value),
            )  # fmt: skip


def _listed(document: Document, node: yaml.SequenceNode) -> Iterator[Setting]:
    """`- NAME=value`."""
    for item in node.value:
        found = _PAIR.match(item.value) if isinstance(item, yaml.ScalarNode) else None
        if not found or not environment_rules.is_known(str(found.group(1))):
            continue
        name, value = str(found.group(1)), str(found.group(2))
        line, evidence = document.line(item)
        start, end = document.span(item)
        middle = start + len(name)
        exact = document.file.content[middle + 1 : end] == value.encode()
        yield Setting(
            name, _known(value), document.file.path, line, evidence,
            (middle + 1, end) if exact else None,
        )  # fmt: skip


def _known(value: str) -> str | None:
    return None if "$" in value else value


def _given_to_shell(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """The text in `[bash, -c, text]`."""
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    for before, item in pairwise(items):
        flag = str(before.value) if isinstance(before, yaml.ScalarNode) else ""
        if flag.startswith("-") and flag.endswith("c") and isinstance(item, yaml.ScalarNode):
            yield item


def _script(document: Document, value: yaml.ScalarNode, around: Surroundings) -> Findings:
    """A script in a block of a job or a pod; its lines are those of the file, without edits."""
    first = value.start_mark.line + (value.style in ("|", ">"))
    for finding in shell.audit_script(value.value.encode(), document.file.path, around):
        yield replace(finding, line=finding.line + first, edits=())


def dotenv(file: SourceFile) -> Iterator[Setting]:
    """`NAME=value` and `export NAME='value'`, a line each."""
    text = file.content.decode("latin-1")
    for found in _LINE.finditer(text):
        yield _spelled(file, found.span(1), found.span(2))


def dockerfile(file: SourceFile) -> Iterator[Setting]:
    """`ENV NAME=value NAME=value`, over several lines too."""
    text = file.content.decode("latin-1")
    for instruction in _ENV.finditer(text):
        start, body = instruction.start(1), str(instruction.group(1))
        for pair in _ENV_PAIR.finditer(body):
            yield _spelled(file, _moved(pair.span(1), start), _moved(pair.span(2), start))


def _moved(span: tuple[int, int], by: int) -> tuple[int, int]:
    return span[0] + by, span[1] + by


def _spelled(file: SourceFile, name_at: tuple[int, int], value_at: tuple[int, int]) -> Setting:
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
        (start, end),
    )  # fmt: skip


def _last(settings: Iterator[Setting]) -> tuple[Setting, ...]:
    """The last of each name: it is the one in effect."""
    return tuple({setting.name: setting for setting in settings}.values())
