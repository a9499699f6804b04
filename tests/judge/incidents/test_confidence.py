"""A cause is confirmed by two writers that do not copy each other, in a known order."""

from pathlib import Path

import pytest

from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

OOM = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 3, in <module>\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB\n"
)
TIME_LIMIT = (
    "slurmstepd: error: *** STEP 77120.0 ON node014 CANCELLED AT 2026-03-02T18:00:11 "
    "DUE TO TIME LIMIT ***\n"
)
OOM_KILL = (
    "slurmstepd-gpu3: error: Detected 1 oom_kill event in StepId=17306.batch. "
    "Some of the step tasks have been OOM Killed.\n"
)
SHELL = "run.sh: line 141: 450336 Killed                  python train.py --lr 1e-3\n"
SRUN = "srun: error: node014: task 0: Terminated\n"
ABORT = "terminate called without an active exception\n"
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def error_of(rank: int) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in OOM.splitlines())


def incident(tmp_path: Path, *texts: str) -> IncidentView:
    for number, text in enumerate(texts):
        (tmp_path / f"job_node{number}.log").write_text(text)
    replay = Replay(Settings(files=(str(tmp_path / "*.log"),), companions=False, run="job"))
    list(replay.transitions())
    return replay.snapshot().incidents[-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OOM, "probable"),
        (OOM + ABORT, "probable"),
        (error_of(0), "probable"),
        (error_of(0) + error_of(1), "confirmed"),
        (TIME_LIMIT, "probable"),
        (TIME_LIMIT + SRUN, "confirmed"),
        (OOM_KILL, "probable"),
        (SHELL + OOM_KILL, "confirmed"),
        (SHELL.replace("Killed", "Terminated") + OOM_KILL, "probable"),
    ],
    ids=[
        *("one process", "twice", "one rank", "two ranks", "scheduler", "scheduler and launcher"),
        *("kernel", "kernel and shell", "kernel and another signal"),
    ],
)
def test_one_writer_makes_a_cause_probable_and_two_confirm_it(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert incident(tmp_path, text).confidence == expected


def test_files_without_times_do_not_show_which_of_two_lines_was_first(tmp_path: Path) -> None:
    assert incident(tmp_path, error_of(0), error_of(1)).confidence == "probable"


def test_a_memory_error_is_not_explained_by_the_abort_that_follows_it(tmp_path: Path) -> None:
    assert incident(tmp_path, ABORT + ECC + ABORT).root.kind == "cuda_error"


HERE = Path(__file__).parent
INJECTED, ELASTIC = HERE / "injected", HERE.parents[1] / "together/corpus/runs/elastic"
CONFIRMED = {
    INJECTED / "exit.log": ("elastic_worker_failed", "1"),
    INJECTED / "kill.log": ("elastic_worker_failed", "1"),
    INJECTED / "nodes_kill": ("elastic_worker_failed", "3"),
    INJECTED / "nodes_kill_record": ("elastic_worker_failed", "3"),
    INJECTED / "nodes_raise": ("python_exception", "3"),
    INJECTED / "raise.log": ("python_exception", "1"),
    INJECTED / "segv.log": ("fatal_python_error", "2"),
    ELASTIC / "kill.log": ("elastic_worker_failed", "1"),
    ELASTIC / "m_unused.log": ("ddp_unfinished_reduction", "0-2"),
    ELASTIC / "mn_kill1.log": ("elastic_worker_failed", "3"),
    ELASTIC / "raise.log": ("python_exception", "1"),
    ELASTIC / "rs.log": ("python_exception", "1"),
    ELASTIC / "segv.log": ("fatal_python_error", "2"),
}
"""Kind and ranks of what was injected, where two writers report it in a known order."""
LOGS = [path for path in [*INJECTED.iterdir(), *ELASTIC.iterdir()] if path.suffix in ("", ".log")]


@pytest.mark.parametrize(
    "path", [path for path in LOGS if path.name != "__pycache__"], ids=lambda path: path.name
)
def test_what_is_confirmed_of_injected_failures_is_true_and_no_less_is(path: Path) -> None:
    files = tuple(map(str, sorted(path.iterdir()))) if path.is_dir() else (str(path),)
    replay = Replay(Settings(files=files, companions=False, run="job"))
    list(replay.transitions())
    sure = [each for each in replay.snapshot().incidents if each.confidence == "confirmed"]
    assert [(each.root.kind, each.root.ranks) for each in sure] == [
        CONFIRMED[path] for _ in range(path in CONFIRMED)
    ]
