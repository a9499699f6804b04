"""A run's state changes as the table of moves says, in each state, and in no other way."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.names import RUN_STATES
from ldlm_monitor.judge.run.run_states import ENDS, MOVES, PHASES, MoveName
from ldlm_monitor.judge.run.stall import Stall
from tests.judge.run.run_script import (
    Happening,
    Script,
    bars,
    end_of_input,
    epochs,
    evaluation_bar,
    gone,
    run,
    says,
    silence,
    uncaught_exception,
)


def training() -> Script:
    """A run that took 100 of 1,000 steps, one a second."""
    return run() >> says("run_started") >> bars(0, 100, total=1000) << "running"


def in_state(state: str) -> Script:
    """A run in that state."""
    if state == "starting":
        return run() >> says("run_started") << "starting"
    reached: dict[str, tuple[Happening, ...]] = {
        "running": (),
        "evaluating": (says("eval_started"),),
        "checkpointing": (says("checkpoint_started"),),
        "stalled": (silence(31),),
        "crashed": (uncaught_exception(), silence(11)),
        "killed": (says("slurm_cancelled", "warning"), silence(4)),
        "finished": (says("run_finished"),),
        "ended": (gone(),),
    }
    script = training()
    for each in reached[state]:
        script >> each
    return script << state


HAPPENINGS: dict[MoveName, tuple[Happening, ...]] = {
    "launch": (silence(5), says("run_started")),
    "step": (silence(5), bars(200, 201, total=1000)),
    "sign of life": (evaluation_bar(),),
    "evaluation": (says("eval_started"),),
    "checkpoint": (says("checkpoint_started"),),
    "end of a pause": (says("checkpoint_saved"),),
    "silence": (silence(700),),
    "crash": (says("elastic_failure_table", "error", root_rank=1, root_exitcode=1), silence(0.1)),
    "kill": (says("slurm_cancelled", "warning"), silence(3.1)),
    "finish": (says("run_finished"),),
    "loss": (gone(),),
}
"""What moves a run by each row of the table."""


def test_every_row_has_a_happening_and_every_state_is_reached() -> None:
    assert HAPPENINGS.keys() == MOVES.keys()
    assert {move.to for move in MOVES.values()} - {None} == {*RUN_STATES}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("state", sorted(PHASES))
def test_a_run_moves_as_its_row_says(state: str, name: MoveName) -> None:
    script, move = in_state(state), MOVES[name]
    for each in HAPPENINGS[name]:
        script >> each
    script << ((move.to or state) if state in move.leaves else state)


@pytest.mark.parametrize("name", [name for name in MOVES if name != "silence"])
def test_a_stalled_run_moves_as_from_the_phase_in_which_it_stalled(name: MoveName) -> None:
    script = in_state("stalled")
    for each in HAPPENINGS[name]:
        script >> each
    script << (MOVES[name].to or "running")


def one_move() -> set[tuple[str, str]]:
    found = {(state, move.to or state) for move in MOVES.values() for state in move.leaves}
    back = {("stalled", move.to or phase) for move in MOVES.values() for phase in PHASES}
    return found | back | {(state, state) for state in RUN_STATES}


@given(st.lists(st.sampled_from([*chain(*HAPPENINGS.values())]), max_size=12))
def test_whatever_happens_no_other_move_is_made(happenings: list[Happening]) -> None:
    script, allowed = training(), one_move()
    for each in happenings:
        before = script.life.state
        script >> each
        assert (before, script.life.state) in allowed


class TestWhatIsForgotten:
    def test_a_launch_forgets_the_steps_so_that_the_first_is_progress_again(self) -> None:
        script = training() >> says("run_started") >> bars(0, 1) << "running"
        assert script.life.progress_step == 0

    def test_a_launch_forgets_the_words_that_the_training_before_was_done(self) -> None:
        script = training() >> says("run_finished", confirmed_by="silence")
        script >> says("run_started") >> bars(0, 1) >> silence(31) << "stalled"

    def test_a_launch_forgets_an_end_that_was_not_certain(self) -> None:
        training() >> uncaught_exception() >> says("run_started") >> silence(20) << "starting"

    def test_a_step_forgets_the_end_and_the_line_that_showed_it(self) -> None:
        script = in_state("crashed")
        assert script.life.end_evidence is not None
        script >> silence(5) >> bars(100, 101) << "running"
        assert (script.life.ended_at, script.life.end_evidence) == (None, None)

    def test_the_line_of_an_earlier_crash_is_not_that_of_a_later_end(self) -> None:
        script = in_state("crashed") >> says("run_started") >> bars(0, 50)
        script >> says("run_finished") << "finished"
        assert script.life.end_evidence is None

    def test_a_step_forgets_the_pause_that_explained_it(self) -> None:
        script = training() >> says("checkpoint_saved")
        assert script.life.is_paused
        script >> bars(100, 101) << "running"
        assert not script.life.is_paused

    def test_a_sign_of_life_forgets_the_silence_before_it(self) -> None:
        in_state("stalled") >> evaluation_bar() << "running" >> silence(29) << "running"

    def test_words_of_the_end_do_not_undo_a_doubtful_crash(self) -> None:
        script = training() >> uncaught_exception() >> says("run_finished") << "running"
        script >> silence(11) << "crashed"


class TestRowsThatHoldInFewStates:
    def test_a_checkpoint_that_is_loaded_before_the_first_step_begins_no_training(self) -> None:
        in_state("starting") >> says("checkpoint_saved") << "starting"

    @pytest.mark.parametrize("state", ["finished", "crashed"])
    def test_a_kill_of_what_is_over_is_its_teardown(self, state: str) -> None:
        in_state(state) >> says("slurm_cancelled", "warning") >> silence(4) << state

    def test_a_crash_after_the_words_of_the_end_is_one(self) -> None:
        in_state("finished") >> HAPPENINGS["crash"][0] >> silence(1) << "crashed"

    @pytest.mark.parametrize("state", ["crashed", "killed"])
    def test_words_of_the_end_do_not_undo_another_one(self, state: str) -> None:
        in_state(state) >> says("run_finished") << state


@pytest.mark.parametrize("state", ENDS)
def test_an_end_lasts_whatever_time_passes(state: str) -> None:
    in_state(state) >> silence(1e6) << state >> end_of_input() << state


def test_the_readme_of_the_script_is_true() -> None:
    run() >> bars(0, 100) >> silence(31) << "stalled"


class TestDefects:
    def test_words_of_the_end_count_though_they_come_when_it_was_late_already(self) -> None:
        script = training() >> silence(100) << "stalled"
        script >> says("run_finished", confirmed_by="silence")
        assert (script.life.due() or script.now + 1) <= script.now  # a timer that has no record
        script >> silence(1) << "finished"

    def test_a_longer_limit_holds_for_a_run_that_stalled(self) -> None:
        script = in_state("stalled")
        script.life.set_stall(Stall(floor_seconds=1000))
        script >> silence(1) << "running" >> silence(1000) << "stalled"

    def test_a_relaunch_that_only_a_falling_step_shows_counts_its_first_row(self) -> None:
        script = run() >> says("run_started") >> epochs(0, 6, of=10)
        script >> uncaught_exception() >> silence(11) << "crashed"
        script >> silence(60) >> epochs(0, 10, of=10) >> end_of_input() << "finished"
