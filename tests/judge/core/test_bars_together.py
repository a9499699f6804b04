"""Repaints of a bar that are judged together give what they give one by one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.parse import Parser

BEGAN = 1_769_681_700.0
LOG = "train_20260101_000000_node0.log"


def bar(step: int, loss: float | None, epoch: int) -> str:
    clock = f"{step}/5000 [00:01<09:59, 9.5it/s"
    shown = f"Epoch={epoch}/3" + ("" if loss is None else f", Loss={loss:.4f}")
    return f"Training:  {step // 50:3d}%|#| {clock}, {shown}]\r"


@st.composite
def pieces(draw: st.DrawFn) -> list[tuple[float, str]]:
    """What came at some times: bars whose steps mostly rise, and what may stand between them."""
    found, step, epoch, now = [], draw(st.integers(0, 9)), 0, BEGAN
    losses = st.sampled_from([2.5, 2.5, 2.25, 2.4375, 9.0, None, float("nan")])
    words = ["\n", "\nEpoch 2\n", "\nCUDA out of memory\n", "\nTraining complete\n"]
    for _ in range(draw(st.integers(1, 12))):
        now += draw(st.sampled_from([0.25, 1.0, 1.0, 5.0, 60.0, 700.0]))
        text = draw(st.sampled_from(["", "", "", *words]))
        same = draw(st.sampled_from([losses, st.none()]))
        for _ in range(draw(st.integers(0, 9))):
            step += draw(st.sampled_from([1, 1, 1, 1, 2, 0, -3]))
            epoch += draw(st.sampled_from([0, 0, 0, 0, 0, 1]))
            text += bar(max(step, 0), draw(same), epoch)
        found.append((now, text))
    return [(when, text) for when, text in found if text]


def chunks(found: list[tuple[float, str]]) -> list[tuple[float, Chunk]]:
    made, offset, line = [], 0, 1
    for when, text in found:
        data = text.encode()
        made.append((when, Chunk(LOG, (1, 1, 0), offset, line, data)))
        offset, line = offset + len(data), line + data.count(b"\n")
    return made


def reported_by(monitor: Monitor, transitions: list[Transition]) -> list[str]:
    end = monitor.snapshot()
    points = [each for each in end.points if not each.name.startswith("ldlm_monitor_")]
    without_lines = [repr(replace(each, line=None)) for each in transitions]
    return [*without_lines, repr(end.runs), *map(repr, points), repr(end.curves)]


@settings(max_examples=3 * settings().max_examples)
@given(pieces())
@example(
    [
        (BEGAN, bar(9, 2.5, 1)),
        (BEGAN + 60, "Epoch 2\n" + bar(8, 2.5, 1) + bar(9, 2.5, 1) + bar(10, 2.5, 2)),
        (BEGAN + 61, bar(4, 2.5, 4)),
    ]
).via("bars of an epoch follow those of the run, which are of another writer")
def test_bars_count_alike_together_and_one_by_one(found: list[tuple[float, str]]) -> None:
    together, alone, parser = Monitor(), Monitor(), Parser()
    seen: tuple[list[Transition], list[Transition]] = ([], [])
    end = found[-1][0] + 30.0 if found else BEGAN
    for when, chunk in chunks(found):
        seen[0].extend(together.feed(chunk, when))
        origin = Origin(alone.names.origin(chunk.path).run, "0")
        seen[1].extend(alone.tick(when))
        for record in parser.feed(chunk, origin, when):
            seen[1].extend(alone.observe([record], when))
    seen[0].extend(together.finish(end, [LOG]))
    seen[1].extend(alone.observe(parser.finish(LOG), end) + alone.finish(end))
    assert reported_by(together, seen[0]) == reported_by(alone, seen[1])
