"""The overview for triage: order, reasons, names, columns, filter, sort, and what acts on a row."""

from dataclasses import dataclass
from datetime import datetime

import pytest

from ldlm_monitor.base.snapshot import AlertView, InputView, ReasonView, RunView, Snapshot
from ldlm_monitor.screen.draw import ASCII, UNICODE
from ldlm_monitor.screen.hold_back import muted
from ldlm_monitor.screen.look import Look
from ldlm_monitor.screen.page_context import PageContext
from ldlm_monitor.screen.run_columns import Layout
from ldlm_monitor.screen.triage import (
    NEWS_SECONDS,
    arranged,
    middle_cut,
    row_text,
    shared_prefix,
    triaged,
    why,
)
from tests.screen.screens import NOW, Screen, Shown, on_screen

CRASHED, NAN, FINE = "train_20261121_083515", "train_20261121_083451", "train_20261121_083409"


@dataclass
class Fleet:
    """Runs made of one real run."""

    model: RunView
    snapshot: Snapshot

    def run(self, name: str, state: str = "running", **changes: object) -> RunView:
        ended = NOW - 60 if state in ("crashed", "finished", "ended", "killed") else None
        fields = {"name": name, "state": state, "health": "HEALTHY", "reasons": (),
                  "ended_at": ended, "failed_rank": None}  # fmt: skip
        return self.model.model_copy(update={**fields, **changes})

    def failed(self, name: str, since: float, state: str = "running", text: str = "x") -> RunView:
        reason = ReasonView(kind="finding", severity="critical", text=text, since=since)
        return self.run(name, state, health="CRITICAL", reasons=(reason,))

    def context(self, *runs: RunView) -> PageContext:
        found = self.snapshot.model_copy(update={"runs": runs, "alerts": (), "incidents": ()})
        return PageContext(None, lambda: NOW, found)  # type: ignore[arg-type] # asked for nothing


@pytest.fixture
def fleet(read_all: Snapshot) -> Fleet:
    return Fleet(next(run for run in read_all.runs if run.name == FINE), read_all)


def names(runs: list[RunView]) -> list[str]:
    return [run.name for run in runs]


def test_a_crash_is_first_and_not_after_198_healthy_runs(fleet: Fleet) -> None:
    healthy = [fleet.run(f"seed{number:03}") for number in range(198)]
    crashed = fleet.failed("zzz", NOW - 49, "crashed")
    older = fleet.failed("aaa", NOW - 600)
    done = fleet.run("done", "finished")
    context = fleet.context(*healthy, done, crashed, older)
    assert names(triaged(context))[:3] == ["zzz", "aaa", "seed000"]
    assert names(triaged(context))[-1] == "done"
    context.seen["zzz"] = NOW
    assert names(triaged(context))[0] == "aaa"
    assert names(triaged(context))[-1] == "zzz"


def test_what_ended_with_a_warning_that_nobody_acknowledged_stands_above_healthy_runs(
    fleet: Fleet,
) -> None:
    """A loss that stood at its clamp until the end is a warning, and must be seen, too."""
    reason = ReasonView(kind="alert", severity="warning", text="LossStuck: 100", since=NOW - 90)
    stuck = fleet.run("stuck", "finished", health="WARNING", reasons=(reason,))
    context = fleet.context(fleet.run("fine"), stuck, fleet.failed("crashed", NOW - 900, "crashed"))
    assert names(triaged(context)) == ["crashed", "stuck", "fine"]
    context.seen["stuck"] = NOW
    assert names(triaged(context)) == ["crashed", "fine", "stuck"]


def test_a_failure_that_ended_long_ago_is_no_news(fleet: Fleet) -> None:
    old = fleet.failed("old", NOW - 9000, "crashed").model_copy(
        update={"ended_at": NOW - NEWS_SECONDS - 1}
    )
    assert names(triaged(fleet.context(old, fleet.run("live")))) == ["live", "old"]


def test_what_fails_again_after_it_was_acknowledged_is_new(fleet: Fleet) -> None:
    context = fleet.context(fleet.run("fine"), fleet.failed("again", NOW - 10))
    context.seen["again"] = NOW - 20
    assert names(triaged(context)) == ["again", "fine"]


def test_words_filter_and_ended_runs_hide_but_no_new_failure(fleet: Fleet) -> None:
    context = fleet.context(
        fleet.run("a-live"), fleet.run("b-done", "finished"), fleet.failed("c", NOW, "crashed")
    )
    context.arrangement.hides_ended = True
    assert names(arranged(context)) == ["c", "a-live"]
    context.arrangement.hides_ended = False
    context.arrangement.words = "finished B-"
    assert names(arranged(context)) == ["b-done"]


