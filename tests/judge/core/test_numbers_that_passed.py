"""Numbers that are not finite, steps that were skipped: what passed, and what still is."""

import pytest

from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.finished.backtest.decision_score import decision_of
from tests.judge.core.test_tenses import EXIT_CODE_0, TRACEBACK, Log, order, rows, steps

SKIP = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"


def of_ranks(first: int, last: int, *losses: str) -> list[str]:
    return [
        f'{{"step": {step}, "rank": {rank}, "loss": {loss}}}'
        for step in range(first, last + 1)
        for rank, loss in enumerate(losses)
    ]


def every_second(first: int, last: int) -> list[str]:
    return [
        text for step in range(first, last, 2)
        for text in (*steps(step, step), *steps(step + 1, step + 1, "NaN"))
    ]  # fmt: skip


SOUND = {"grad_norm": "1.0", "loss_text": "1.5"}


@pytest.mark.parametrize("ends", [[], [EXIT_CODE_0]], ids=["goes on", "finished"])
@pytest.mark.parametrize(
    "lines",
    [
        [*of_ranks(1, 40, "2.5", "2.5"), *of_ranks(41, 60, "2.5", "NaN")],
        [*steps(1, 40, **SOUND), *steps(41, 60, **SOUND | {"loss_text": "NaN"})],
        [*steps(1, 40, **SOUND), *steps(41, 60, **SOUND | {"grad_norm": "NaN"})],
        [*steps(1, 40), *every_second(41, 60)],
        [*steps(1, 40), *every_second(41, 60), *steps(61, 62)],
    ],
    ids=["one rank", "a component", "the gradient", "every second loss", "then only two"],
)
def test_a_finite_loss_does_not_show_that_another_number_is_one_again(
    lines: list[str], ends: list[str]
) -> None:
    log = Log().write(lines + ends)
    assert (log.run.health, order(log.run)) == ("CRITICAL", "UNKNOWN")


@pytest.mark.parametrize(
    ("lines", "health"),
    [
        ([*of_ranks(1, 40, "2.5", "NaN"), *of_ranks(41, 60, "2.5", "2.5")], "WARNING"),
        ([*steps(1, 40, grad_norm="1.0"), *every_second(41, 60), *steps(61, 63)], "WARNING"),
        ([*steps(1, 3, grad_norm="Infinity"), *steps(4, 5, grad_norm="1.0")], "HEALTHY"),
        ([*steps(1, 1, grad_norm="Infinity"), *steps(2, 40, grad_norm="1.0"),
          *steps(41, 41, grad_norm="Infinity"), *steps(42, 42, grad_norm="1.0")], "HEALTHY"),
    ],
    ids=["of a rank", "that came and went", "of a loss scale's start", "of its next trial"],
)  # fmt: skip
def test_what_was_not_finite_has_passed_where_its_own_numbers_follow(
    lines: list[str], health: str
) -> None:
    log = Log().write(lines)
    assert (log.run.health, order(log.run)) == (health, "GO_ON")


@pytest.mark.parametrize("ends", [[], [EXIT_CODE_0]], ids=["goes on", "finished"])
def test_a_run_whose_evaluations_are_no_numbers_is_not_told_to_go_on(ends: list[str]) -> None:
    lines = [*evaluated(1, 40, "NaN"), *evaluated(41, 80, "NaN"), *evaluated(81, 120, "NaN")]
    log = Log().write(lines + ends)
    assert (log.run.health, order(log.run)) == ("WARNING", "UNKNOWN")
    assert log.run.decision is not None
    assert "evaluation" in log.run.decision.reasons[0]


def test_an_evaluation_that_is_a_number_again_says_that_the_run_may_go_on() -> None:
    log = Log().write([*evaluated(1, 40, "NaN"), *evaluated(41, 80, "1.5")]).wait(5)
    assert (log.run.health, log.run.decision) == ("HEALTHY", None)


def test_an_evaluation_that_is_no_number_does_not_hide_what_a_failure_needs() -> None:
    log = Log().write([*evaluated(1, 40, "NaN"), TRACEBACK, EXIT_1])
    assert order(log.run) == "STOP"


def evaluated(first: int, last: int, loss: str) -> list[str]:
    return [*steps(first, last), f'{{"step": {last}, "eval_loss": {loss}}}']


EXIT_1 = "ldlm-monitor run: the command ended with exit code 1"


def test_what_an_earlier_launch_lost_says_nothing_of_the_next_one() -> None:
    log = Log().write(["ldlm-monitor run: attempt 1 starts: []", *steps(0, 60)])
    log.write([*steps(61, 90, "NaN"), "ldlm-monitor run: attempt 2 starts: []"])
    assert (log.run.health in ("HEALTHY", "WARNING"), log.run.decision) == (True, None)


