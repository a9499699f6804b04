"""The states of a run, by its records and the time."""

from dataclasses import replace
from typing import Any

import pytest

from ldlm_monitor.base.records import Event, Position, Sample
from ldlm_monitor.judge.run.lifecycle import Lifecycle
from ldlm_monitor.judge.run.stall import Stall

BARS, ROWS = "train_node0.log", "training_log.jsonl"


def position(path: str = BARS) -> Position:
    return Position(path, 1, 0)


def sample(step: int | None, path: str = BARS, **values: float) -> Sample:
    return Sample(run="r", step=step, values=values, position=position(path))


def event(kind: str, severity: Any = "info", *, rank: int | None = None, **fields: Any) -> Event:
    return Event(
        kind=kind,
        severity=severity,
        run="r",
        rank=rank,
        node="0",
        message=kind,
        fields=fields,
        position=position(),
    )


def started() -> Lifecycle:
    return Lifecycle(0.0, Stall(), position())


def observe(life: Lifecycle, sample: Sample, at: float) -> bool:
    return life.observe([life.steps.rows(sample, (at,), timed=True)])


def running(steps: int = 100) -> Lifecycle:
    """A run that took one step a second; the last at `steps - 1` seconds."""
    life = started()
    for step in range(steps):
        observe(life, sample(step), float(step))
    return life


def sigterm(**fields: Any) -> Event:
    return event("elastic_sigterm_peer", signal="SIGTERM", role="victim", **fields)


def at_time(each: tuple[float, Event]) -> float:
    return each[0]


def traceback(rank: int | None = None) -> Event:
    return event("python_exception", "error", rank=rank, role="root", traceback="Traceback ...")