def test_any_column_sorts_both_ways_and_unknown_values_come_last(fleet: Fleet) -> None:
    left = {"short": 10.0, "long": 900.0, "unknown": None}
    context = fleet.context(*(fleet.run(name, eta_seconds=eta) for name, eta in left.items()))
    context.arrangement.column = "ETA"
    assert names(arranged(context)) == ["short", "long", "unknown"]
    context.arrangement.is_reversed = True
    assert names(arranged(context)) == ["unknown", "long", "short"]


def test_names_lose_what_they_share_and_keep_both_ends() -> None:
    sweep = [f"train_lr3e-4_bs256_seed{number:03}_variant" for number in range(200)]
    assert shared_prefix(sweep) == "train_lr3e-4_bs256_"
    assert shared_prefix(["a_1", "a_2"]) == ""
    assert shared_prefix(sweep[:1]) == ""
    assert middle_cut("seed007_variant_of_a_long_sweep_b", 13, UNICODE) == "seed00…weep_b"
    assert middle_cut("seed007_variant", 9, ASCII) == "seed~iant"


def test_a_reason_has_what_where_and_what_to_do(read_all: Snapshot) -> None:
    """The step, the rank and the decision stay where there is little room."""
    found = {run.name: why(run, read_all) for run in read_all.runs}
    assert row_text(found[NAN], 60, UNICODE) == (
        "loss NaN or Inf at step 35 (over) → nothing to do (probable)"
    )
    assert row_text(found[FINE], 60, UNICODE) == "finished: ≈1m 4s, loss 1.63"
    for width in (30, 45, 60, 100):
        line = row_text(found[CRASHED], width, UNICODE)
        assert " at step 119, rank 1" in line
        assert len(line) <= width
        assert ("→ mend" in line) == (width >= 45)
    assert "→ mend the error (probable): the" in row_text(found[CRASHED], 100, UNICODE)


def test_a_decision_to_go_on_answers_no_other_alert(shown: Shown) -> None:
    run = next(run for run in shown.snapshot.runs if run.name == NAN)
    assert run.decision is not None
    assert run.decision.decision == "GO_ON"
    other = ReasonView(kind="alert", severity="error", text="LossDiverging: of 2", since=NOW)
    alert = AlertView(
        name="LossDiverging",
        state="firing",
        labels={"run": NAN},
        annotations={"action": "Lower the learning rate."},
        value=1.0,
        active_at=NOW,
        fired_at=NOW,
        position=None,
    )
    diverging = run.model_copy(update={"reasons": (other, *run.reasons)})
    snapshot = shown.snapshot.model_copy(update={"alerts": (alert,)})
    assert why(diverging, snapshot).todo == "lower the learning rate"


