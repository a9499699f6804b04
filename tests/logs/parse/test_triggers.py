"""Triggers: what splits them over databases loses no line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.logs import parse
from ldlm_monitor.logs.parse import definitions, triggers
from ldlm_monitor.logs.parse.patterns import Pattern, checked_pattern, texts
from ldlm_monitor.logs.parse.triggers import MARKS, Scanner, compile_triggers, mark_of

TRAPS = Path(__file__).with_name("traps.log").read_bytes()


def packaged() -> list[str]:
    """Every trigger of every packaged definition."""
    found: dict[str, None] = {}
    for path in definitions.packaged_files():
        loaded = definitions.load(path)
        found.update((line.trigger, None) for line in loaded.lines)
        found.update((shape.trigger, None) for event in loaded.events for shape in event.shapes)
    return list(found)


def examples() -> bytes:
    """Every example line of every packaged definition, and lines that are traps."""
    lines: list[str] = []
    for path in definitions.packaged_files():
        loaded = definitions.load(path)
        lines += [example.line for line in loaded.lines for example in line.examples]
        lines += [example.line for event in loaded.events for example in event.examples]
    return "\n".join(lines).encode() + b"\n" + TRAPS


def hits(given: list[str], data: bytes) -> list[tuple[int, int]]:
    return Scanner(compile_triggers([(each, "here") for each in given], {})).scan(data)


@pytest.mark.parametrize(
    ("trigger", "mark"),
    [
        (r"\d%\|", b"%"),
        (r"^\{\"", b"{"),
        (r"^\++ (?:export )?[A-Z]", b"+"),
        (r"\*\*\* Starting ", b"*"),
        (r"(?:step|iteration) \d+%", b"%"),
        (r"step \d{1,9}", b""),
        (r"step\+? \d", b""),
        (r"step\+* \d", b""),
        (r"step%{0,2} \d", b""),
        (r"step [+%]\d", b""),
        (r"step []%]\d", b""),
        (r"step [[:digit:]%]", b""),
        (r"step \\{2}", b""),
        (r"step \\\{", b"{"),
        (r"step (?:\d%|\d) of", b""),
        (r"step (?:\((?:\+|-)\))?done", b""),
        (r"\d%|done", b""),
        (r"\*+ done", b"*"),
    ],
)
def test_a_mark_is_what_every_match_must_hold(trigger, mark):
    assert mark_of(trigger) == (mark[0] if mark else None)


def test_packaged_triggers_hit_the_same_in_several_databases_as_each_alone():
    data, triggers = examples(), packaged()
    assert {mark_of(trigger) for trigger in triggers} == {None, *MARKS}
    alone = [
        (end, index) for index, trigger in enumerate(triggers) for end, _ in hits([trigger], data)
    ]
    assert hits(triggers, data) == sorted(alone)
    assert len({index for _, index in alone}) > len(triggers) * 0.8


def test_a_line_hits_the_same_between_carriage_returns_as_in_a_line_of_its_own():
    scanner = Scanner(triggers.compiled().databases)
    for line in filter(bytes.strip, examples().splitlines()):
        hit = {expression for _, expression in scanner.scan(line + b"\n")}
        between = {expression for _, expression in scanner.scan(b"3/9\r" + line + b"\rx\n")}
        assert hit <= between, line


@pytest.mark.parametrize(
    ("trigger", "data", "ends"),
    [
        (r"(?i)^a", b"A\rab\n", [1, 3]),
        (r"x|^a", b"b\rax", [3, 4]),
        (r"[^b$]\^", b"a^\rb^", [2]),
        (r"\\[^b]", b"\\a\r", [2]),
        (r"a(?:\d|$)", b"a\rab\ra1\na", [2, 7, 9]),
        (r"^a", b"2026-01-01T00:00:00.0Z stdout F a", [33]),
    ],
)
def test_wherever_it_stands_a_sign_of_a_records_end_is_one(trigger, data, ends):
    assert sorted({end for end, _ in hits([trigger], data)}) == ends


@pytest.mark.parametrize("mark", MARKS)
def test_a_trigger_with_a_mark_is_found_among_many(mark):
    many = [f"some words of {number}" for number in range(100)]
    wanted = f"begins \\{chr(mark)} ends"
    data = f"nothing\nbegins {chr(mark)} ends\n".encode()
    assert hits([*many, wanted], data) == [(data.index(b"ends") + 4, 100)]


@pytest.mark.parametrize("hour", range(24))
@pytest.mark.parametrize("head", ["E1121", "[rank0]:[W807", "F0000"])
def test_the_head_of_a_glog_line_is_known_at_every_hour(hour, head):
    rest = f" {hour:02}:59:08.715298 631 x.py:1] text\n"
    assert len(hits(["{{glog}}"], (head + rest).encode())) == 1
    assert hits(["{{glog}}"], f"[rank0]:[I1121{rest}".encode()) == []


@given(st.binary(max_size=40))
def test_the_texts_of_a_match_are_its_groups(text: bytes) -> None:
    pattern = checked_pattern(r"(\w+)?(?:=(\d*)|(:))?(x)*$")
    for match in (pattern.search(text), pattern.search(b"ab=12" + text, 2), pattern.match(b"a:")):
        assert match is None or texts(match) == match.groups()


def test_every_packaged_pattern_compiles() -> None:
    """A start compiles only those that a log needs."""
    loaded = [(path, definitions.load(path)) for path in definitions.packaged_files()]
    plain = [(path, given.model_copy(update={"meanings": {}})) for path, given in loaded]
    assert triggers.Rules(plain, [path for path, _ in plain], {}).named
    modules = [
        import_module(f"ldlm_monitor.logs.parse.{each.name}")
        for each in iter_modules(parse.__path__)
    ]
    found = [each for module in modules for each in vars(module).values()]
    patterns = [each for each in found if isinstance(each, Pattern)]
    assert len(patterns) > 50
    for pattern in patterns:
        assert checked_pattern(pattern.text).groups == pattern.groups
