"""How the runs stand, in few lines."""

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.text.lines import status_lines
from ldlm_monitor.judge.core.assemble import assemble
from ldlm_monitor.service.config import Settings

NOW = 1_769_681_700.0
BAR = (
    "Training:   1%|▏         | 7/9500 [00:07<9:00:00,  1.00it/s, "
    "Epoch=0/1, Progress=1.0%, Loss={loss}, Text=2.5]\r"
)


def lines(runs: int, *, after: float = 0.0) -> list[str]:
    """Of as many runs, of which the first has lost its loss, and `after` seconds of silence."""
    monitor = assemble(Settings())
    for number in range(runs):
        bar = BAR.format(loss="nan" if number == 0 else "2.5").encode()
        monitor.feed(Chunk(f"run{number}.log", (1, number, 0), 0, 1, bar), NOW)
    return list(status_lines(monitor.snapshot(), NOW + after))


def test_a_few_runs_have_a_line_each() -> None:
    first, second = lines(2)
    assert "run0  CRITICAL running  step 7/9500  loss NaN" in first
    assert "run1  HEALTHY running  step 7/9500  loss 2.5" in second


def test_a_run_of_which_nothing_comes_is_as_old_as_it_is() -> None:
    """Nothing new means no new snapshot, which must not make the last step look new."""
    (line,) = lines(1, after=95.0)
    assert line.startswith("2026-01-29T10:16:35.000Z  STATUS")
    assert "last step 1m 35s ago" in line


def test_many_runs_are_counted_in_one_line() -> None:
    (line,) = lines(21)
    assert line.endswith("STATUS    21 runs  20 HEALTHY running, 1 CRITICAL running")


def test_no_run_is_said() -> None:
    assert lines(0) == ["2026-01-29T10:15:00.000Z  STATUS    no run yet"]