def test_the_last_words_of_an_earlier_launch_are_not_those_of_the_next_one() -> None:
    log = Log().write(["ldlm-monitor run: attempt 1 starts: []", *steps(0, 60), PEER])
    run = log.write(["ldlm-monitor run: attempt 2 starts: []", "loading"]).end()
    assert run.decision is None


PEER = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:12"
SAVED = "  successfully saved checkpoint from iteration {} to /ckpt [ t 1/8, p 1/4 ]"


def test_a_rollback_is_before_the_loss_that_stays_none_and_not_before_one_that_passed() -> None:
    log = Log().write([*steps(1, 50), SAVED.format(50), *steps(51, 60), *steps(61, 64, "NaN")])
    log.write([*steps(65, 100), SAVED.format(100), *steps(101, 130), *steps(131, 150, "NaN")])
    decision = log.run.decision
    assert decision is not None
    assert (decision.decision, decision.rollback_step) == ("ROLLBACK", 100)
    assert decision.skip_steps is not None
    assert decision.skip_steps[1] == 131


def test_checkpoints_saved_after_a_nan_hide_none_that_was_saved_before_it() -> None:
    """A loop that trains on, or that `--on nan=stop` lets save at its end."""
    lines = [*steps(1, 30), SAVED.format(30), *steps(31, 35)]
    for number in range(36, 76):
        lines += [*steps(number, number, "NaN"), SAVED.format(number)]
    decision = Log().write(lines).run.decision
    assert decision is not None
    assert (decision.rollback_step, decision.skip_steps) == (30, (36, 36))


def test_a_checkpoint_saved_after_an_early_nan_is_none_to_go_back_to() -> None:
    log = Log().write([*steps(1, 3), *steps(4, 9, "NaN"), SAVED.format(9), *steps(10, 10, "NaN")])
    assert log.run.decision is not None
    assert (log.run.decision.rule, order(log.run)) == ("early_nan", "STOP")


def test_a_rollback_goes_to_the_step_that_a_checkpoint_is_of_not_to_where_its_line_stands() -> None:
    log = Log().write([*steps(1, 50), SAVED.format(30), *steps(51, 60), *steps(61, 64, "NaN")])
    assert log.run.decision is not None
    assert log.run.decision.rollback_step == 30


def test_epochs_are_no_first_steps() -> None:
    epochs = [f"Epoch {epoch}/100 loss 2.{99 - epoch}" for epoch in range(1, 16)]
    log = Log().write([*epochs, *(f"Epoch {epoch}/100 loss nan" for epoch in range(16, 20))], 60.0)
    assert order(log.run) == "ROLLBACK"


def skipping(*, of: int, every: int) -> Log:
    log = Log()
    for step in range(1, of + 1):
        log.write([*([SKIP] if step % every == 0 else []), *steps(step, step)])
    return log


@pytest.mark.parametrize(
    ("of", "ends", "health"),
    [(50, [], "WARNING"), (10, [EXIT_CODE_0], "WARNING"), (10, [], "HEALTHY")],
)
def test_a_run_that_skips_its_steps_learns_nothing_though_each_number_is_one(
    of: int, ends: list[str], health: str
) -> None:
    run = skipping(of=of, every=1).write(ends).run
    assert (run.skipped_steps, run.health) == (of, health)
    assert decision_of(run).decision == ("UNKNOWN" if health == "WARNING" else "GO_ON")


def test_a_finished_run_whose_loss_vanished_is_not_healthy() -> None:
    run = Log().write([*steps(1, 40, lr="1e-4"), *rows(41, 200, lr="1e-4"), EXIT_CODE_0]).end()
    assert (run.state, run.health) == ("finished", "WARNING")
    assert run.reasons[0].text == "no loss since step 41"


def test_a_run_whose_loss_is_missing_is_not_said_to_go_on() -> None:
    run: RunView = Log().write([*steps(1, 40, lr="1e-4"), *rows(41, 300, lr="1e-4")]).run
    assert run.health in ("UNHEALTHY", "CRITICAL")
    assert (decision_of(run).decision, decision_of(run).rule) == ("UNKNOWN", "missing")


def test_that_nothing_failed_is_sure_only_of_a_healthy_run() -> None:
    run = Log().write(steps(1, 40)).run
    sure = {
        health: decision_of(run.model_copy(update={"health": health})).confidence
        for health in ("HEALTHY", "WARNING")
    }
    assert sure == {"HEALTHY": "confirmed", "WARNING": "probable"}


XID = "[ 123.4] NVRM: Xid (PCI:0000:9b:00): 79, pid=812, GPU has fallen off the bus."


def test_a_machine_at_fault_is_left_out_of_the_next_run_though_this_one_finished() -> None:
    run = Log().write([*steps(1, 60), XID, *steps(61, 300), EXIT_CODE_0]).end()
    assert (run.state, order(run)) == ("finished", "RESTART_WITHOUT")
