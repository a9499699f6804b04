"""The page of all runs: the worst first, what is wrong and what to do, ages, curves, links."""

import math
import re
from pathlib import Path

import pytest

from ldlm_monitor.base.snapshot import CurveView, ReasonView, RunView, Snapshot
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.serve.live_page import EVERY_SECONDS, RowsOfPage, live_page

EXAMPLES = Path(__file__).parents[3] / "examples/train_logs"


@pytest.fixture(scope="module")
def three() -> Snapshot:
    replay = Replay(Settings(files=(str(EXAMPLES),)))
    for _ in replay.transitions():
        pass
    return replay.snapshot()


def page(snapshot: Snapshot, later: float = 0.0, words: str = "") -> str:
    return live_page(snapshot, str, snapshot.at + later, words=words).decode()


def rows(text: str) -> list[str]:
    """The words of each row."""
    items = re.findall(r"(?s)<li data-row.*?</li>", text)
    return [" ".join(re.sub("<[^>]*>", " ", each).split()) for each in items]


def test_each_run_has_why_it_needs_a_look_and_what_to_do_the_worst_first(three: Snapshot) -> None:
    crashed, warned, fine = rows(page(three))
    assert crashed.startswith(
        "◆ CRITICAL train_20261121_083515 IndexError: Target 30521 is out of bounds at step 119,"
        " rank 1 → mend the error crashed step 119/600 (20 %) loss 1.943 ended"
    )
    assert warned.startswith(
        "▲ WARNING train_20261121_083451 loss NaN or Inf at step 35 (over) → nothing to do finished"
    )
    assert fine.startswith("● HEALTHY train_20261121_083409 finished: ≈")
    assert "3 runs: 1 CRITICAL, 1 WARNING, 1 ended" in page(three)


def test_ages_count_from_the_page_and_carry_their_time_for_the_script(three: Snapshot) -> None:
    ended = next(run.ended_at for run in three.runs if run.state == "crashed")
    text = page(three, later=600.0)
    assert f'<time data-age="{ended:.3f}"' in text
    assert f'data-now="{three.at + 600:.3f}"' in text
    assert re.search(r"ended ≈?<time [^>]*>1\dm[^<]*</time> ago", text)


def test_from_a_page_further_down_its_links_lead_up(three: Snapshot) -> None:
    """A Prometheus below `/prometheus/` has this page for its own."""
    text = live_page(three, str, up="../").decode()
    assert 'href="../runs/train_20261121_083515"' in text
    assert 'data-stream="../api/v1/stream"' in text
    assert 'href="../metrics"' in text


def test_a_failure_that_ended_more_than_an_hour_ago_comes_after_what_runs(three: Snapshot) -> None:
    run = next(run for run in three.runs if run.health == "HEALTHY")
    going = run.model_copy(update={"name": "going", "state": "running", "ended_at": None})
    both = three.model_copy(update={"runs": (*three.runs, going)})
    assert " going " in rows(page(both, later=60.0))[2]
    assert " going " in rows(page(both, later=4000.0))[0]


def test_a_run_without_a_step_in_time_has_one_age_and_no_time_left(three: Snapshot) -> None:
    run = next(run for run in three.runs if run.health == "HEALTHY")
    reason = ReasonView(
        kind="alert", severity="critical", text="TrainingStalled: no step", since=1.0
    )
    stalled = run.model_copy(
        update={"state": "stalled", "health": "CRITICAL", "reasons": (reason,), "ended_at": None,
                "eta_seconds": None, "verdict": None}
    )  # fmt: skip
    (row,) = rows(page(three.model_copy(update={"runs": (stalled,)}), later=90.0))
    assert row.count(" ago") == 1
    assert "left -" in row
    assert "no step since step 599" in row


def with_curve(three: Snapshot, means: list[float], nonfinite: list[int]) -> str:
    many = len(means)
    curve = CurveView(
        steps=range(many), times=[0.0] * many, lows=means, highs=means, means=means,
        nonfinite=nonfinite, lines=[1] * many, offsets=[0] * many, origins=[0] * many,
        files=("a.log",),
    )  # fmt: skip
    run: RunView = three.runs[0]
    own = {"runs": (run,), "curves": {run.name: {"loss": curve}}}
    return page(three.model_copy(update=own))


def test_the_loss_is_a_line_that_says_what_it_shows(three: Snapshot) -> None:
    text = with_curve(three, [4.0, 3.0, 2.5], [0, 0, 0])
    assert 'role="img" aria-label="loss from 4 to 2.5"' in text
    assert text.count('<path d="M0.0 ') == 1
    assert 'class="bad"' not in text


@pytest.mark.parametrize(
    ("means", "said"),
    [
        ([4.0, 3.0, math.nan, math.nan], "loss from 4 to 3, then not finite"),
        ([4.0, math.nan, 3.0, 2.0], "loss from 4 to 2, not finite in between"),
    ],
)
def test_where_the_loss_is_no_number_the_line_has_a_gap_and_a_mark(
    three: Snapshot, means: list[float], said: str
) -> None:
    text = with_curve(three, means, [int(math.isnan(mean)) for mean in means])
    assert f'aria-label="{said}"' in text
    assert 'class="bad"' in text


@pytest.mark.parametrize("means", [[], [1.0], [math.nan] * 3, [2.0, 2.0]])
def test_a_curve_with_nothing_to_draw_breaks_no_page(three: Snapshot, means: list[float]) -> None:
    text = with_curve(three, means, [0] * len(means))
    assert ("<svg" in text) == (means == [2.0, 2.0])


def test_the_page_asks_no_other_server_and_has_two_hundred_runs_in_little(three: Snapshot) -> None:
    run = three.runs[0]
    many = [run.model_copy(update={"name": f"seed{number:03}"}) for number in range(200)]
    text = page(three.model_copy(update={"runs": tuple(many)}))
    assert len(rows(text)) == 200
    assert not re.search(r"(?:src|href|action)=\"?(?:https?:)?//", text)
    assert len(text) < 300_000


def test_the_rows_of_a_snapshot_are_made_once_for_all_who_ask_at_its_time(three: Snapshot) -> None:
    made = RowsOfPage(str)
    first = made.of(three, 100.0)
    assert made.of(three, 100.0 + EVERY_SECONDS / 2) is first
    assert made.of(three, 100.0 + EVERY_SECONDS) is not first, "its ages are older"
    assert made.of(three.model_copy(), 100.0 + EVERY_SECONDS) is not first
    text = live_page(three, str, 101.0, made=made).decode()
    assert 'data-now="101.000"' in text
    assert text == live_page(three, str, 101.0, made=RowsOfPage(str)).decode()


def test_a_filter_of_the_address_hides_rows_that_other_words_find_again(three: Snapshot) -> None:
    text = page(three, words="indexerror STEP 119")
    assert len(rows(text.replace("<li hidden data-row", "<li data-row"))) == 3
    (crashed,) = rows(text)
    assert "train_20261121_083515" in crashed
    assert "no run has these words" not in re.sub(r"<li data-none hidden>[^<]*", "", text)
    nothing = page(three, words="nosuchword")
    assert rows(nothing) == []
    assert "<li data-none>no run has these words" in nothing
