"""Whatever number stands in a log: it raises nothing, and its neighbours are judged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import MAX_COUNT, Heartbeat, Sample
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.parse import Parser

NOW = 1_769_681_700.0
MANY = "9" * 5000
"""Python converts no more than 4300 digits to an integer."""
NUMBERS = (
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", str(MAX_COUNT)),
    *("18446744073709551616", "1e18", "1e19", "1e308", "1e400", "-1e400", "1e-400", "9" * 400),
    *(MANY, f"-{MANY}", f"{MANY}.5", f"1e{MANY}", "-1", "-0.0", "1.5", "true", "null", "NaN"),
    *("Infinity", "-Infinity", "[1]", '{"a": 1}', '"7"', f'"{MANY}"', f"[{MANY}]", '""'),
    *('"--5"', '"²"', '"٣"', '"9999-12-31T23:59:59-23:59"', '"0001-01-01T00:00:00+23:59"'),
    *("253402300800", "1e11", "-62135596800"),
)
KEYS = (
    *(
        "step",
        "global_step",
        "_step",
        "rank",
        "epoch",
        "time",
        "timestamp",
        "_timestamp",
        "max_steps",
    ),
    *(
        "total_steps",
        "world_size",
        "loss_scale",
        "learning_rate",
        "grad_norm",
        "host",
        "pid",
        "loss",
    ),
    *("config", "fields", "exitcode", "signal"),
)
TYPES = ("", *(f'"type": "{kind}", ' for kind in ("run", "step", "heartbeat", "event", "end")))


def judged(text: str, path: str) -> tuple[Monitor, list[tuple[str, str]]]:
    """A monitor that has got a file with this text, and the alerts that fired."""
    monitor = Monitor()
    chunk = Chunk(path, (1, 1, 0), 0, 1, text.encode(), final=True)
    found = monitor.feed(chunk, NOW)
    found += monitor.finish(NOW + 60.0, [path])
    assert monitor.snapshot().monitor.dropped["internal_error"] == 0
    return monitor, [(each.alert, each.state) for each in found]


def row(step: int, loss: str = "2.5") -> str:
    return f'{{"step": {step}, "loss": {loss}, "grad_norm": 1.0}}'


def between(lines: Sequence[str]) -> str:
    """Each of the lines among rows, the last of which has a NaN."""
    rows = [f"{line}\n{row(step)}" for step, line in enumerate(lines, start=1)]
    return "\n".join([*map(row, range(5)), *rows, row(9999, "NaN"), ""])


@pytest.mark.parametrize("key", KEYS)
def test_any_number_under_any_key_of_a_row_loses_no_neighbour(key: str) -> None:
    lines = [
        f'{{{kind}"{key}": {number}, "kind": "note", "accuracy": 0.5}}'
        for kind in TYPES
        for number in NUMBERS
    ]
    monitor, fired = judged(between(lines), "metrics.jsonl")
    assert ("NonFiniteLoss", "firing") in fired
    (run,) = monitor.snapshot().runs
    assert run.step == 9999
    assert run.total_steps is None or abs(run.total_steps) < MAX_COUNT


@pytest.mark.parametrize("number", ["9223372036854775808", "-9223372036854775809", "1e19", MANY])
def test_a_step_that_is_none_leaves_its_values(number: str) -> None:
    for path in ("metrics.jsonl", "train.log"):
        text = "\n".join([*map(row, range(6)), f'{{"step": {number}, "loss": NaN}}', ""])
        monitor, fired = judged(text, path)
        assert ("NonFiniteLoss", "firing") in fired
        assert monitor.snapshot().runs[0].step == 5


TEXT = (
    "step {} loss {} grad_norm 1.0",
    "step: {} | loss: {} | grad_norm: 1.0",
    "{{'loss': 2.5, 'step': {}, 'epoch': {}}}",
    "[rank{}]: step 6 loss {}",
    "[Rank {}] step 6 loss {}",
    "[{}]<stderr>: step {} loss 2.5",
    "Training:  1%|▏| {}/950 [00:{}<09:00,  1.00it/s, Loss=2.5]",
    "Training:  1%|▏| 6/950 [{}:00:00<09:00,  {}it/s, Loss=2.5]",
    "{}-01-29T10:15:00Z step {} loss 2.5",
    "exitcode  : {} (pid: {})",
)


@pytest.mark.parametrize("form", TEXT)
def test_any_number_in_a_line_of_text_loses_no_neighbour(form: str) -> None:
    lines = [form.format(number, number) for number in NUMBERS]
    text = [f"{line}\nStep {step}: Loss = 2.5, LR = 1.0e-04" for step, line in enumerate(lines)]
    _, fired = judged("\n".join([*text, "Step 999: Loss = nan, LR = 1.0e-04", ""]), "train.log")
    assert ("NonFiniteLoss", "firing") in fired


def test_any_number_in_a_table_loses_no_neighbour() -> None:
    rows = [f"{number},2.5,{number}\n{step},2.5,1" for step, number in enumerate(NUMBERS)]
    text = "\n".join(["step,train_loss,epoch", *rows, "999,nan,1", ""])
    monitor, fired = judged(text, "metrics.csv")
    assert ("NonFiniteLoss", "firing") in fired
    assert monitor.snapshot().runs[0].step == 999


@pytest.mark.parametrize("stamp", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_stamp_that_is_no_time_of_a_log_is_left_out(stamp: str) -> None:
    text = f'{{"step": 1, "loss": 2.5, "time": "{stamp}"}}\n{stamp} step 2 loss 2.5\n'
    for path in ("a.jsonl", "a.log"):
        chunk = Chunk(path, (1, 1, 0), 0, 1, text.encode())
        found = Parser().feed(chunk, Origin("r"), NOW)
        assert [each.time for each in found if isinstance(each, Sample)][:1] == [None]


def test_a_heartbeat_counts_no_more_than_a_count() -> None:
    beat = '{"type": "heartbeat", "rank": 0, "step": %s, "pid": 7, "time": 1769681700.0}\n'
    for number, accepted in (("9223372036854775808", False), ("6", True)):
        chunk = Chunk("a.jsonl", (1, 1, 0), 0, 1, (beat % number).encode())
        found = Parser().feed(chunk, Origin("r"), NOW)
        assert any(isinstance(each, Heartbeat) for each in found) is accepted
