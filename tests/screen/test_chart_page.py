"""The chart of any quantity, detail on zoom, several runs in one picture; search; the digest."""

import math
from pathlib import Path

from ldlm_monitor.screen.dialogs import AWAY_SECONDS
from ldlm_monitor.screen.metric_chart import MetricChart
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.notify.silences import Silences
from tests.screen.screens import NOW, Screen, Shown, on_screen, read
from tests.screen.test_triage import CRASHED, NAN


def test_zooming_into_a_long_run_shows_its_own_steps(tmp_path: Path) -> None:
    log = tmp_path / "long.jsonl"
    rows = (f'{{"step": {step}, "loss": {2 + math.sin(step)}}}\n' for step in range(1, 20_001))
    log.write_text("".join(rows))
    snapshot = read(str(log), run="r")
    silences = Silences(tmp_path / "silences.sqlite")

    async def steps(screen: Screen) -> None:
        await screen.press("2")
        await screen.until("step 2000")
        chart = screen.app.query_one(MetricChart)
        coarse = len(chart.chart.curves[0][0].steps)
        await screen.press(*["plus"] * 6)
        await screen.settle()
        start, end = chart.chart.view.within(*chart.chart.span())
        drawn = chart.chart.curves[0][0].steps
        inside = [step for step in drawn if start <= step <= end]
        assert len(inside) > (end - start) * 0.9 > coarse / 10
        await screen.press("0")
        await screen.settle()
        assert len(chart.chart.curves[0][0].steps) == coarse

    on_screen(LocalSource(lambda: snapshot, silences, "long"), steps)
    silences.close()


def test_any_quantity_fills_the_page(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("2")
        await screen.until("step 119/600", " loss")
        await screen.press("v", "z")
        await screen.until(" learning_rate")
        assert "step 119/600" not in screen.text
        await screen.press("z", "V")
        await screen.until("step 119/600", " loss")

    on_screen(shown.source, steps)


def test_the_quantities_go_round_in_both_directions(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("2")
        await screen.until("step 119/600", " loss")
        chart = screen.app.query_one(MetricChart)

        async def round_by(key: str) -> list[str]:
            seen = [chart.metric]
            while len(seen) < 2 or chart.metric != seen[0]:
                await screen.press(key)
                seen.append(chart.metric)
            return seen

        forth, back = await round_by("v"), await round_by("V")
        assert back == forth[::-1]
        assert len({*forth}) == len(forth) - 1 > 3

    on_screen(shown.source, steps)


def test_picked_runs_are_drawn_together_by_step_and_by_time(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("space", "space", "1", "g")
        await screen.until("2 picked")
        await screen.press("2")
        chart = screen.app.query_one(MetricChart)
        await screen.until(f" {NAN}")
        assert len(chart.chart.curves) == 2
        await screen.press("x")
        await screen.until("by time", "10s")
        assert chart.chart.curves[1][0].steps[-1] < 60  # seconds since its first step

    on_screen(shown.source, steps)


def test_a_search_goes_round_the_end_and_counts(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("down", "4")
        await screen.until("following", "Eval: 100%")
        await screen.press("G", "slash", *"invalid loss", "enter")
        await screen.until("1 of 3")
        await screen.press("n")
        await screen.until("2 of 3")
        await screen.press("N", "N")
        await screen.until("3 of 3")

    on_screen(shown.source, steps)


def test_a_long_line_scrolls_sideways_and_shows_whole(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("4", "home")
        await screen.until("Working directory")
        await screen.press("right")
        assert "Working directory" not in screen.text
        await screen.press("left", "w")
        await screen.until("Working directory")
        assert screen.app.query_one("#whole-line").display

    on_screen(shown.source, steps, size=(60, 24))


def test_who_comes_back_sees_what_happened(shown: Shown) -> None:
    now = [NOW - 120.0]

    async def steps(screen: Screen) -> None:
        await screen.press("j")
        assert "Since you left" not in screen.text
        now[0] += AWAY_SECONDS + 60
        await screen.press("j")
        now[0] += 1.0  # pages are drawn once a second; a timer may have drawn this second's
        screen.app.look()
        text = await screen.until("Since you left", "to acknowledge", "TrainingCrashed")
        assert CRASHED in text
        await screen.press("escape")
        assert "Since you left" not in screen.text

    on_screen(shown.source, steps, clock=lambda: now[0])
