"""What to do about a failure: the table of decisions, and what it looks at."""

from pathlib import Path

import pytest

from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.judge.incidents.decision_table import (
    DecisionFacts,
    decide,
    decision_table,
    held_by_others,
)
from ldlm_monitor.service.config import Settings

TABLE = decision_table()
EXAMPLES = [(rule.rule, facts) for rule in TABLE.rules for facts in rule.examples]
COUNTERS = [(rule.rule, facts) for rule in TABLE.rules for facts in rule.counter_examples]


def of(facts: dict[str, str | bool]) -> DecisionFacts:
    return DecisionFacts(**{"failed": bool(facts), **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(("rule", "facts"), EXAMPLES)
def test_each_rule_decides_its_examples(rule: str, facts: dict[str, str | bool]) -> None:
    assert decide(of(facts)).rule == rule


@pytest.mark.parametrize(("rule", "facts"), COUNTERS)
def test_no_rule_decides_its_counter_examples(rule: str, facts: dict[str, str | bool]) -> None:
    assert decide(of(facts)).rule != rule


def test_every_rule_has_an_example_and_a_name_of_its_own() -> None:
    names = [rule.rule for rule in TABLE.rules]
    assert len(set(names)) == len(names)
    assert {rule for rule, _ in EXAMPLES} == set(names)


def test_a_decision_is_as_sure_as_its_incident_but_two_attempts_confirm_each_other() -> None:
    weak = DecisionFacts(kind="python_exception", message="KeyError: 3", confidence="weak")
    assert decide(weak).confidence == "weak"
    twice = DecisionFacts(kind="python_exception", message="x", confidence="weak", repeated=True)
    assert (decide(twice).decision, decide(twice).confidence) == ("STOP", "confirmed")


OOM_NOW = """CUDA out of memory. Tried to allocate 1 GiB. GPU 0 has a total capacity of 80.00 GiB of
which 10.00 GiB is free. Process 71 has 50.00 GiB memory in use. Including non-PyTorch memory,
this process has 20.00 GiB memory in use.""".replace("\n", " ")
OOM_OLD = """CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 16.00 GiB total capacity;
2.81 GiB already allocated; 512.00 MiB free; 15.00 GiB reserved in total by PyTorch)""".replace(
    "\n", " "
)


@pytest.mark.parametrize(
    ("message", "share"),
    [(OOM_NOW, 50 / 80), (OOM_OLD, 0.5 / 16), ("RESOURCE_EXHAUSTED: Out of memory", 0.0)],
)
def test_the_memory_of_other_processes_is_what_the_sums_leave(message: str, share: float) -> None:
    assert held_by_others(message) == pytest.approx(share, abs=1e-3)


def replayed(tmp_path: Path, text: str) -> RunView:
    log = tmp_path / "train.log"
    log.write_text(text)
    replay = Replay(Settings(files=(str(log),), companions=False))
    for _ in replay.transitions():
        pass
    return replay.snapshot().runs[-1]


def steps(first: int, last: int, loss: str = "1.5") -> str:
    return "".join(f"step {step} loss {loss} lr 0.001\n" for step in range(first, last + 1))


ERROR = """Traceback (most recent call last):
  File "train.py", line {line}, in <module>
    main()
{error}
"""
START = "[run] start: python train.py, attempt {}, pid {}\n"


def crash(error: str, line: int = 7) -> str:
    return ERROR.format(line=line, error=error)


def test_nan_goes_back_before_the_spike_and_skips_the_steps_that_made_it(tmp_path: Path) -> None:
    log = (
        steps(1, 30)
        + "  successfully saved checkpoint from iteration 30 to /ckpt [ t 1/8, p 1/4 ]\n"
        + steps(31, 40)
    )
    log += steps(41, 43, "9.0") + steps(44, 46, "nan")
    decision = replayed(tmp_path, log).decision
    assert decision is not None
    assert (decision.decision, decision.skip_steps) == ("ROLLBACK", (41, 44))
    assert decision.rollback_step == 30


def test_a_checkpoint_of_the_step_before_a_nan_may_hold_it_already(tmp_path: Path) -> None:
    saved = "  successfully saved checkpoint from iteration {} to /ckpt [ t 1/8, p 1/4 ]\n"
    log = steps(1, 20) + saved.format(20) + steps(21, 30) + saved.format(30)
    decision = replayed(tmp_path, log + steps(31, 34, "nan")).decision
    assert decision is not None
    assert (decision.rollback_step, decision.skip_steps) == (20, (31, 31))


SAVED = "  successfully saved checkpoint from iteration 4 to /ckpt [ t 1/8, p 1/4 ]\n"


@pytest.mark.parametrize(
    ("log", "rule"),
    [
        (steps(1, 5) + steps(6, 30, "nan"), "early_nan"),
        (steps(1, 5) + SAVED + steps(6, 30, "nan"), "lasting_nan"),
        (steps(1, 40) + steps(41, 60, "nan"), "lasting_nan"),
        (steps(5001, 5005) + steps(5006, 5030, "nan"), "lasting_nan"),
    ],
    ids=["at the start", "after a checkpoint", "later", "after a resume"],
)
def test_nan_before_anything_was_saved_has_nothing_to_go_back_to(
    tmp_path: Path, log: str, rule: str
) -> None:
    decision = replayed(tmp_path, log).decision
    assert decision is not None
    assert decision.rule == rule


def test_nan_that_passes_lets_the_run_go_on(tmp_path: Path) -> None:
    log = steps(1, 30) + steps(31, 31, "nan") + steps(32, 60)
    decision = replayed(tmp_path, log).decision
    assert decision is None or decision.decision == "GO_ON"


def test_an_error_of_an_attempt_that_was_survived_does_not_count(tmp_path: Path) -> None:
    log = steps(1, 20) + crash("IndexError: list index out of range") + steps(21, 90)
    assert replayed(tmp_path, log).decision is None


def test_the_last_attempt_in_a_file_counts(tmp_path: Path) -> None:
    first = START.format(1, 11) + crash("ModuleNotFoundError: No module named 'flash_attn'")
    second = START.format(2, 12) + steps(1, 30)
    ended = (
        "slurmstepd: error: *** JOB 7 ON n3 CANCELLED AT 2026-01-02T03:04 DUE TO TIME LIMIT ***\n"
    )
    decision = replayed(tmp_path, first + second + ended).decision
    assert decision is not None
    assert (decision.decision, decision.rule) == ("RESTART", "time_limit")


def test_the_same_error_at_the_same_step_twice_is_code_or_data(tmp_path: Path) -> None:
    error = "RuntimeError: NCCL communicator {} on rank {} failed"
    log = START.format(1, 11) + steps(1, 25) + crash(error.format("0x7f1", 3))
    log += START.format(2, 12) + steps(1, 25) + crash(error.format("0x9a2", 5))
    decision = replayed(tmp_path, log).decision
    assert decision is not None
    assert (decision.decision, decision.rule) == ("STOP", "repeated")


def test_the_same_error_at_another_step_is_not(tmp_path: Path) -> None:
    log = START.format(1, 11) + steps(1, 25) + crash("OSError: [Errno 116] Stale file handle")
    log += START.format(2, 12) + steps(1, 60) + crash("OSError: [Errno 116] Stale file handle")
    decision = replayed(tmp_path, log).decision
    assert decision is not None
    assert (decision.decision, decision.rule) == ("RESTART", "outside")


def test_the_error_inside_torchruns_table_counts_not_the_launchers(tmp_path: Path) -> None:
    table = (Path(__file__).parents[2] / "together/corpus/runs/elastic").glob("raise*")
    replay = Replay(Settings(files=(str(next(table)),), companions=False))
    for _ in replay.transitions():
        pass
    decision = replay.snapshot().runs[-1].decision
    assert decision is not None
    assert decision.decision == "STOP"
    assert "ChildFailedError" not in " ".join(decision.reasons)


def test_an_error_without_a_time_counts_though_the_launchers_line_is_days_later(
    tmp_path: Path,
) -> None:
    """The traceback has the time of the line before it, the launcher's words their own."""
    error = crash("TypeError: save() missing 1 required positional argument: 'path'")
    log = "[rank0]:[W1226 21:45:46.355394567 ProcessGroupNCCL.cpp:4561] using GPU 0\n"
    log += "".join(f"[rank0]: {line}\n" for line in error.splitlines())
    agent = "E1229 21:58:40.631000 655 torch/distributed/elastic/multiprocessing/api.py:869]"
    log += f"{agent} failed (exitcode: 1) local_rank: 0 (pid: 754) of binary: /usr/bin/python\n"
    decision = replayed(tmp_path, log).decision
    assert decision is not None
    assert (decision.decision, decision.rule) == ("STOP", "exception_at_start")


def test_noise_of_the_shell_before_the_first_step_is_no_failure(tmp_path: Path) -> None:
    noise = "bash: module: command not found\ngrep: /etc/foo: No such file or directory\n"
    assert replayed(tmp_path, noise + steps(1, 40)).decision is None


def test_a_decision_names_its_lines(tmp_path: Path) -> None:
    decision = replayed(tmp_path, steps(1, 5) + crash("KeyError: 'x'")).decision
    assert decision is not None
    assert [place.line for place in decision.evidence] == [6]
    assert decision.if_wrong
