"""What the last words of a log say of its run: how it ended, and which alert names that."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

STEPS = "".join(f"step {at} | train loss: {2.5 - at / 800:.4f}\n" for at in range(10, 200, 10))
TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 88, in <module>
    main()
"""
PADDLE = """
--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   bvar::detail::SamplerCollector::run()

----------------------
Error Message Summary:
----------------------
"""
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"


def end_of(tmp_path: Path, text: str) -> tuple[str, set[str]]:
    """The state of the run of a log that ends with `text`, and the alerts that fired."""
    log = tmp_path / "train.log"
    log.write_text(STEPS + text + "\n")
    replay = Replay(Settings(files=(str(log),), companions=False))
    fired = {each.alert for each in replay.transitions() if each.state == "firing"}
    (run,) = replay.snapshot().runs
    return run.state, fired - {"Watchdog"}


@pytest.mark.parametrize(
    "text",
    [
        *("Killed", "zsh: killed     python train.py"),
        "run.sh: line 12: 4711 Killed                  python train.py",
        "[1]+  Killed                  nohup python train.py > log",
        "State: TIMEOUT (exit code 0)",
        PADDLE + "FatalError: `Termination signal` is detected by the operating system.",
        "TERM_OWNER: job killed by owner.\nExited with exit code 143.",
        TRACEBACK + "\n------\nSender: LSF System <lsf@host>\nTERM_OWNER: job killed by owner.",
    ],
)
def test_a_run_that_somebody_ended_is_killed(tmp_path: Path, text: str) -> None:
    state, alerts = end_of(tmp_path, text)
    assert "JobKilled" in alerts
    assert state == "killed" or "Sender" in text, "its traceback has no end"


@pytest.mark.parametrize(
    "text",
    [
        *("Command exited with non-zero status 1", "make: *** [Makefile:12: train] Error 1"),
        *(
            "Process finished with exit code 1",
            "State: FAILED (exit code 1)",
            "trainer exited with code 1",
        ),
        "wandb: Waiting for W&B process to finish... (failed 1). Press Control-C to abort.",
        '  File "train.py", line 3\n    print "x"\n          ^\nSyntaxError: invalid syntax',
        "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --foo",
        "/home/user/torch/install/bin/luajit: train.lua:67: attempt to index a nil value",
        'Exception in thread "main" java.lang.IllegalStateException: bad shape',
        "panic: runtime error: index out of range [5] with length 3",
        PADDLE + "FatalError: `Segmentation fault` is detected by the operating system.",
    ],
)
def test_a_run_that_ended_by_itself_with_an_error_crashed(tmp_path: Path, text: str) -> None:
    assert end_of(tmp_path, text) == ("crashed", {"TrainingCrashed"})


def test_the_first_exception_of_a_chain_is_the_cause(tmp_path: Path) -> None:
    full = "OSError: [Errno 28] No space left on device\n"
    later = "RuntimeError: [enforce fail at inline_container.cc:300] . unexpected pos 64 vs 0\n"
    _, alerts = end_of(tmp_path, TRACEBACK + full + CHAIN + TRACEBACK + later)
    assert "DiskFull" in alerts


@pytest.mark.parametrize(
    "text",
    [
        *("Job finished at Tue Mar 11 12:38:06 GMT 2025", "All tasks completed.", "Run completed"),
        *("learning rate too small - quitting training!", "Early stopping", "train done"),
        *("Total runtime: 3:02:11", "Finished at 2025-03-11 12:38", "bye"),
        "[1]+  Done                    nohup python train.py > log",
        "wandb: Synced 6 W&B file(s), 0 media file(s)",
        "Maximum number of epochs reached",
    ],
)
def test_words_that_nothing_follows_end_a_run(tmp_path: Path, text: str) -> None:
    assert end_of(tmp_path, text) == ("finished", {"RunFinished"})


@pytest.mark.parametrize(
    "text",
    ["Saving checkpoint to out/step_190", "Test accuracy: 0.71", "Evaluating", "val loss 2.0"],
)
def test_words_that_any_pause_may_have_do_not(tmp_path: Path, text: str) -> None:
    state, alerts = end_of(tmp_path, text)
    assert state in ("running", "checkpointing", "evaluating")
    assert not alerts


def test_a_later_launch_in_the_same_log_refutes_an_end_that_only_its_shell_reported(
    tmp_path: Path,
) -> None:
    again = "train.py: error: unrecognized arguments: --foo\n300 epochs completed in 2.9 hours."
    assert end_of(tmp_path, again)[0] == "finished"
    assert end_of(tmp_path, "Killed\n" + TRACEBACK + "KeyError: 'x'") == (
        "crashed",
        {"TrainingCrashed"},
    )


def test_numbers_after_a_crash_go_on_in_a_log_without_steps(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    epochs = "".join(f"Epoch {at}/150\nMean loss: {9 - at / 9:.3f}\n" for at in range(60))
    log.write_text(epochs + TRACEBACK + "ValueError: bad\n" + epochs)
    replay = Replay(Settings(files=(str(log),), companions=False))
    for _ in replay.transitions():
        pass
    (run,) = replay.snapshot().runs
    assert run.state == "running"


@pytest.mark.parametrize(
    "text",
    [
        *("SyntaxError: invalid syntax", "panic: runtime error", "Execution halted"),
        'Exception in thread "main" java.lang.NullPointerException',
        "[1]+  Terminated              tensorboard --logdir runs",
        "Upload failed with status 503, retrying in 10 s",
    ],
)
def test_what_a_training_prints_of_other_programs_is_no_end_where_its_steps_go_on(
    tmp_path: Path, text: str
) -> None:
    """Of programs that a model wrote, helpers of the script, requests."""
    begun = datetime(2026, 11, 20, 10, tzinfo=UTC)
    lines = []
    for step in range(1, 60):
        when = begun + timedelta(minutes=step)
        lines.append(f"{when:%Y-%m-%d %H:%M:%S} INFO step {step}/1000 loss {3 - step / 100:.4f}")
        lines += [text] * (step in (30, 40, 41))
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines) + "\n")
    fired = {each.alert for each in Replay(Settings(files=(str(log),))).transitions()}
    assert fired <= {"Watchdog", "TrainingEnded"}