class TestStalls:
    def test_a_run_without_a_new_step_stalls_at_its_limit_and_not_before(self) -> None:
        life = running()
        assert life.due() == 99 + 30
        life.tick(129.0)
        assert life.state == "running"
        life.tick(129.1)
        assert life.state == "stalled"

    def test_between_ordinary_steps_a_stall_is_a_hang_and_needs_no_other_timer(self) -> None:
        life = running(93)
        assert life.hang_limit == life.stall_limit == 30
        life.tick(122.1)
        assert life.due() is None
        observe(life, sample(93), 200.0)
        assert life.due() == 230

    def test_at_the_first_of_a_round_number_of_steps_a_hang_is_reported_by_another_timer(
        self,
    ) -> None:
        life = running(1000)
        assert (life.stall_limit, life.hang_limit) == (30, 1800)
        life.tick(1029.1)
        assert (life.state, life.due()) == ("stalled", 999 + 1800)
        life.tick(2799.1)
        assert life.due() is None
        observe(life, sample(1000), 3000.0)
        assert life.pace.expected_pause(1999) == 2 * 2001, "what it took once may be twice as long"

    def test_the_first_pause_of_each_kind_is_waited_for(self) -> None:
        life = running()
        life.observe_event(event("eval_started"), 99.5)
        assert (life.stall_limit, life.hang_limit) == (600.5, 1800)
        observe(life, sample(101), 300.0)
        assert life.hang_limit == 30, "an ordinary step"
        life.observe_event(event("eval_started"), 300.0)
        assert life.hang_limit == life.stall_limit == 402
        life.observe_event(event("results"), 300.0)
        observe(life, sample(102), 302.0)
        life.observe_event(event("results", message="Test accuracy: 0.5"), 303.0)
        assert (life.stall_limit, life.hang_limit) == (30, 1800), "an epoch may be over"

    def test_at_a_round_number_of_steps_another_pause_may_follow_a_save(self) -> None:
        life = running(500)
        for step in range(500, 1000):
            if step in (500, 999):
                life.observe_event(event("checkpoint_saved"), step + 0.5)
            observe(life, sample(step), step + 1.0)
        life.observe_event(event("checkpoint_saved"), 1001.0)
        assert (life.stall_limit, life.hang_limit) == (31, 1800)

    def test_an_evaluation_that_is_logged_when_it_is_over_is_expected_after_as_many_steps(
        self,
    ) -> None:
        life = running(70)
        observe(life, sample(69, eval_loss=2.0), 109.0)
        for step in range(70, 140):
            observe(life, sample(step), step + 40.0)
        assert (life.stall_limit, life.hang_limit) == (2 * 41, 2 * 41)
        observe(life, sample(140), 181.0)
        assert life.stall_limit == 30

    def test_words_of_an_end_are_waited_for_no_longer_than_a_stall(self) -> None:
        life = running(1000)
        life.tick(1100.0)
        assert life.state == "stalled"
        life.observe_event(event("run_finished", confirmed_by="silence"), 1100.0)
        assert life.due() == 999 + 30

    def test_batches_that_are_passed_over_may_take_hours(self) -> None:
        life = Lifecycle(0.0, Stall(), Position("a.log", 1, 0))
        life.observe_event(event("training_plan", steps=1000), 0.0)
        life.observe_event(event("config"), 0.0)
        life.observe_event(event("batches_skipped"), 1.0)
        life.tick(7200.0)
        assert (life.state, life.hang_limit, life.due()) == ("stalled", 21600, 21600)
        life.tick(21600.1)
        assert life.due() is None
        observe(life, sample(1), 22000.0)
        life.observe_event(event("batches_skipped"), 22001.0)
        assert life.hang_limit == life.stall_limit == 44000, "an ordinary step"

    def test_rows_whose_step_never_moves_show_a_life_without_progress(self) -> None:
        life = Lifecycle(0.0, Stall(), Position("a.log", 1, 0))
        for minute in range(60):
            observe(life, sample(0), 60.0 * minute)
        life.tick(3600.0)
        assert (life.state, life.last_progress_at) == ("running", 0.0)
        life.tick(59 * 60 + 600.1)
        assert life.state == "stalled"

    def test_the_users_own_limit_waits_for_no_first_pause(self) -> None:
        life = Lifecycle(0.0, Stall(limit_seconds={"running": 45}), Position("a.log", 1, 0))
        for step in range(1, 1001):
            observe(life, sample(step), float(step))
        assert life.hang_limit == life.stall_limit == 45

    def test_a_redrawn_bar_is_no_progress(self) -> None:
        life = running()
        observe(life, sample(99), 112.0)
        life.tick(130.0)
        assert life.state == "stalled"
        assert life.last_progress_at == 99

    def test_the_next_step_ends_a_stall_and_is_not_learned_as_a_normal_gap(self) -> None:
        life = running()
        life.tick(189.0)
        observe(life, sample(100), 189.0)
        assert life.state == "running"
        assert life.stall_limit == 30

    def test_an_evaluation_of_two_minutes_is_none_even_the_first_time(self) -> None:
        life = running()
        life.observe_event(event("eval_started"), 100.0)
        life.tick(219.0)
        assert life.state == "evaluating"
        life.observe_event(event("eval_finished"), 220.0)
        observe(life, sample(100), 220.0)
        assert life.state == "running"

    def test_a_moving_evaluation_bar_keeps_the_run_alive(self) -> None:
        life = running()
        life.pace.learn_pause("evaluating", 20)
        life.observe_event(event("eval_started"), 100.0)
        for second in range(100, 400, 25):
            observe(life, sample(None, eval_progress=second / 400), float(second))
            life.tick(second + 24.0)
            assert life.state == "evaluating"
        life.tick(375 + 41.0)
        assert life.state == "stalled"

    def test_the_wait_for_a_first_step_is_the_measure_of_the_second(self) -> None:
        """A log with one line in 80 minutes has its first after 80; steps in seconds have not."""
        life = Lifecycle(0.0, Stall(), Position("a.log", 1, 0))
        observe(life, sample(1), 4800.0)
        assert life.stall_limit == 9600
        observe(life, sample(2), 4801.0)
        assert life.stall_limit <= Stall().startup_seconds

    def test_a_checkpoint_pause_is_learned_when_its_message_comes(self) -> None:
        life = running()
        life.observe_event(event("checkpoint_saved"), 124.0)
        observe(life, sample(100), 125.0)
        assert life.pace.longest_pause["checkpointing"] == 26
        assert life.stall_limit == 52

    @pytest.mark.parametrize("logged", ["checkpoint_started", "checkpoint_saved", "eval_started"])
    def test_a_log_that_announces_one_kind_of_pause_may_not_announce_another(
        self, logged: str
    ) -> None:
        life = running(990)
        life.observe_event(event(logged), 989.5)
        for step in range(990, 1001):
            observe(life, sample(step), float(step))
        assert (life.stall_limit, life.hang_limit) == (30, 1800)

    def test_a_finished_run_never_stalls(self) -> None:
        life = running()
        life.observe_event(event("run_finished"), 100.0)
        life.tick(1e6)
        assert life.state == "finished"
        assert life.due() is None

    def test_numbers_without_a_step_are_progress_where_no_step_is_logged(self) -> None:
        life = started()
        for second in range(0, 3000, 10):
            observe(life, sample(None, loss=2.5), float(second))
            life.tick(float(second))
            assert life.state == "running"
        life.tick(2990 + 81.0)
        assert life.state == "stalled"

    def test_a_line_an_epoch_is_allowed_what_its_first_one_took_and_later_what_it_takes(
        self,
    ) -> None:
        life, hour = started(), 3600.0
        for epoch in range(1, 6):
            observe(life, sample(None, loss=2.5), epoch * hour)
            life.tick((epoch + 1) * hour - 1)
            assert life.state == "running"
        life.tick(5 * hour + 2.1 * hour)
        assert life.state == "stalled"

    def test_a_log_that_never_trained_never_stalls(self) -> None:
        life = started()
        life.observe_event(event("nccl_warn", "warning"), 1.0)
        life.tick(1e6)
        assert life.state == "starting"

    def test_inferred_numbers_without_a_position_never_stall(self) -> None:
        life = started()
        for time in range(100):
            observe(life, replace(sample(None, loss=1.0), source="inferred"), float(time))
        life.tick(1e6)
        assert life.state != "stalled"
        observe(life, replace(sample(5, loss=1.0), source="inferred"), 1e6)
        life.tick(2e6)
        assert life.state == "stalled"

    def test_a_run_that_hangs_before_its_first_step_stalls_after_the_start_up_time(self) -> None:
        life = started()
        life.observe_event(event("run_started"), 5.0)
        life.tick(599.0)
        assert life.state == "starting"
        life.tick(601.0)
        assert life.state == "stalled"


