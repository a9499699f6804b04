"""How the runs stand, in few lines."""

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.text.lines import StatusLines
from ldlm_monitor.judge.core.assemble import assemble
from ldlm_monitor.service.config import Settings

NOW = 1_769_681_700.0
BAR = (
    "Training:   1%|▏         | 7/9500 [00:07<9:00:00,  1.00it/s, "
    "Epoch=0/1, Progress=1.0%, Loss={loss}, Text=2.5]\r"
)


def lines(runs: int, *, after: float = 0.0, status: StatusLines | None = None) -> list[str]:
    """Of as many runs, of which the first has lost its loss, and `after` seconds of silence."""
    monitor = assemble(Settings())
    for number in range(runs):
        bar = BAR.format(loss="nan" if number == 0 else "2.5").encode()
        monitor.feed(Chunk(f"run{number}.log", (1, number, 0), 0, 1, bar), NOW)
    return list((status or StatusLines()).of(monitor.snapshot(), NOW + after))


def test_runs_that_are_new_have_a_line_each_below_that_of_all() -> None:
    both, first, second = lines(2)
    assert both.endswith("STATUS    2 runs  1 CRITICAL running, 1 HEALTHY running")
    assert "run0  CRITICAL running  step 7/9500  loss NaN" in first
    assert "run1  HEALTHY running  step 7/9500  loss 2.5" in second


def test_a_run_of_which_nothing_comes_is_as_old_as_it_is() -> None:
    """Nothing new means no new snapshot, which must not make the last step look new."""
    (line,) = lines(1, after=95.0)
    assert line.startswith("2026-01-29T10:16:35.000Z  STATUS")
    assert "last step 1m 35s ago" in line


def test_runs_that_stand_as_before_are_only_counted() -> None:
    status = StatusLines()
    lines(3, status=status)
    (both,) = lines(3, status=status, after=10.0)
    assert both.endswith("STATUS    3 runs  2 HEALTHY running, 1 CRITICAL running")
    _, new = lines(4, status=status, after=20.0)
    assert "run3  HEALTHY running" in new


def test_a_single_run_has_its_line_each_time() -> None:
    status = StatusLines()
    before = lines(1, status=status)
    assert lines(1, status=status) == before


def test_of_many_runs_that_are_new_twenty_have_a_line() -> None:
    first, *each, more = lines(25)
    assert first.endswith("STATUS    25 runs  24 HEALTHY running, 1 CRITICAL running")
    assert len(each) == 20
    assert more.endswith("and 5 more have changed")


def test_no_run_is_said() -> None:
    assert lines(0) == ["2026-01-29T10:15:00.000Z  STATUS    no run yet"]
