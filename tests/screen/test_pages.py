"""Every page and key, on real trainings."""

import json
from pathlib import Path

import pytest
from textual.scrollbar import ScrollBar, ScrollBarRender

from ldlm_monitor.base.text.format import local_time
from ldlm_monitor.logs.source import log_parts
from ldlm_monitor.screen.log_page import LogPage
from ldlm_monitor.screen.metric_chart import MetricChart
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.notify.silences import Silences
from tests.screen.screens import Screen, Shown, on_screen, read

CRASHED, NAN = "train_20261121_083515", "train_20261121_083451"


@pytest.fixture
def one_run(shown: Shown) -> Shown:
    runs = tuple(run for run in shown.snapshot.runs if run.name == NAN)
    shown.snapshot = shown.snapshot.model_copy(update={"runs": runs})
    return shown


def test_the_overview_has_a_row_for_each_run_the_worst_first(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        text = await screen.until("✕")
        rows = [line for line in text.splitlines() if line[1:2] in ("◆", "△", "●")]
        assert [("IndexError" in row, "crashed" in row) for row in rows[:1]] == [(True, True)]
        assert "119, rank 1 → mend the error" in rows[0]
        assert "loss NaN or Inf at step 35 (over) → nothing to do" in rows[1]
        assert "299/300" in rows[1]
        assert "● finished" in rows[2]

    on_screen(shown.source, steps, size=(158, 24))


def test_one_run_opens_straight_into_its_page(one_run: Shown) -> None:
    async def steps(screen: Screen) -> None:
        text = await screen.until("step 299/300", "✕")
        assert "the loss is NaN or infinite" in text

    on_screen(one_run.source, steps)


def test_while_the_logs_are_read_the_screen_is_there_and_says_how_far(shown: Shown) -> None:
    whole, to = shown.snapshot, shown.snapshot.at - 7200
    unjudged = {"health": "READING", "judged_to": to}
    first_read = next(run for run in whole.runs if run.health == "HEALTHY").model_copy(
        update=unjudged
    )
    reading = {"runs": (first_read,), "reading": 0.43, "judged_to": to}
    shown.snapshot = whole.model_copy(update=reading)
    until = f"judged up to {local_time(to)}"

    async def steps(screen: Screen) -> None:
        assert f"reading, 43 %: {until}" in screen.lines[0]
        assert until in screen.lines[3]
        assert "1 run " in screen.text  # which is on the overview: others may come
        shown.snapshot = whole
        screen.app.look()
        await screen.settle()
        assert "judged up to" not in screen.text
        assert "▶◆ crashed" in screen.lines[3]  # the cursor, as nobody has moved it

    on_screen(shown.source, steps)


def test_enter_opens_a_run_and_escape_goes_back(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("enter")
        await screen.until("TrainingCrashed", "step 119/600")
        await screen.press("escape")
        await screen.until("3 runs")

    on_screen(shown.source, steps)


def test_an_alert_leads_to_its_very_line(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("3")
        text = await screen.until("TrainingCrashed", "Read the first traceback")
        assert "2 firing" in text
        await screen.press("enter")
        text = await screen.until("Traceback (most recent call last)")
        (row,) = [line for line in text.splitlines() if line.startswith("▶")]
        assert "[rank1]: Traceback" in row
        assert row.split()[1] == "18"

    on_screen(shown.source, steps)


def test_an_alert_is_acknowledged_and_silenced(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("3", "a")
        await screen.until("acknowledged by")
        await screen.press("down", "s")
        await screen.until("for how long?")
        await screen.press("enter")
        await screen.until("silenced until")

    on_screen(shown.source, steps)
    kept = shown.silences.listing(0.0)
    assert [ack["alert"] for ack in kept["acks"]] == ["TrainingCrashed"]
    (silence,) = kept["silences"]
    assert {"name": "alertname", "value": "NonFiniteLoss"}.items() <= silence["matchers"][0].items()


def test_the_cursor_stays_on_its_alert_when_another_fires_above_it(shown: Shown) -> None:
    alerts = sorted(shown.snapshot.alerts, key=lambda alert: alert.name == "TrainingCrashed")
    older = [alert.model_copy(update={"active_at": alert.active_at - 60}) for alert in alerts]
    other = next(alert for alert in older if alert.name == "NonFiniteLoss")

    async def steps(screen: Screen) -> None:
        await screen.press("3")
        await screen.until("1 firing")
        valued = other.model_copy(update={"value": 7.0})
        fired = (alerts[-1], valued)
        shown.snapshot = shown.snapshot.model_copy(update={"version": 10**6, "alerts": fired})
        await screen.until("2 firing")
        await screen.press("a")
        await screen.until("acknowledged by")

    shown.snapshot = shown.snapshot.model_copy(update={"alerts": (other,)})
    on_screen(shown.source, steps)
    (ack,) = shown.silences.listing(0.0)["acks"]
    assert ack["alert"] == "NonFiniteLoss"


def test_the_chart_zooms_pans_and_leads_to_the_line(one_run: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.until("step 299/300", "✕")
        chart = screen.app.query_one(MetricChart)
        whole = chart.chart.view.within(*chart.chart.span())
        await screen.press("plus", "plus", "shift+left")
        start, end = chart.chart.view.within(*chart.chart.span())
        assert (end - start) == pytest.approx((whole[1] - whole[0]) / 4)
        assert start < (whole[0] + whole[1]) / 2
        await screen.until("zoomed")
        await screen.press("l", "s")
        await screen.until("log", "smoothed 0.9")
        await screen.press("0", "left", "left", "enter")
        await screen.until("training_log.jsonl", '"step": 29')

    on_screen(one_run.source, steps)


def test_components_are_toggled(one_run: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.until("✕")
        await screen.press("c")
        await screen.until("loss_latent")
        await screen.press("c", "c")
        await screen.until(" loss loss_latent loss_text")

    on_screen(one_run.source, steps)


def test_the_mouse_zooms_and_sets_the_cursor(one_run: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.until("✕")
        chart = screen.app.query_one(MetricChart)
        await screen.pilot.click(MetricChart, offset=(60, 4))
        assert chart.chart.cursor == pytest.approx(chart.chart.step_at(60, chart.size.width))
        chart.action_zoom(0.5, chart.chart.cursor)
        assert chart.chart.view.start is not None

    on_screen(one_run.source, steps)


def test_a_log_opens_at_its_end(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("down", "enter", "4")
        await screen.until("following", "Learning rate: 3.95e-04")
        assert "Starting MMDiT" not in screen.text

    on_screen(shown.source, steps, size=(80, 24))


def test_the_log_is_searched_both_ways(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("down", "4")
        await screen.until("following")
        await screen.press("home", "slash")
        await screen.until("Search in this log")
        await screen.press(*"invalid loss", "enter")
        first = await screen.until("▶", "Invalid loss", "/invalid loss")
        await screen.press("n")
        await screen.press("N")
        cursor = [line for line in screen.lines if line.startswith("▶")]
        assert cursor == [line for line in first.splitlines() if line.startswith("▶")]

    on_screen(shown.source, steps)


def test_a_search_goes_on_where_one_question_ends(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_parts, "SEARCHED_BYTES", 500)

    async def steps(screen: Screen) -> None:
        await screen.press("4")
        await screen.until("following")
        page = screen.app.query_one(LogPage)
        page._search.text = "Starting MMDiT"
        await screen.press("N")
        await screen.until("▶       6", "*** Starting MMDiT")

    on_screen(shown.source, steps)


def test_events_are_jumped_to_one_after_the_other(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("4")
        await screen.until("following")
        await screen.press("E")
        await screen.press("E")
        page = screen.app.query_one(LogPage)
        assert not page.follows
        before = page.lines[page.rows.cursor].line.offset
        await screen.press("e")
        assert page.lines[page.rows.cursor].line.offset > before

    on_screen(shown.source, steps)


def test_who_reads_is_not_moved_by_what_is_appended(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("enter", "4", "home")
        page = screen.app.query_one(LogPage)
        assert not page.follows
        before = screen.lines[2:-1]
        shown.snapshot = shown.snapshot.model_copy(update={"version": 10**6})
        screen.app.look()
        await screen.settle()
        assert screen.lines[2:-1] == before

    on_screen(shown.source, steps)


def test_a_long_log_is_read_on_where_the_cursor_goes(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"step {step} loss 2.5\n" for step in range(1, 1501)))
    snapshot = read(str(log))
    silences = Silences(tmp_path / "silences.sqlite")

    async def steps(screen: Screen) -> None:
        await screen.press("4")
        await screen.until("following", "step 1500 loss")
        page = screen.app.query_one(LogPage)

        def here() -> int | None:
            return page.lines[page.rows.cursor].line.line

        await screen.press("home")
        first = 1500 - len(page.lines) + 1
        while (line := here()) != 1:
            assert f"step {line} loss" in screen.text
            before = line
            await screen.press("k")
            assert here() == before - 1
            await screen.press("home")
        assert first > 1
        await screen.press("end", "j", "j")
        assert 1 < (here() or 0) < 1500
        while here() != 1500:
            before = here() or 0
            await screen.press("end")
            assert (here() or 0) > before
        assert "step 1500 loss" in screen.text

    on_screen(LocalSource(lambda: snapshot, silences, "a.log"), steps)
    silences.close()


def test_files_of_a_run_are_merged_by_time(tmp_path: Path) -> None:
    """A line without a time stays behind the line before it."""
    rows = '{{"step": {step}, "loss": 2.5, "time": {time}}}\n'
    for rank in (0, 1):
        lines = [rows.format(step=step, time=1.7e9 + 10 * step + rank) for step in range(1, 20)]
        lines.insert(3, f"no time of rank {rank}\n")
        (tmp_path / f"health_rank{rank}.jsonl").write_text("".join(lines), encoding="utf-8")
    snapshot = read(f"{tmp_path}/*.jsonl", run="r")
    silences = Silences(tmp_path / "silences.sqlite")

    async def steps(screen: Screen) -> None:
        await screen.press("4", "m")
        await screen.until("2 files merged")
        lines = [placed.line for placed in screen.app.query_one(LogPage).lines]
        times = [line.time for line in lines if line.time is not None]
        assert len(times) == 38
        assert times == sorted(times)
        (index,) = (i for i, line in enumerate(lines) if "of rank 1" in line.text)
        assert lines[index - 1].time == 1.7e9 + 31

    on_screen(LocalSource(lambda: snapshot, silences, "r"), steps)
    silences.close()


def test_the_page_of_a_run_shows_the_batch_at_which_its_loss_broke(tmp_path: Path) -> None:
    event = {"type": "event", "kind": "batch_ids", "severity": "warning", "time": 1.7e9 + 30}
    row = "the batch of step 30 on rank 0 (loss NaN): 2 rows: \x1b[31mdoc-7, [b]doc-8"
    rows = [
        {"schema": "ldlm.health/1", "type": "run", "run": "r", "rank": 0, "time": 1.7e9},
        *({"type": "step", "step": n, "time": 1.7e9 + n, "loss": 2.5} for n in range(1, 30)),
        {**event, "message": row, "fields": {"family": "numerics", "role": "evidence"}},
        {"type": "step", "step": 30, "time": 1.7e9 + 30, "loss": "NaN"},
    ]
    path = tmp_path / "health_rank0.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    snapshot = read(str(path), run="r")
    silences = Silences(tmp_path / "silences.sqlite")

    async def steps(screen: Screen) -> None:
        await screen.press("2")
        text = await screen.until("NonFiniteLoss", "the batch of step 30 on rank 0")
        assert "doc-7, [b]doc-8" in text

    on_screen(LocalSource(lambda: snapshot, silences, "r"), steps)
    silences.close()


def test_a_log_is_filtered_by_rank_and_severity_and_shows_bars_on_wish(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("4")
        await screen.until("following", "file 1 of 2")
        await screen.press("v", "v")
        await screen.until("error and worse", "failed (exitcode: 1)")
        assert "World size" not in screen.text
        await screen.press("v", "r")
        await screen.until("rank 0")
        await screen.press("r")
        await screen.until("rank 1")
        assert "* World size" not in screen.text
        await screen.press("r", "b")
        await screen.until("  bars")
        page = screen.app.query_one(LogPage)
        first = page.path
        await screen.press("right_square_bracket")
        await screen.until("file 2 of 2")
        await screen.press("left_square_bracket")
        await screen.until("file 1 of 2")
        assert page.path == first

    on_screen(shown.source, steps)


def test_another_run_is_one_key_away(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("2")
        await screen.until("step 119/600")
        await screen.press("right_square_bracket")
        await screen.until("step 299/300")
        await screen.press("left_square_bracket")
        await screen.until("step 119/600")

    on_screen(shown.source, steps)


def test_events_of_the_chosen_run_only(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("5")
        before = (await screen.until("events", "of all runs")).splitlines()[1]
        await screen.press("o")
        await screen.until("events", "of train_2")
        assert screen.lines[1] != before

    on_screen(shown.source, steps)


def test_the_palette_knows_the_pages(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("ctrl+p")
        await screen.press(*"alerts", "enter")
        await screen.until("2 firing", "to do")

    on_screen(shown.source, steps)


def test_a_line_is_copied_as_it_is(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("3", "enter")
        await screen.until("Traceback")
        await screen.press("y")
        page = screen.app.query_one(LogPage)
        assert screen.app.clipboard == page.lines[page.rows.cursor].line.text
        assert screen.app.clipboard.startswith("[rank1]: Traceback")

    on_screen(shown.source, steps)


def test_events_show_tracebacks_line_by_line(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("5", "v")
        await screen.until("errors")
        for _ in range(8):
            if "IndexError" in screen.lines[-14]:
                break
            await screen.press("up")
        await screen.until("traceback", 'File "/srv/ldlm/examples/small_training.py"')

    on_screen(shown.source, steps, size=(120, 40))


def test_question_mark_lists_the_keys(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("question_mark")
        await screen.until("Everywhere", "overview, run, alerts, log, events")
        await screen.press("escape")
        assert "Everywhere" not in screen.text

    on_screen(shown.source, steps)


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
def test_the_end_has_the_daemons_exit_codes(shown: Shown, key: str, code: int) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press(key)

    assert on_screen(shown.source, steps) == code


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60)])
def test_every_page_fits_every_size(shown: Shown, size: tuple[int, int]) -> None:
    async def steps(screen: Screen) -> None:
        for page in "12345":
            await screen.press(page)
            assert len(screen.lines) == size[1]
            assert "1 Overview" in screen.lines[0]

    on_screen(shown.source, steps, size=size)


def test_a_window_that_grows_and_shrinks_shows_the_same(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("2")
        await screen.until("step 119/600")
        before = screen.text
        for size in ((60, 20), (150, 50), (120, 36)):
            await screen.pilot.resize_terminal(*size)
            await screen.settle()
        assert screen.text == before

    on_screen(shown.source, steps)


def test_a_screen_in_ascii_leaves_no_scrollbar_to_the_next(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.settle()

    on_screen(shown.source, steps, ascii_only=True)
    on_screen(shown.source, steps)
    assert ScrollBar.renderer is ScrollBarRender


def test_ascii_draws_nothing_else(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        for page in "12345":
            await screen.press(page)
            body = "\n".join(screen.lines[:-1])
            assert body.isascii(), [c for c in body if not c.isascii()]

    on_screen(shown.source, steps, ascii_only=True)