class TestResumes:
    def test_a_smaller_step_is_a_resume_and_no_stall(self) -> None:
        life = running()
        observe(life, sample(50), 100.0)
        life.tick(120.0)
        assert life.state == "running"
        assert life.last_progress_at == 100

    def test_a_new_launch_in_the_same_file_starts_over(self) -> None:
        life = running()
        life.observe_event(event("elastic_failure_table", "error", root_rank=1), 100.0)
        life.tick(100.0)
        life.observe_event(event("run_started"), 200.0)
        observe(life, sample(0), 230.0)
        assert (life.state, life.ended_at) == ("running", None)


class TestEndings:
    def test_the_last_rows_of_the_step_log_do_not_revive_a_finished_run(self) -> None:
        life = running()
        life.observe_event(event("run_finished"), 100.0)
        observe(life, sample(98, ROWS), 100.0)
        observe(life, sample(99, ROWS), 104.0)
        assert life.state == "finished"

    def test_the_failure_table_ends_the_run_at_once(self) -> None:
        life = running()
        life.observe_event(traceback(), 100.0)
        life.observe_event(event("elastic_worker_failed", "error", local_rank=1), 100.1)
        table = event("elastic_failure_table", "error", root_rank=1, root_exitcode=1)
        life.observe_event(table, 100.2)
        life.tick(100.2)
        assert life.state == "crashed"
        assert life.end_evidence is not None
        assert life.end_evidence.kind == "python_exception"

    def test_without_a_table_the_workers_own_line_does_after_a_moment(self) -> None:
        life = running()
        life.observe_event(event("elastic_worker_failed", "error", local_rank=1), 100.0)
        life.tick(102.0)
        assert life.state == "running"
        life.tick(103.0)
        assert life.state == "crashed"

    def test_the_exception_that_is_read_after_the_agents_line_is_the_evidence(self) -> None:
        life = running()
        life.observe_event(event("elastic_worker_failed", "error", local_rank=0), 100.0)
        life.observe_event(traceback(rank=1), 100.1)
        life.observe_event(traceback(rank=0), 100.2)
        life.tick(103.0)
        assert life.end_evidence is not None
        assert life.end_evidence.rank == 1

    def test_a_table_that_blames_what_the_agent_terminated_itself_waits_for_another(self) -> None:
        life = running()
        table = event("elastic_failure_table", "error", root_rank=0, root_exitcode=-15)
        life.observe_event(table, 100.0)
        life.tick(100.0)
        assert life.state == "running"
        life.tick(103.0)
        assert life.state == "crashed"

    def test_an_exception_that_only_others_explain_is_an_end_too(self) -> None:
        life = running()
        lost = event(
            "python_exception",
            "error",
            rank=3,
            role="victim",
            exc_type="DistStoreError",
            traceback="Traceback ...",
        )
        life.observe_event(lost, 100.0)
        life.tick(159.0)
        assert not life.ended
        life.tick(160.0)
        assert life.state == "crashed"

    def test_the_first_death_may_be_logged_after_those_it_caused(self) -> None:
        life = running()
        lost = event("nccl_api_error", "critical", rank=3, role="victim", traceback="Traceback ...")
        life.observe_event(lost, 100.0)
        table = event("elastic_failure_table", "error", root_rank=1, root_exitcode=-9)
        life.observe_event(table, 131.0)
        life.tick(131.0)
        assert life.state == "crashed"

    def test_an_exception_that_only_others_explain_may_have_been_caught(self) -> None:
        life = running()
        lost = event("nccl_api_error", "critical", rank=3, role="victim", traceback="Traceback ...")
        life.observe_event(lost, 99.5)
        for step in range(100, 200):
            observe(life, sample(step), float(step))
            life.tick(float(step))
        assert life.state == "running"

    def test_a_traceback_after_which_training_goes_on_was_caught(self) -> None:
        life = running()
        life.observe_event(traceback(), 100.0)
        observe(life, sample(100), 102.0)
        life.tick(111.0)
        assert life.state == "running"

    def test_a_traceback_and_then_silence_is_a_crash(self) -> None:
        life = running()
        life.observe_event(traceback(), 100.0)
        life.tick(110.0)
        assert life.state == "crashed"

    def test_rows_of_the_failing_step_that_arrive_late_do_not_undo_a_crash(self) -> None:
        life = running()
        life.observe_event(traceback(), 100.0)
        observe(life, sample(100, ROWS), 100.5)
        life.tick(110.0)
        assert life.state == "crashed"

    def test_a_file_that_ends_in_a_traceback_ended_in_a_crash(self) -> None:
        life = running()
        life.observe_event(traceback(), 100.0)
        life.finish(100.0)
        assert life.state == "crashed"

    @pytest.mark.parametrize("kind", ["elastic_agent_signaled", "slurm_cancelled"])
    def test_a_signal_from_outside_kills_and_the_teardown_is_no_crash(self, kind: str) -> None:
        life = running()
        life.observe_event(event(kind, "warning"), 100.0)
        life.observe_event(traceback(), 100.1)
        life.tick(104.0)
        assert life.state == "killed"

    def test_a_callback_that_says_the_run_failed_is_believed(self) -> None:
        life = running()
        failed = event("python_exception", "error", rank=2, role="root", status="failed")
        life.observe_event(failed, 100.0)
        life.tick(110.0)
        assert life.state == "crashed"

    def test_noise_at_the_exit_of_a_finished_run_is_no_crash(self) -> None:
        life = running()
        life.observe_event(event("run_finished"), 100.0)
        life.observe_event(traceback(), 101.0)
        life.tick(200.0)
        assert life.state == "finished"

    @pytest.mark.parametrize(
        "word",
        [
            event("elastic_sigterm_peer", "error", signal="SIGINT", role="victim"),
            event(
                "python_exception",
                "error",
                exc_type="KeyboardInterrupt",
                role="victim",
                traceback="x",
            ),
        ],
        ids=["agent", "worker"],
    )
    def test_a_run_that_a_person_interrupts_is_killed_and_did_not_crash(self, word: Event) -> None:
        life = running()
        life.observe_event(word, 100.0)
        life.tick(111.0)
        assert life.state == "killed"

    def test_an_interrupt_that_the_trainer_survives_is_no_end(self) -> None:
        life = running()
        caught = event("python_exception", "error", exc_type="KeyboardInterrupt", role="victim")
        life.observe_event(caught, 100.0)
        observe(life, sample(100), 103.0)
        life.tick(120.0)
        assert life.state == "running"

    def test_the_agent_that_stops_the_survivors_of_a_failure_kills_no_run(self) -> None:
        life = running()
        life.observe_event(event("elastic_sigterm_peer", signal="SIGTERM", role="victim"), 100.0)
        life.tick(115.0)
        assert life.state == "running"

    @pytest.mark.parametrize("status", ["Killed", "Exited with exit code 1", "Bus error"])
    def test_a_task_that_srun_saw_fail_is_a_crash(self, status: str) -> None:
        life = running()
        life.observe_event(event("srun_task_exit", "error", status=status, role="death"), 100.0)
        life.tick(104.0)
        assert life.state == "crashed"

    def test_of_a_time_limit_the_reason_counts_though_the_deaths_are_logged_first(self) -> None:
        life = running()
        life.observe_event(event("srun_task_exit", "error", status="Killed", role="death"), 100.0)
        life.observe_event(event("slurm_cancelled", "warning", reason="TIME LIMIT"), 100.5)
        life.tick(104.0)
        assert life.state == "killed"

    @pytest.mark.parametrize("reason", ["TASK FAILURE", "non-zero exit code or other failure mode"])
    def test_a_step_that_slurm_ends_because_a_task_failed_is_a_crash(self, reason: str) -> None:
        life = running()
        life.observe_event(event("slurm_cancelled", "warning", reason=reason), 100.0)
        life.tick(104.0)
        assert life.state == "crashed"

    @pytest.mark.parametrize(
        "kind", ["nccl_watchdog_terminated", "nccl2_backend_timeout", "cxx_terminate"]
    )
    def test_a_process_that_ends_itself_is_a_crash(self, kind: str) -> None:
        life = running()
        rank = None if kind == "cxx_terminate" else 3  # no prefix is put before libstdc++'s words
        life.observe_event(event(kind, "critical", rank=rank, role="victim"), 100.0)
        life.tick(111.0)
        assert life.state == "crashed"

    def test_a_monitor_that_is_disabled_ends_nothing(self) -> None:
        life = running()
        life.observe_event(event("nccl_monitor_kill", "error", role="root", disabled=True), 100.0)
        life.tick(111.0)
        assert life.state == "running"

    @pytest.mark.parametrize("kind", ["gpu_xid", "host_oom_kill", "host_segfault"])
    def test_a_kernels_log_is_no_run_that_crashes(self, kind: str) -> None:
        life = started()
        life.observe_event(event(kind, "critical", role="root"), 0.0)
        life.tick(1000.0)
        assert life.state == "starting"


