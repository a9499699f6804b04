"""What is, what was, and what was not looked at: the three tenses of the one verdict."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import RunView, Snapshot
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.core.past_alerts import PastAlerts

START = 1_795_000_000.0
STALLED = "TrainingStalled"
EXIT_CODE_0 = "ldlm-monitor run: the command ended with exit code 0"
PEER = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:12"
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1, in f\nKeyError: 3'


CUDA_ERROR = "RuntimeError: CUDA error: an illegal memory access was encountered"


class Log:
    """A log that is followed; a line a second."""

    def __init__(self) -> None:
        self.monitor = Monitor()
        self.now, self._offset, self._line = START, 0, 1

    def write(self, lines: Iterable[str], every: float = 1.0) -> "Log":
        for text in lines:
            data = f"{text}\n".encode()
            self.monitor.feed(Chunk("a.log", (1, 1, 0), self._offset, self._line, data), self.now)
            self._offset += len(data)
            self._line += data.count(b"\n")
            self.now += every
        return self

    def wait(self, seconds: float) -> "Log":
        self.now += seconds
        self.monitor.tick(self.now)
        return self

    def end(self) -> RunView:
        self.monitor.finish(self.now, ("a.log",))
        return self.run

    @property
    def snapshot(self) -> Snapshot:
        return self.monitor.snapshot()

    @property
    def run(self) -> RunView:
        (run,) = self.snapshot.runs
        return run

    @property
    def changes(self) -> list[Transition]:
        return [each for each in self.snapshot.transitions if each.alert == STALLED]

    @property
    def fired(self) -> set[str]:
        return {each.alert for each in self.snapshot.transitions if each.state == "firing"}


def steps(first: int, last: int, loss: str = "2.5", **more: str) -> list[str]:
    rest = "".join(f' "{name}": {value},' for name, value in more.items())
    return [f'{{"step": {step},{rest} "loss": {loss}}}' for step in range(first, last + 1)]


def rows(first: int, last: int, **values: str) -> list[str]:
    given = ", ".join(f'"{name}": {value}' for name, value in values.items())
    return [f'{{"step": {step}, {given}}}' for step in range(first, last + 1)]


def order(run: RunView) -> str:
    return "" if run.decision is None else run.decision.decision


def test_what_belonged_to_an_attempt_is_over_with_the_next_one() -> None:
    log = Log().write(["ldlm-monitor run: attempt 1 starts: []", *steps(0, 60), PEER])
    log.write(["ldlm-monitor run: attempt 2 starts: []", *steps(40, 140)])
    assert "RankLost" not in log.fired
    assert (log.run.health, log.run.decision) == ("HEALTHY", None)
    run = log.write([EXIT_CODE_0]).end()
    assert (run.state, run.health, order(run)) == ("finished", "HEALTHY", "")
    (past,) = run.past
    assert (past.kind, past.over_by) == ("incident", "restart")
    assert past.begin < past.end


def test_an_alert_that_fires_on_with_another_severity_is_not_over() -> None:
    """A hang at the first place for an evaluation is a warning, and critical half an hour later."""
    log = Log().write(rows(1, 100, loss="2.5", total_steps="5000"))
    seen = list[str]()
    for _ in range(80):
        log.wait(30.0)
        seen += [each.labels["severity"] for each in log.snapshot.alerts if each.name == STALLED]
        assert [each for each in log.run.past if each.name == STALLED] == []
    assert set(seen) == {"warning", "critical"}


@pytest.mark.parametrize("order", [1, -1])
def test_in_whatever_order_its_rules_stand(order: int) -> None:
    (stalled, *_) = Log().write(rows(1, 94, loss="2.5", total_steps="5000")).wait(60.0).changes
    over = replace(stalled, state="resolved", previous="firing", time=START + 9.0)
    goes_on = replace(stalled, time=START + 9.0, labels={**stalled.labels, "severity": "info"})
    book = PastAlerts()
    for each in (stalled, *[over, goes_on][::order]):
        book.take(each)
    run = Log().write(rows(1, 2, loss="2.5")).run
    assert book.shown_in([run], ()) == (run,)


def test_a_nan_that_passed_before_the_run_finished_had_recovered() -> None:
    lines = [*steps(0, 60), *steps(61, 61, "NaN"), *steps(62, 90), EXIT_CODE_0]
    assert [each.over_by for each in Log().write(lines).end().past] == ["recovered"]


def test_what_fails_behind_a_run_that_finished_is_over_with_it() -> None:
    log = Log().write([*steps(0, 60), EXIT_CODE_0]).wait(30.0).write([CUDA_ERROR]).wait(60.0)
    assert log.run.state == "finished"
    assert [each.state for each in log.snapshot.incidents] == ["ended"]


@pytest.mark.parametrize(
    ("failure", "severity"), [(CUDA_ERROR, "critical"), ("KeyboardInterrupt", "warning")]
)
def test_what_was_has_the_severity_that_it_had(failure: str, severity: str) -> None:
    lines = [*steps(0, 60), TRACEBACK.replace("KeyError: 3", failure)]
    log = Log().write(lines).wait(60.0)
    log.write(["ldlm-monitor run: attempt 2 starts: []", *steps(40, 60)])
    assert [(each.kind, each.severity) for each in log.run.past] == [("incident", severity)]


def test_an_alert_that_fired_ends_with_its_attempt() -> None:
    log = Log().write([*steps(0, 60), PEER]).wait(30.0)
    assert "RankLost" in log.fired
    log.write(["ldlm-monitor run: attempt 2 starts: []", *steps(40, 60)])
    assert [(each.state, each.reason) for each in log.snapshot.transitions][-1] == (
        "ended",
        "restarted",
    )
    assert log.run.health == "HEALTHY"


ATTEMPT = "ldlm-monitor run: attempt {} starts: []"
KILLED = (
    "ldlm-monitor run: NonFiniteLoss, --on nan=kill: SIGTERM",
    "ldlm-monitor run: the command was ended by signal 15 (SIGTERM)",
)


def test_each_attempt_has_its_own_alert_and_the_cause_of_its_own_end() -> None:
    """The second NaN comes while what the first one left would still fire."""
    log = Log()
    for number, first in ((1, 1), (2, 21)):
        bad = steps(first + 24, first + 25, "NaN")
        log.write([ATTEMPT.format(number), *steps(first, first + 23), *bad, *KILLED])
    changes = [each for each in log.snapshot.transitions if each.alert == "NonFiniteLoss"]
    assert [(each.state, each.incident) for each in changes] == [
        ("firing", "a/1"), ("ended", None), ("firing", "a/2"),
    ]  # fmt: skip
    assert [(each.root.kind, each.last_step) for each in log.snapshot.incidents] == [
        ("nonfinite_metric", 25),
        ("nonfinite_metric", 45),
    ]
    assert order(log.run) == "ROLLBACK"


def test_an_attempt_that_begins_with_a_nan_has_an_alert_of_its_own() -> None:
    log = Log().write([*steps(1, 60), *steps(61, 62, "NaN"), TRACEBACK]).wait(60.0)
    log.write([ATTEMPT.format(2), *steps(61, 70, "NaN")])
    found = [each for each in log.snapshot.transitions if each.alert == "NonFiniteLoss"]
    assert [each.state for each in found] == ["firing", "ended", "firing"]
    assert log.run.health == "CRITICAL"


@pytest.mark.parametrize("begins", [[ATTEMPT.format(2)], []], ids=["says so", "step falls"])
def test_a_stall_that_a_restart_ended_did_not_recover(begins: list[str]) -> None:
    log = Log().write([ATTEMPT.format(1), *steps(1, 140)]).wait(120.0)
    assert [each.state for each in log.changes] == ["firing"]
    log.write([*begins, *steps(101, 120)])
    assert [(each.name, each.over_by) for each in log.run.past] == [(STALLED, "restart")]
    assert [(each.state, each.reason) for each in log.changes][1:] == [("ended", "restarted")]


def test_a_stall_of_an_attempt_after_the_first_recovers_as_any() -> None:
    log = Log().write([ATTEMPT.format(1), *steps(1, 60), PEER, ATTEMPT.format(2), *steps(61, 180)])
    log.wait(120.0).write(steps(181, 182))
    assert [each.over_by for each in log.run.past if each.name == STALLED] == ["recovered"]


def test_a_crash_that_no_attempt_followed_is_now_and_the_same_fault_before_a_restart_was() -> None:
    log = Log().write([*steps(0, 60), TRACEBACK]).wait(120.0)
    assert (log.run.state, log.run.health, log.run.past) == ("crashed", "CRITICAL", ())
    log.write(["ldlm-monitor run: attempt 2 starts: []", *steps(40, 60)])
    assert log.run.health == "HEALTHY"
    assert [each.over_by for each in log.run.past] == ["restart"]


@pytest.mark.parametrize("ends", [False, True])
def test_a_nan_that_passed_is_a_warning_at_most(ends: bool) -> None:
    log = Log().write([*steps(0, 60), *steps(61, 61, "NaN"), *steps(62, 90)])
    assert (log.run.health, order(log.run)) == ("WARNING", "GO_ON")
    if ends:
        run = log.write([EXIT_CODE_0]).end()
        assert (run.state, run.health, order(run)) == ("finished", "WARNING", "GO_ON")
        assert run.decision is not None
        assert "nothing to do" in run.decision.reasons[0]


@pytest.mark.parametrize(
    ("after", "decision"),
    [
        (steps(61, 90, "NaN"), "ROLLBACK"),
        (rows(61, 90, grad_norm="NaN"), "UNKNOWN"),
    ],
)
def test_a_nan_after_which_no_loss_was_a_number_is_now(after: list[str], decision: str) -> None:
    log = Log().write([*steps(0, 60, grad_norm="1.0"), *after])
    assert (log.run.health, order(log.run)) == ("CRITICAL", decision)
    run = log.write([EXIT_CODE_0]).end()
    assert (run.state, run.health, order(run)) == ("finished", "CRITICAL", decision)


@pytest.mark.parametrize("lasts", [1, 30])
def test_a_loss_that_rose_to_a_huge_number_before_it_was_none_is_not_sound(lasts: int) -> None:
    usual = [text for each in range(1, 61) for text in steps(each, each, f"2.{each:02}")]
    log = Log().write([*usual, *steps(61, 60 + lasts, "2.75e15"), *steps(61 + lasts, 99, "NaN")])
    decision = log.run.decision
    assert decision is not None
    assert (decision.decision, decision.skip_steps) == ("ROLLBACK", (61, 61 + lasts))


def test_where_many_steps_were_skipped_a_loss_that_is_a_number_is_no_reason_to_go_on() -> None:
    lines = [
        text
        for step in range(1, 101)
        for text in steps(step, step, grad_norm="Infinity" if step % 2 else "1.0")
    ]
    log = Log().write(lines)
    position = Position("a.log", 1, 0)
    events = [
        Event(kind="skipped_step", severity="warning", run=log.run.name, message="skipped",
              position=position, fields={"step": step})
        for step in range(1, 101, 2)
    ]  # fmt: skip
    log.monitor.observe(events, log.now)
    assert (log.run.skipped_steps, order(log.run)) == (50, "UNKNOWN")


@pytest.mark.parametrize(
    ("first", "launches_anew", "said"),
    [
        (901, False, ["50 of 100 steps were skipped"]),
        (1, True, ["50 of 100 steps were skipped"]),
        (1, False, []),
    ],
    ids=["resumed", "resumed in its log", "same launch"],
)
def test_the_share_of_skipped_steps_is_of_those_that_the_launch_took(
    first: int, launches_anew: bool, said: list[str]
) -> None:
    taken = [text for each in range(first, 1001) for text in steps(each, each, f"2.{each % 97:02}")]
    taken.insert(-100, ATTEMPT.format(2) if launches_anew else "")
    log = Log().write(taken)
    for step in range(901, 1000, 2):
        event = Event(
            kind="skipped_step", severity="info", run=log.run.name, message="skipped",
            position=Position("a.log", 1, 0), fields={"step": step},
        )  # fmt: skip
        log.monitor.observe([event], log.now)
    found = [each.text for each in log.end().reasons if each.kind == "finding"]
    assert found == said


BAR = "Train: 100%|██████████| 40/40 [00:40<00:00,  1.00it/s]"
ABORT = (
    "E0911 16:21:58.831000 325 torch/distributed/elastic/multiprocessing/api.py:869] "
    "failed (exitcode: -6) local_rank: 0 (pid: 470) of binary: /opt/conda/bin/python"
)
DONE = "[INFO:swift] End time of running main: 2025-09-11 16:19:22.473503"


def test_an_abort_after_all_was_done_and_announced_is_no_reason_to_start_again() -> None:
    run = Log().write([*steps(1, 40, total_steps="40"), BAR, DONE, ABORT]).wait(60.0).end()
    assert (run.state, run.health, run.end_reason) == ("finished", "WARNING", "total")
    assert order(run) == "GO_ON"


def test_an_abort_after_the_last_step_before_anything_was_saved_is_a_crash() -> None:
    run = Log().write([*steps(1, 40, total_steps="40"), ABORT, DONE]).wait(60.0).end()
    assert (run.state, run.health, run.end_reason) == ("crashed", "CRITICAL", "signal")
    assert order(run) == "RESTART"


@pytest.mark.parametrize(
    ("last", "reason", "line"),
    [
        ([*steps(1, 40, total_steps="40")], "total", 40),
        ([*steps(1, 40), "Training finished."], "words", 41),
        ([*steps(1, 40), EXIT_CODE_0], "exit_code", 41),
        ([*steps(1, 40), TRACEBACK], "exception", 41),
        ([*steps(1, 40), ABORT], "signal", 41),
        ([*steps(1, 40), "ldlm-monitor run: the command ended with exit code 3"], "exit_code", 41),
    ],
)
def test_a_run_that_is_over_has_the_line_that_shows_it(
    last: list[str], reason: str, line: int
) -> None:
    run = Log().write(last).wait(120.0).end()
    assert run.end_position is not None
    assert (run.end_reason, run.end_position.line) == (reason, line)


def test_a_run_whose_writer_is_gone_without_a_word_says_so() -> None:
    log = Log().write(steps(1, 40))
    gone = Event(
        kind="exit_without_error", severity="warning", run=log.run.name, message="gone",
        position=Position("", 0, 0), fields={"probe": True},
    )  # fmt: skip
    log.monitor.observe([gone], log.now + 60.0)
    assert (log.run.state, log.run.end_reason, log.run.end_position) == (
        "ended",
        "writer_gone",
        None,
    )


def test_a_run_that_goes_on_has_no_end() -> None:
    log = Log().write([*steps(1, 40), TRACEBACK]).wait(120.0)
    assert log.run.end_reason == "exception"
    log.write(["ldlm-monitor run: attempt 2 starts: []", *steps(41, 60)])
    assert (log.run.end_reason, log.run.end_position) == (None, None)


def unchecked(run: RunView) -> dict[str, set[str]]:
    return {each.quantity: set(each.check.split(", ")) for each in run.not_checked}


def test_checks_without_an_input_are_named_with_what_to_log() -> None:
    found = unchecked(Log().write(steps(1, 40)).run)
    assert {"Overfitting", "EvalNonFinite"} <= found["eval_loss"]
    assert "NonFiniteGradient" in found["grad_norm"]
    assert found.keys().isdisjoint({"loss", "step", "loss_scale", "reward", "kl"})
    given = {"grad_norm": "1.0", "eval_loss": "2.0", "lr": "1e-4"}
    more = unchecked(Log().write(steps(1, 40, **given)).run)
    assert more.keys().isdisjoint({"eval_loss", "grad_norm", "learning_rate"})


def test_a_reward_without_a_divergence_is_a_gap_of_reinforcement_learning_alone() -> None:
    found = unchecked(Log().write(steps(1, 40, reward="0.5")).run)
    assert found["kl"] == {"PolicyDrift"}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (rows(1, 200, lr="1e-4"), "no loss"),
        ([*steps(1, 40, lr="1e-4"), *rows(41, 200, lr="1e-4")], "no loss since step 41"),
    ],
)
def test_a_loss_that_was_not_or_is_no_longer_logged_stands_beside_the_health(
    lines: list[str], why: str
) -> None:
    run = Log().write(lines).write([EXIT_CODE_0]).end()
    assert run.unseen == why


def test_an_error_with_which_a_log_ends_is_now_though_no_alert_had_the_time_to_fire() -> None:
    log = Log().write([*steps(0, 60), PEER])
    assert (log.fired - {"Watchdog"}, log.run.health) == (set(), "HEALTHY")
    run = log.end()
    assert (run.health, order(run)) == ("UNHEALTHY", "RESTART")
    assert "Connection closed by peer" in run.because


def test_a_log_that_goes_on_after_its_end_has_no_last_words() -> None:
    log = Log().write([*steps(0, 60), PEER])
    assert [each.kind for each in log.end().reasons] == ["finding"]
    run = log.write(steps(61, 120)).run
    assert [each for each in run.reasons if each.kind == "finding"] == []


@pytest.mark.parametrize(("code", "health"), [(79, "WARNING"), (31, "HEALTHY"), (63, "HEALTHY")])
def test_a_fault_of_the_gpu_that_a_run_survived_is_a_warning_while_it_goes_on(
    code: int, health: str
) -> None:
    """31 is the program's own, 63 a count; an alert of either is over after ten minutes."""
    log = Log().write([*steps(0, 60), f"NVRM: Xid (PCI:0000:9b:00): {code}, pid=9, name=py, x"])
    taken = [text for each in range(61, 181) for text in steps(each, each, f"2.{each % 97:02}")]
    run = log.write(taken, every=6.0).run
    assert (run.health, order(run)) == (health, "")
    assert run.because.endswith("look at that GPU at its next stop") == (code == 79)
    assert "Xid (PCI:0000:9b:00)" in run.because or code != 79


