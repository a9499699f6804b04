"""What is kept of a run's numbers: each value, its step, its time."""

import json
from collections.abc import Sequence

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.records import Sample
from ldlm_monitor.finished.compare.sides import Side, steady_from
from ldlm_monitor.finished.readings import Column, Readings, RunReadings
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.run_names import RunNames

NOW = 1769681700.0


def read(
    name: str, lines: Sequence[str], *, timed: bool = False, live: bool = False
) -> RunReadings:
    readings = Readings(Parser(), RunNames("r"), live=live)
    offset = 0
    for index, line in enumerate(lines):
        data = line.encode() + b"\n"
        readings.feed(Chunk(name, (0, 0, 0), offset, index + 1, data), NOW + index, timed=timed)
        offset += len(data)
    readings.finish([name])
    return readings.runs["r"]


def of(run: RunReadings, quantity: str) -> Column:
    column = run.column(quantity)
    assert column is not None
    return column


def rows(steps: Sequence[int], **more: Sequence[float]) -> list[str]:
    return [
        json.dumps({"step": step, **{name: values[i] for name, values in more.items()}})
        for i, step in enumerate(steps)
    ]


def test_what_was_trained_again_stands_as_it_was_trained_last() -> None:
    run = read("a.jsonl", rows([0, 1, 2, 3, 2, 3, 4], loss=[9, 8, 7, 6, 5, 4, 3]), timed=True)
    column = of(run, "loss")
    assert list(column.steps) == [0, 1, 2, 3, 4]
    assert list(column.values) == [9, 8, 5, 4, 3]
    assert list(run.steps.times) == [NOW, NOW + 1, NOW + 4, NOW + 5, NOW + 6]


def test_a_value_that_is_not_finite_is_counted_at_its_step() -> None:
    lines = ['{"step": 0, "loss": 1.0}', '{"step": 1, "loss": NaN}', '{"step": 2, "loss": 2.0}']
    column = of(read("a.jsonl", lines), "loss")
    assert (list(column.steps), column.nonfinite) == ([0, 2], [1])


def test_of_two_sources_the_better_one_counts() -> None:
    readings = Readings(Parser(), RunNames("r"))
    for name, line in (
        ("a.log", b"step 5 | loss 2.1 | lr 1e-4\n"),
        ("training_log.jsonl", b'{"step": 5, "loss": 2.125}\n'),
    ):
        readings.feed(Chunk(name, (0, 0, 0), 0, 1, line, final=True), NOW)
    assert list(of(readings.runs["r"], "loss").values) == [2.125]


HEADER = (
    b'{"schema":"ldlm.health/1","type":"run","run":"r","rank":%d,"world_size":2,"pid":7,'
    b'"host":"gpu04","framework":"plain","config":{}}\n'
)


@pytest.mark.parametrize("ranks", [(0, 1), (0,)], ids=["both", "one of two"])
def test_a_rate_that_each_rank_tells_of_itself_is_the_runs_by_their_sum(
    ranks: Sequence[int],
) -> None:
    readings = Readings(Parser(), RunNames("r"))
    for rank in ranks:
        reported = (
            b'{"type":"step","step":%d,"time":%d,"samples_per_second":40,"loss":2}\n'
            % (step, NOW + step)
            for step in range(3)
        )
        chunk = Chunk(
            f"health_rank{rank}.jsonl",
            (0, rank, 0),
            0,
            1,
            HEADER % rank + b"".join(reported),
            final=True,
        )
        readings.feed(chunk, NOW)
    run = readings.runs["r"]
    assert list(of(run, "samples_per_second").values) == [80.0] * 3
    assert list(of(run, "loss").values) == [2.0] * 3


def test_a_number_of_ranks_beyond_all_numbers_gives_no_rate() -> None:
    run = RunReadings("r", settings={"world_size": "9" * 5000})
    row = b'{"type":"step","step":1,"time":%d,"samples_per_second":40}\n' % NOW
    chunk = Chunk("health_rank0.jsonl", (0, 0, 0), 0, 1, HEADER % 0 + row, final=True)
    for record in Parser().feed(chunk, RunNames("r").origin(chunk.path), NOW):
        if isinstance(record, Sample):
            run.add_sample(record, NOW)
    assert len(of(run, "samples_per_second")) == 0


def test_steps_that_begin_anew_with_each_epoch_are_counted_on() -> None:
    lines = [
        json.dumps({"epoch": epoch, "step": step, "loss": float(epoch)})
        for epoch in (0, 1)
        for step in (1, 2, 3)
    ]
    run = RunReadings("r")
    for record in Parser().feed(
        Chunk("a.jsonl", (0, 0, 0), 0, 1, "\n".join(lines).encode() + b"\n"),
        RunNames("r").origin("a.jsonl"),
        NOW,
    ):
        run.add_sample(record, NOW)  # type: ignore[arg-type]
    assert list(of(run, "loss").steps) == [1, 2, 3, 4, 5, 6]


def test_numbers_without_any_step_are_numbered() -> None:
    """Keras writes a line an epoch, and no step in it."""
    lines = [
        "Epoch 1/3",
        "10/10 - 1s - loss: 0.9000 - val_loss: 0.8000 - 1s/epoch - 18ms/step",
        "Epoch 2/3",
        "10/10 - 1s - loss: 0.7000 - val_loss: 0.6000 - 1s/epoch - 18ms/step",
    ]
    column = of(read("keras.log", lines), "eval_loss")
    assert list(column.values) == [0.8, 0.6]
    assert list(column.steps) == sorted(set(column.steps))


def test_times_that_are_only_an_order_make_no_durations() -> None:
    assert len(read("a.jsonl", rows(range(30), loss=[1.0] * 30)).durations()) == 0


def test_lines_that_came_together_share_the_time_between_two_such_lots() -> None:
    """A writer that collects ten steps: each took a tenth of the time between."""
    readings = Readings(Parser(), RunNames("r"), live=True)
    offset = 0
    for lot in range(5):
        data = "".join(f"step {10 * lot + n} | loss 2.0 | lr 1e-4\n" for n in range(10)).encode()
        readings.feed(Chunk("a.log", (0, 0, 0), offset, 10 * lot + 1, data), NOW + 2 * lot)
        offset += len(data)
    assert list(readings.runs["r"].durations().values) == pytest.approx([0.2] * 4)


def test_samples_a_second_follow_from_the_batch_that_a_log_tells() -> None:
    lines = [
        "*** Starting MMDiT with Joint Text-Latent Diffusion ***",
        "* Per-device batch size: 8",
    ]
    lines += ["* Total batch size: 16"]
    lines += [f"step {n} | loss 2.0 | lr 1e-4" for n in range(40)]
    side = Side("r", read("a.log", lines, timed=True, live=True))
    assert set(side.steady("samples_per_second")) == {16.0}


def test_a_warm_up_is_found_and_a_pause_is_none() -> None:
    steady = [1.0 + 0.01 * (n % 7) for n in range(200)]
    assert steady_from([5.0] * 20 + steady) == 20
    assert steady_from(steady) == 0
    assert steady_from([*steady[:80], 60.0, *steady]) == 0