class TestRanksThatTellOfThemselves:
    """As those with the callback do: a header with the pid, and an end with a status."""

    def begun(self, ranks: int) -> Lifecycle:
        life = started()
        for rank in range(ranks):
            life.observe_event(event("run_started", rank=rank, pid=100 + rank), 0.0)
        for step in range(100):
            observe(life, sample(step), float(step))
        return life

    def ends(self, life: Lifecycle, rank: int, at: float) -> None:
        life.observe_event(event("run_finished", rank=rank, status="finished"), at)

    def terminated(self, life: Lifecycle, rank: int, at: float) -> None:
        logged = event(
            "python_exception",
            "error",
            rank=rank,
            role="victim",
            status="failed",
            exc_type="SignalException",
            signal="SIGTERM",
        )
        life.observe_event(logged, at)

    def test_a_run_is_finished_when_the_last_of_its_ranks_is(self) -> None:
        life = self.begun(2)
        self.ends(life, 1, 100.0)
        assert life.state == "running"
        self.ends(life, 0, 101.0)
        assert life.state == "finished"

    def test_a_rank_that_hangs_after_another_finished_stalls(self) -> None:
        life = self.begun(2)
        self.ends(life, 1, 100.0)
        life.tick(200.0)
        assert life.state == "stalled"

    def test_what_a_log_says_of_the_end_is_said_for_all(self) -> None:
        life = self.begun(2)
        life.observe_event(event("run_finished", rank=0), 100.0)
        assert life.state == "finished"

    def test_a_rank_that_failed_was_not_caught_by_the_steps_of_another_that_begins_later(
        self,
    ) -> None:
        life = started()
        life.observe_event(event("run_started", rank=3, pid=103), 0.0)
        failed = event("python_exception", "error", rank=3, role="root", status="failed")
        life.observe_event(failed, 1.0)
        for step in range(1, 7):
            observe(life, sample(step, "health_rank0.jsonl"), 1.0 + step)
        life.tick(11.0)
        assert life.state == "crashed"

    def test_a_rank_that_failed_goes_on_by_its_own_steps(self) -> None:
        life = self.begun(1)
        failed = event("python_exception", "error", rank=0, role="root", status="failed")
        life.observe_event(failed, 100.0)
        observe(life, sample(100), 102.0)
        life.tick(111.0)
        assert life.state == "running"

    def test_a_resumed_run_counts_its_ranks_anew(self) -> None:
        life = self.begun(2)
        self.ends(life, 0, 100.0)
        self.ends(life, 1, 100.0)
        life.observe_event(event("run_started", rank=0, pid=200), 300.0)
        self.ends(life, 0, 310.0)
        assert life.state == "finished"

    def test_ranks_that_were_terminated_and_nothing_else_were_killed(self) -> None:
        life = self.begun(2)
        self.terminated(life, 0, 100.0)
        self.terminated(life, 1, 100.0)
        life.tick(120.0)
        assert life.state == "killed"

    def test_ranks_that_were_terminated_because_one_died_do_not_hide_it(self) -> None:
        life = self.begun(3)
        self.terminated(life, 0, 100.0)
        life.observe_event(
            event("elastic_worker_failed", "error", local_rank=2, exitcode=-9), 100.5
        )
        self.terminated(life, 1, 100.6)
        life.tick(120.0)
        assert life.state == "crashed"


