"""Rows of several files that are read ahead are judged as if each had come at its time."""

import json
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.records import SampleBlock, TimedRows
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.core.rows_in_order import RowsInOrder

START = 1_769_681_700.0
SPAN = 5.0  # seconds of a file that are read at once


class Row(NamedTuple):
    """A row of a rank, and when it was written."""

    at: float
    rank: int
    text: str


def rows_of(seed: int) -> list[Row]:
    draw = random.Random(seed)
    found = []
    for rank in range(4):
        step = 0
        for row in range(60):
            at = round(START + row * 0.7 + (40 if row > 45 else 0) + draw.random(), 3)
            step += 1 if draw.random() < 0.97 else -5
            loss = math.nan if (rank, row) == (2, 30 + seed) else 2.5 + draw.random()
            values = {"rank": rank, "step": max(step, 0), "time": at, "epoch": row // 20}
            values["loss"] = loss
            if draw.random() < 0.1:
                values["gpu_utilization_ratio"] = draw.random()
            found.append(Row(at, rank, json.dumps(values) + "\n"))
    return found


def judged(
    pieces: list[tuple[float, float | None, list[Row]]],
) -> tuple[list[Transition], Snapshot]:
    monitor, read, found = Monitor(), [(0, 1)] * 4, list[Transition]()
    for now, since, rows in pieces:
        rank, data = rows[0].rank, "".join(row.text for row in rows).encode()
        offset, line = read[rank]
        read[rank] = offset + len(data), line + len(rows)
        path = f"train/health_rank{rank}.jsonl"
        monitor.names.tie(path, "train")
        found += monitor.feed(Chunk(path, (1, rank, 0), offset, line, data), now, since=since)
    found += monitor.finish(START + 200)
    return found, monitor.snapshot()


@pytest.mark.parametrize("seed", range(4))
def test_they_give_the_alerts_and_the_state_of_rows_that_come_one_by_one(seed: int) -> None:
    ordered = sorted(rows_of(seed))
    singly = judged([(row.at, None, [row]) for row in ordered])
    spans: dict[tuple[float, int], list[Row]] = {}
    for row in ordered:
        spans.setdefault((row.at // SPAN * SPAN, row.rank), []).append(row)
    ahead = judged([(rows[-1].at, since, rows) for (since, _), rows in sorted(spans.items())])
    assert any(each.alert == "NonFiniteLoss" for each in singly[0])
    assert ahead[0] == singly[0]
    assert ahead[1].runs == singly[1].runs
    assert repr(ahead[1].curves) == repr(singly[1].curves)


def test_a_stalled_run_recovers_while_the_wall_clock_is_behind() -> None:
    """Rows that come alone are as much ahead as those that go together."""
    monitor, offset = Monitor(), 0

    def feed(steps: range, at: float) -> None:
        nonlocal offset
        rows = [{"step": step, "time": at - 0.5 + step % 2 / 10, "loss": 2.5} for step in steps]
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        chunk = Chunk("train.jsonl", (1, 1, 0), offset, steps[0] + 1, data)
        offset += len(data)
        monitor.feed(chunk, at + monitor.ahead)

    for second in range(60):
        feed(range(2 * second, 2 * second + 2), START + second)
    monitor.tick(START + 200)
    (run,) = monitor.runs
    assert run.life.state == "stalled"
    monitor.ahead = 3600.0
    for second in range(200, 205):
        feed(range(2 * second, 2 * second + 2), START + second)
        monitor.tick(START + second + 0.5 + monitor.ahead)
    assert run.life.state == "running"


def test_rows_that_are_refused_together_are_not_asked_about_at_each_row() -> None:
    """Asking copies all that are left."""
    rows, asked, taken, steps = RowsInOrder(), 0, list[float](), range(1000)

    def refuse(_: Sequence[TimedRows]) -> bool:
        nonlocal asked
        asked += 1
        return False

    block = SampleBlock(
        run="r", rank=None, path="train.log", first_line=1, offsets=steps, steps=steps,
        epochs=None, times=None, values={"loss": [2.5] * 1000}, repaints=True,
    )  # fmt: skip
    rows.put(block, [START] * 1000, None)
    while rows.first() < math.inf:
        for (row,) in rows.next(math.inf, math.inf, refuse):
            assert not isinstance(row.item, SampleBlock)
            taken.append(row.item.position.offset)
    assert taken == [*steps]
    assert asked < 50