def test_the_cursor_is_the_selection_on_every_page(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("down", "2")
        await screen.until("step 299/300")
        await screen.press("4")
        await screen.until(f"{NAN}_node0.log")
        await screen.press("1", "down", "4")
        await screen.until(f"{FINE}_node0.log")
        await screen.press("3", "down", "2")
        await screen.until("step 299/300")

    on_screen(shown.source, steps)


def test_the_run_under_the_cursor_is_acknowledged_and_muted(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("a")
        await screen.until("▶◆ crashed")
        assert "083451" in screen.lines[3]  # the next failure is first now
        assert "▶◆ crashed" in screen.lines[5]
        await screen.press("m")
        await screen.until(f"Mute {CRASHED} for how long?")
        await screen.press(*"2 lightyears", "enter")
        await screen.until("a duration is 45m, 2h, 3 days")
        await screen.press(*["backspace"] * 12, *"2 hours", "enter")
        await screen.until("muted until")

    on_screen(shown.source, steps)
    kept = shown.silences.listing(NOW)
    assert [ack["alert"] for ack in kept["acks"]] == ["TrainingCrashed"]
    assert muted(CRASHED, kept)
    assert datetime.fromisoformat(kept["silences"][0]["endsAt"]).timestamp() == NOW + 7200
    assert not muted(NAN, kept)


def test_filter_sort_and_hide_by_keys(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("slash", *"indexerror", "enter")
        text = await screen.until("/indexerror", "2 hidden")
        assert "083451" not in text
        await screen.press("slash", "backspace", "enter", "s")
        await screen.until("by run", "083451")
        assert [line[17:23] for line in screen.lines[3:6]] == ["083409", "083451", "083515"]
        await screen.press("S")
        assert screen.lines[3][17:23] == "083515"
        await screen.press("h")
        await screen.until("without ended", "1 hidden")

    on_screen(shown.source, steps)


def test_tabs_and_column_heads_take_clicks(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.click("#bar", offset=(screen.lines[0].index("Events") + 2, 0))
        await screen.until("events", "of all runs")
        await screen.pilot.click("#bar", offset=(screen.lines[0].index("1 Over"), 0))
        await screen.until("WHY, WHAT NOW")
        head = screen.lines[2].index("STEP")
        await screen.pilot.click("HeadBar", offset=(head + 1, 0))
        await screen.until("by step")
        assert "599/600" in screen.lines[3]
        await screen.pilot.click("HeadBar", offset=(head + 1, 0))
        assert "119/600" in screen.lines[3]

    on_screen(shown.source, steps)


def test_the_keys_at_the_foot_are_those_of_the_page_and_take_clicks(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        assert screen.lines[-1].strip() == "Enter Open  / Filter  ? Keys  q Quit"
        await screen.pilot.click("KeyLine", offset=(screen.lines[-1].index("Filter") + 2, 0))
        await screen.until("Show only runs with")
        await screen.press("escape", "3")
        await screen.until("a Acknowledge", "s Silence", "q Quit")
        assert "Filter" not in screen.lines[-1]

    on_screen(shown.source, steps)


def test_a_wide_screen_has_the_selected_run_beside_the_list(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.until("to do   STOP (probable): the program raised", "exitcode : 1", "step 0")
        await screen.press("down")
        await screen.until("to do   GO_ON (probable)", "NaN or Inf", "Eval: 100%")
        await screen.pilot.resize_terminal(150, 40)
        await screen.settle()
        assert "to do   GO_ON" not in screen.text

    on_screen(shown.source, steps, size=(200, 50))


def test_inputs_without_a_run_are_listed_with_their_state(shown: Shown) -> None:
    inputs = (
        InputView(name="later.log", state="waiting"),
        InputView(name="secret.log", state="unreadable"),
        InputView(name="novel.txt", state="no training recognised", lines=2310),
    )
    shown.snapshot = shown.snapshot.model_copy(update={"inputs": inputs})

    async def steps(screen: Screen) -> None:
        await screen.until(
            "waiting: no such file yet", "unreadable", "2,310 lines and no training recognised"
        )
        await screen.press("G", "enter")  # an input is no run: nothing opens
        await screen.until("WHY, WHAT NOW")

    on_screen(shown.source, steps)


def test_the_palette_has_runs_and_the_keys_of_the_page(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("ctrl+p", *"run train_20261121_083409", "enter")
        await screen.until("step 599/600")
        await screen.press("ctrl+p", *"log axis")
        await screen.until("linear or logarithmic")
        await screen.press("enter")
        await screen.until("log")

    on_screen(shown.source, steps)


def test_keys_and_theme_come_from_the_configuration(shown: Shown) -> None:
    look = Look(theme="textual-light", keys={"overview.hide-ended": "Z", "everywhere.keys": "f1"})

    async def steps(screen: Screen) -> None:
        assert screen.app.theme == "textual-light"
        await screen.press("Z")
        await screen.until("without ended")
        await screen.press("f1")
        await screen.until("Everywhere", "f1")

    on_screen(shown.source, steps, look=look)


@pytest.mark.parametrize(
    ("ranks", "message", "place"),
    [
        ("0-3", "IndexError: x", " at step 119, ranks 0-3"),
        ("0,2,4,6,8,10", "IndexError: x", " at step 119, ranks 0,2,4,6,8,10"),
        ("0,2,4,6,8,10,12", "IndexError: x", " at step 119"),  # 15 characters hide what to do
        ("", "IndexError: x", " at step 119"),
        ("0-3", "NaN at step 7", ", ranks 0-3"),
    ],
)
def test_a_cause_of_several_ranks_names_them_if_they_are_short(
    read_all: Snapshot, ranks: str, message: str, place: str
) -> None:
    run = next(run for run in read_all.runs if run.name == CRASHED)
    (incident,) = (each for each in read_all.incidents if each.run == CRASHED)
    root = incident.root.model_copy(update={"rank": None, "ranks": ranks, "message": message})
    changed = incident.model_copy(update={"root": root, "last_step": 119})
    snapshot = read_all.model_copy(update={"incidents": (changed,)})
    found = why(run.model_copy(update={"failed_rank": None}), snapshot)
    assert (found.what, found.where) == (message, place)
    own = why(run.model_copy(update={"failed_rank": 3}), snapshot)
    assert own.where.endswith("rank 3")


@pytest.mark.parametrize("width", [1, 20, 60, 100, 160, 300])
def test_columns_fill_a_list_and_leave_reasons_their_room(fleet: Fleet, width: int) -> None:
    runs = [fleet.run("a" * 40), fleet.run("b")]
    layout = Layout.of(width, runs, "")
    cells = 3 + layout.name + 1 + layout.why + 1 + sum(each.width + 1 for each in layout.columns)
    assert cells <= max(width + 1, 7)
    assert 1 <= layout.name <= 32
    assert layout.why >= (42 if layout.columns else 1)
    assert ("STATE" in [each.title for each in layout.columns]) is (width >= 160)
    if width == 1:
        assert (layout.name, layout.why, layout.columns) == (1, 1, ())