def test_a_jump_of_the_clock_leaves_a_caught_exception_its_time_for_a_step() -> None:
    life = running()
    life.observe_event(traceback(), 99.5)
    life.shift(3600.0)
    assert not life.tick(3705.0)
    observe(life, sample(100), 3706.0)
    assert not life.tick(3720.0)
    assert life.state == "running"


def counting(total: int, steps: int, *, stride: int = 1, first: int = 1) -> Lifecycle:
    """A run whose log has `step/total` every `stride` steps, a second each, up to `steps`."""
    life = started()
    for step in range(first, steps + 1, stride):
        observe(life, sample(step, total_steps=total), float(step))
    return life


def gone(alive: int = 0, **found: Any) -> Event:
    """What the probe of a host reports where a process of the run is gone."""
    look = {"pid": 7, "state": "gone", **found}
    return event("exit_without_error", alive=alive, processes=[look], probe=True)


class TestEndsThatNoLineReports:
    """The counters show that the run took all its steps, or the host that its writers are gone."""

    def test_silence_after_the_last_step_is_an_end_and_no_stall(self) -> None:
        life = counting(100, 100)
        assert life.state == "running"
        life.tick(131.0)
        assert (life.state, life.ended_at) == ("finished", 100)

    def test_so_is_the_end_of_a_file(self) -> None:
        life = counting(100, 100)
        life.finish(100.0)
        assert life.state == "finished"

    @pytest.mark.parametrize(
        ("steps", "stride", "first"), [(960, 24, 24), (999, 1, 0), (980, 20, 0)]
    )
    def test_the_last_step_need_not_be_a_logged_one(
        self, steps: int, stride: int, first: int
    ) -> None:
        """A log of every 24th step ends below the total, one that counts from 0 one line early."""
        life = counting(980 if stride == 24 else 1000, steps, stride=stride, first=first)
        life.finish(2000.0)
        assert life.state == "finished"

    @pytest.mark.parametrize(
        ("total", "steps", "stride"), [(1000, 999, 1), (1000, 960, 24), (1000, 900, 100)]
    )
    def test_a_run_that_lacks_a_logged_step_is_not_finished(
        self, total: int, steps: int, stride: int
    ) -> None:
        life = counting(total, steps, stride=stride, first=stride)
        life.tick(1e5)
        assert life.state == "stalled"

    def test_a_count_that_begins_again_is_an_epochs(self) -> None:
        """Its last step is then the end of an epoch, and not of the run."""
        life = started()
        for at in range(300):
            observe(life, sample(at % 100 + 1, total_steps=100), float(at))
        life.finish(300.0)
        assert life.state == "running"

    def declared(self, life: Lifecycle, message: str, at: float) -> None:
        words = event("run_finished", confirmed_by="silence")
        life.observe_event(replace(words, message=message), at)

    def test_a_trainers_words_count_once_nothing_follows(self) -> None:
        life = running()
        self.declared(life, "Training completed in 99 s", 100.0)
        assert life.state == "running"
        life.tick(131.0)
        assert life.state == "finished"

    def test_a_summary_of_the_last_values_may_follow_them(self) -> None:
        life = running()
        self.declared(life, "Training completed in 99 s", 100.0)
        observe(life, sample(100), 100.5)
        life.finish(101.0)
        assert life.state == "finished"

    def test_words_after_which_training_goes_on_were_no_end(self) -> None:
        life = running()
        self.declared(life, "Training done.", 100.0)
        for step in range(100, 110):
            observe(life, sample(step), float(step))
        life.finish(110.0)
        assert life.state == "running"

    def test_words_that_each_epoch_repeats_are_none_either(self) -> None:
        life = started()
        for step in range(500):
            observe(life, sample(step), float(step))
            if step % 100 == 99:
                self.declared(life, f"Training done: epoch {step // 100}", float(step))
        life.tick(1e6)
        assert life.state == "stalled"

    def test_an_error_after_them_is_a_crash(self) -> None:
        life = running()
        self.declared(life, "Training completed", 100.0)
        life.observe_event(traceback(), 101.0)
        life.tick(140.0)
        assert life.state == "crashed"

    def test_a_second_launch_that_takes_all_its_steps_is_finished(self) -> None:
        life = counting(100, 60)
        life.observe_event(event("run_started"), 61.0)
        for step in range(1, 101):
            observe(life, sample(step, total_steps=100), 61.0 + step)
        life.finish(200.0)
        assert life.state == "finished"

    def test_a_run_whose_writers_are_gone_below_its_total_is_ended(self) -> None:
        life = counting(1000, 730)
        life.observe_event(gone(), 760.0)
        life.tick(761.0)
        assert (life.state, life.ended_at) == ("ended", 760)
        life.tick(1e6)
        assert life.state == "ended"

    def test_a_step_after_it_shows_that_another_process_writes(self) -> None:
        life = counting(1000, 730)
        life.observe_event(gone(), 760.0)
        observe(life, sample(731, total_steps=1000), 790.0)
        assert life.state == "running"

    def test_a_run_of_which_a_process_lives_is_not_ended(self) -> None:
        life = counting(1000, 730)
        life.observe_event(gone(alive=1), 760.0)
        life.tick(761.0)
        assert life.state == "stalled"

    def test_a_run_whose_writers_are_gone_after_its_total_is_finished(self) -> None:
        life = counting(100, 100)
        life.observe_event(gone(), 130.0)
        assert life.state == "finished"

    @pytest.mark.parametrize(
        ("status", "state"), [(0, "finished"), (1 << 8, "crashed"), (9, "killed")]
    )
    def test_an_exit_status_tells_how_it_ended(self, status: int, state: str) -> None:
        life = running()
        life.observe_event(gone(status=status), 130.0)
        assert life.state == state

    def test_a_workers_sigterm_with_no_failure_before_it_is_a_kill(self) -> None:
        life = running()
        life.observe_event(sigterm(received=True), 105.0)
        life.tick(1e6)
        assert life.state == "killed"

    def test_a_workers_sigterm_is_its_launchers_after_a_failure(self) -> None:
        for failure, signal in ((104.0, 105.0), (106.0, 105.0)):
            life = running()
            said = sorted([(failure, traceback()), (signal, sigterm(received=True))], key=at_time)
            for at, each in said:
                life.observe_event(each, at)
            life.tick(1e6)
            assert life.state == "crashed"

    def test_the_sigterm_that_a_launcher_sends_is_none(self) -> None:
        life = running()
        life.observe_event(sigterm(), 105.0)
        life.tick(106.0)
        assert life.ending.assumed is None

    def test_words_that_end_other_things_count_after_steps_only(self) -> None:
        words = {"confirmed_by": "silence", "after": "steps"}
        started, trained = Lifecycle(0.0, Stall(), position()), running()
        for life in (started, trained):
            life.observe_event(event("run_finished", **words), 105.0)
            life.tick(1e6)
        assert (started.state, trained.state) == ("starting", "finished")

    def test_a_process_that_the_kernel_killed_for_memory_was_killed(self) -> None:
        life = running()
        life.observe_event(event("host_oom_kill", "critical", role="root", probe=True), 129.0)
        life.observe_event(gone(), 129.0)
        assert life.state == "killed"

    def test_a_traceback_before_it_is_the_reason(self) -> None:
        life = running()
        life.observe_event(traceback(), 125.0)
        life.observe_event(gone(), 129.0)
        assert life.state == "crashed"

    @pytest.mark.parametrize(("steps", "state"), [(60, "ended"), (100, "finished")])
    def test_a_shell_reports_an_end_and_not_how(self, steps: int, state: str) -> None:
        life = counting(100, steps)
        life.observe_event(event("command_ended"), 110.0)
        life.tick(1e6)
        assert life.state == state

    def test_a_shells_last_words_between_two_launches_end_nothing(self) -> None:
        life = counting(100, 60)
        life.observe_event(event("command_ended"), 61.0)
        for step in range(61, 70):
            observe(life, sample(step, total_steps=100), 20.0 + step)
        assert life.state == "running"

    def test_a_kill_after_the_end_is_teardown(self) -> None:
        life = running()
        life.observe_event(event("run_finished"), 100.0)
        life.observe_event(event("elastic_agent_signaled", "warning"), 101.0)
        life.tick(120.0)
        assert life.state == "finished"
