"""What is skipped because no rule can see a difference makes no difference to any alert."""

import json
import math
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.run.stall import Stall
from ldlm_promrules.promql import Evaluator

START = 1_769_681_800.0
STALL = Stall(floor_seconds=8, startup_seconds=20)  # many stalls, and some that are late
PIECES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from(["steady", "steady", "spike", "nan", "constant", "back", "nccl", "oom"]),
        st.integers(1, 60),
        st.sampled_from([0.3, 1.0, 1.0, 2.5]),
        st.sampled_from([0.0, 0.0, 0.4, 11.0, 40.0, 90.0]),
    ),
    min_size=1,
    max_size=6,
)
"""A run, what it does, for how many rows so many seconds apart, and the silence after them."""


class Writer:
    """Writes the logs of two runs."""

    def __init__(self) -> None:
        self.steps = {"a": 0, "b": 0}
        self.offsets = {"a": (0, 1), "b": (0, 1)}
        self.at = START

    def chunk(self, run: str, kind: str, rows: int, apart: float) -> tuple[Chunk, float]:
        lines = [self._row(run, kind, row, apart) for row in range(rows)]
        offset, line = self.offsets[run]
        data = "".join(lines).encode()
        self.offsets[run] = offset + len(data), line + len(lines)
        return Chunk(f"{run}/metrics.jsonl", (1, ord(run), 0), offset, line, data), self.at

    def _row(self, run: str, kind: str, row: int, apart: float) -> str:
        self.at += apart
        self.steps[run] += 1 if kind != "back" or row else -5
        step = self.steps[run]
        loss = {"spike": 40.0, "nan": math.nan, "constant": 3.0}.get(kind, 2 + 9 / (9 + step))
        values = {
            "step": step,
            "time": self.at,
            "loss": loss,
            "lr": 1e-4,
            "grad_norm": 1 + step % 7,
        }
        if kind == "nccl" and not row:
            return "[rank1]:[E1] [Rank 1] Watchdog caught collective operation timeout: x\n"
        if kind == "oom" and not row:
            return "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        return json.dumps(values) + "\n"


def every_rule() -> Monitor:
    """A monitor that evaluates every rule at every slot, and takes in rows one by one."""
    monitor = Monitor(stall=STALL)
    engine = monitor.engine
    engine._evaluator = Evaluator(engine._store)
    engine._due.due, engine._due.take = set(range(len(engine._rules.rules))), lambda index, at: True
    monitor._take_block = lambda block, now: monitor.observe(block.samples(), now)
    return monitor


def written(transitions: list[Transition]) -> list[str]:
    """All of them as text, but for values that a message may give a minute late."""
    return [
        repr(replace(each, value=0.0, annotations={}) if _is_aged(each) else each)
        for each in transitions
    ]


def _is_aged(transition: Transition) -> bool:
    return "Stalled" in transition.alert or transition.state not in ("pending", "firing")


@given(PIECES, st.booleans())
@example([("a", "steady", 30, 1.0, 0.0), ("a", "back", 30, 1.0, 0.0)], False)
@example([("a", "steady", 60, 1.0, 90.0), ("b", "steady", 60, 1.0, 0.0)], True)
def test_alerts_are_those_of_a_monitor_that_evaluates_every_rule_at_every_slot(
    pieces: list[tuple[str, str, int, float, float]], ends: bool
) -> None:
    writer, monitors = Writer(), (Monitor(stall=STALL), every_rule())
    for run, kind, rows, apart, silence in pieces:
        chunk, at = writer.chunk(run, kind, rows, apart)
        found, expected = (written(monitor.feed(chunk, at)) for monitor in monitors)
        assert found == expected
        writer.at += silence
        found, expected = (written(monitor.tick(writer.at)) for monitor in monitors)
        assert found == expected
        ours, theirs = (repr(monitor.snapshot().points) for monitor in monitors)
        assert ours == theirs
    if ends:
        found, expected = (written(monitor.finish(writer.at + 1)) for monitor in monitors)
        assert found == expected