def test_where_lines_have_no_times_a_time_is_to_be_logged() -> None:
    monitor, data = Monitor(), "".join(f"{text}\n" for text in steps(0, 60)).encode()
    monitor.feed(Chunk("a.log", (1, 1, 0), 0, 1, data, timed=False), START)
    (run,) = monitor.snapshot().runs
    assert {each.quantity: (each.why, each.log) for each in run.not_checked}["step"] == (
        "its lines have no times",
        "a time in each line",
    )


def test_lines_that_count_in_place_of_bars_have_a_rhythm_of_their_own() -> None:
    """A bar is drawn each second; then the log has a line each 100 steps."""
    bars = [f"{step // 5}%|#| {step}/500 [00:10<01:00, 1.00it/s]" for step in range(1, 200)]
    log = Log().write(bars)
    log.write([f"step {step}/2000 | loss 2.5" for step in range(200, 2000, 100)], every=100)
    assert log.changes == []
    assert log.wait(1201).run.state == "stalled"


def test_bars_beside_which_lines_come_keep_their_pace() -> None:
    lines = [
        text
        for step in range(1, 200)
        for text in (
            f"{step // 20}%|#| {step}/2000 [00:10<01:00, 1.00it/s]",
            *([f"step {step}/2000 | loss 2.5"] if step % 10 == 0 else []),
        )
    ]
    assert Log().write(lines).wait(61).run.state == "stalled"
