"""Every example and counter-example of every packaged definition file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from ldlm_monitor.model.records import Event, Sample
from ldlm_monitor.parse import formats

FILES = [(path.stem, formats.load(path)) for path in formats.packaged_files()]


def _same(expected: Any, value: Any) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(value, float) and math.isnan(value)
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        return value == expected and type(value) is type(expected)
    return value == pytest.approx(expected)


def _samples() -> Iterator[Any]:
    for name, loaded in FILES:
        for entry in (*loaded.bars, *loaded.lines):
            for index, example in enumerate(entry.examples):
                yield pytest.param(example, id=f"{name}-{entry.name}-{index}")


def _events() -> Iterator[Any]:
    for name, loaded in FILES:
        for number, rule in enumerate(loaded.events):
            for index, example in enumerate(rule.examples):
                yield pytest.param(rule, example, id=f"{name}-{number}-{rule.kind}-{index}")


def _counter_samples() -> Iterator[Any]:
    for name, loaded in FILES:
        for entry in (*loaded.bars, *loaded.lines):
            for index, line in enumerate(entry.counter_examples):
                yield pytest.param(line, id=f"{name}-{index}-{line[:30]}")


def _counter_events() -> Iterator[Any]:
    for name, loaded in FILES:
        for number, rule in enumerate(loaded.events):
            for index, line in enumerate(rule.counter_examples):
                yield pytest.param(rule, line, id=f"{name}-{number}-{rule.kind}-{index}")


@pytest.mark.parametrize("example", list(_samples()))
def test_an_example_line_gives_its_sample_and_no_other_value(parse, example) -> None:
    (sample,) = [r for r in parse(example.line + "\n") if isinstance(r, Sample)]
    assert (sample.step, sample.epoch, sample.rank) == (example.step, example.epoch, example.rank)
    assert sample.values.keys() == example.values.keys()
    assert all(_same(value, sample.values[name]) for name, value in example.values.items())


@pytest.mark.parametrize(("rule", "example"), list(_events()))
def test_an_example_gives_its_event_once(parse, rule, example) -> None:
    also = {extra.kind for extra in rule.also}
    found = [r for r in parse(example.line + "\n") if isinstance(r, Event) and r.kind not in also]
    kind = example.kind or rule.kind
    assert [event.kind for event in found] == [kind]
    (event,) = found
    assert event.severity == (example.severity or rule.severity)
    assert event.rank == example.rank
    assert event.time == example.time
    if example.message is not None:
        assert event.message == example.message
    expected = {**example.fields, **({"role": example.role} if example.role else {})}
    wrong = {
        name: (value, event.fields.get(name, "missing"))
        for name, value in expected.items()
        if not _same(value, event.fields.get(name, "missing"))
    }
    assert not wrong


@pytest.mark.parametrize("line", list(_counter_samples()))
def test_a_counter_example_gives_no_sample(parse, line) -> None:
    assert [r for r in parse(line + "\n") if isinstance(r, Sample)] == []


@pytest.mark.parametrize(("rule", "line"), list(_counter_events()))
def test_a_counter_example_gives_nothing_that_could_alert(parse, rule, line) -> None:
    events = [r for r in parse(line + "\n") if isinstance(r, Event)]
    assert [e for e in events if e.kind == rule.kind] == []
    assert [e for e in events if e.severity in ("error", "critical")] == []
