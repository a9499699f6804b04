"""Real trainings on two ranks, with real faults, under the real daemon.

The launch script starts torchrun; the monitor follows the log that it writes, and what
belongs to it. Every fault raises its alert, once, and names the rank where one is to blame.
"""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data.topics import topics

import pytest
import yaml

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")
pytestmark = [pytest.mark.live, pytest.mark.trainer]

ROOT = Path(__file__).resolve().parents[3]
HAS_CALLBACK = importlib.util.find_spec("ldlm_callback") is not None
PATIENCE = 240.0
SMALL = {
    "NNODES": "1",
    "NPROC_PER_NODE": "2",
    "DATA_WORKERS": "0",
    "L2T_TRAIN_BS": "4",
    "L2T_STEPS": "100000",
    "L2T_EVAL_FREQ": "0",
    "L2T_SAVE_FREQ": "0",
    "L2T_LOG_FREQ": "20",
    "WARMUP_STEPS": "20",
}
QUIET = "Watchdog"
Launch = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of `pydoc`'s topics alone, which is quick."""
    folder = tmp_path_factory.mktemp("data")
    text = folder / "topics.txt"
    text.write_text("\n".join(" ".join(topic.split()) for topic in topics.values()))
    command = [sys.executable, "-m", "ldlm_trainer", "prepare", str(folder), "--text", str(text)]
    subprocess.run(command, check=True, env=_environment(), stdout=subprocess.DEVNULL)
    return folder


def _environment() -> dict[str, str]:
    python_path = os.pathsep.join(
        [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT / "trainer")]
    )
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path}


@pytest.fixture
def launch(tmp_path: Path, data: Path) -> Iterator[Launch]:
    """Starts the launch script with these faults and variables; kills what is left of it."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(faults: str = "", *settings: str, **variables: str) -> subprocess.Popen[bytes]:
        command = ["bash", str(ROOT / "trainer/train_l2t.sh"), "model.width=32"]
        command += [*settings, f"run.health={str(HAS_CALLBACK).lower()}"]
        given = {"PYTHON": sys.executable, "DATA_DIR": str(data), "LDLM_FAULTS": faults}
        with (tmp_path / "console").open("ab") as console:
            process = subprocess.Popen(
                command,
                cwd=tmp_path,
                env={**_environment(), **SMALL, **given, **variables},
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield begin
    for process in started:
        stop(process)
    print((tmp_path / "console").read_text(errors="replace")[-4000:])  # where a test failed


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the launch, torchrun and its ranks, each of which has a session of its own."""
    for pid in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(PATIENCE)


def descendants(pid: int) -> Iterator[int]:
    """A process's children, theirs, and so on, the youngest first."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from descendants(int(child))
            yield int(child)


@pytest.fixture
def hasty(tmp_path: Path) -> Callable[[str], list[str]]:
    """The flag for the default pack in which this alert waits for 3 s, not for minutes."""

    def write(alert: str) -> list[str]:
        pack = yaml.safe_load((ROOT / "rules/default.yml").read_text())
        for rule in (rule for group in pack["groups"] for rule in group["rules"]):
            if rule["alert"] == alert:
                rule["for"] = "3s"
        path = tmp_path / "hasty.yml"
        path.write_text(yaml.safe_dump(pack))
        return ["--rules", str(path)]

    return write


@pytest.fixture
def watch(start, tmp_path: Path) -> Callable[..., "Watcher"]:
    """The daemon over the logs, with stall limits that fit a training of seconds."""

    def begin(*arguments: str) -> Watcher:
        (tmp_path / "ldlm-monitor.toml").write_text(
            "evaluation_interval = 1\n[stall]\nlimit_seconds = { running = 6 }\n"
        )
        return Watcher(start("train_logs/*.log", "--interval", "3600", *arguments))

    return begin


class Watcher:
    """What the daemon reports."""

    def __init__(self, daemon) -> None:
        self.daemon = daemon
        self._fired: dict[str, str] = {}

    def until(self, alert: str) -> str:
        """The line of an alert, once it has fired; those before it are kept."""
        deadline = time.monotonic() + PATIENCE
        while alert not in self._fired:
            assert time.monotonic() < deadline, self._fired
            self._take()
            time.sleep(0.05)
        return self._fired[alert]

    def step(self, step: int) -> None:
        """Return once the run has come so far."""
        deadline = time.monotonic() + PATIENCE
        while self.last_step() < step:
            assert time.monotonic() < deadline, self.daemon.get("/metrics")
            time.sleep(0.1)

    def last_step(self) -> float:
        lines = self.daemon.get("/metrics").splitlines()
        steps = [line for line in lines if line.startswith("ldlm_train_step{")]
        return max((float(line.rpartition(" ")[2]) for line in steps), default=-1)

    def fired(self) -> set[str]:
        """Alerts that have fired so far; that none fired twice is checked on the way."""
        self._take()
        return set(self._fired)

    def _take(self) -> None:
        for line in self.daemon.printed():
            if "FIRING" in line and QUIET not in line:
                name = line.split("FIRING", 1)[1].split()[0]
                assert name not in self._fired, (self._fired[name], line)
                self._fired[name] = line


def of_rank(line: str, rank: int) -> bool:
    """Whether the line of an alert names this rank."""
    return f"/{rank} " in line or f"rank {rank}" in line


needs_callback = pytest.mark.skipif(
    not HAS_CALLBACK, reason="only the callback's files say what each rank does"
)


def test_a_healthy_training_raises_nothing_and_ends_well(launch: Launch, watch) -> None:
    watcher = watch()
    process = launch(L2T_STEPS="120", L2T_EVAL_FREQ="50", L2T_SAVE_FREQ="40")
    assert process.wait(PATIENCE) == 0
    watcher.daemon.wait_for_metric('state="finished"} 1')
    watcher.step(119)
    assert watcher.fired() == {"RunFinished"}


@pytest.mark.long  # tests/together/live/test_gloo_faults.py has a NaN of two ranks in each run
def test_nan_a_full_disk_and_a_signal_in_one_run(launch: Launch, watch, tmp_path: Path) -> None:
    """None of them ends it: the step is skipped on all ranks, and SIGTERM stops in good order."""
    watcher = watch()
    faults = "nan_loss@50:rank=1,disk_full@60,sigterm@80:rank=1"
    process = launch(faults, L2T_SAVE_FREQ="30")
    line = watcher.until("NonFiniteLoss")
    assert of_rank(line, 1)
    assert process.wait(PATIENCE) == 0
    watcher.until("DiskFull")
    rows = _rows(tmp_path)
    assert [row["step"] for row in rows if row["grad_norm"] == "NaN"] == [50]
    assert rows[-1]["skipped"] == 1
    assert 80 <= rows[-1]["step"] < 83
    assert watcher.fired() == {"NonFiniteLoss", "NonFiniteGradient", "DiskFull"}
    saved = {path.name for path in (tmp_path / "saved/l2t").glob("step_*")}
    assert saved == {"step_00000030", f"step_{rows[-1]['step'] + 1:08d}"}


@pytest.mark.long  # recorded and injected kills are judged in each run; here it costs 18 s of CPU
def test_a_rank_that_is_killed_is_named(launch: Launch, watch) -> None:
    watcher = watch()
    process = launch("kill@40:rank=1")
    line = watcher.until("TrainingCrashed")
    assert of_rank(line, 1)
    assert process.wait(PATIENCE) != 0
    assert watcher.fired() == {"TrainingCrashed"}


@pytest.mark.long
def test_a_rank_without_memory_is_named(launch: Launch, watch) -> None:
    watcher = watch()
    process = launch("oom@40:rank=1")
    watcher.until("OutOfMemory")
    line = watcher.until("TrainingCrashed")
    assert of_rank(line, 1)
    assert process.wait(PATIENCE) != 0
    assert watcher.fired() == {"OutOfMemory", "TrainingCrashed"}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("hang@50:rank=1:kind=gil", marks=pytest.mark.long),
        pytest.param("loader_stall@50:rank=1", marks=pytest.mark.long),
    ],
)
def test_a_rank_that_hangs_stalls_the_training(launch: Launch, watch, fault: str) -> None:
    watcher = watch()
    launch(fault)
    watcher.until("TrainingStalled")
    assert watcher.last_step() in (48, 49)
    assert watcher.fired() == {"TrainingStalled"}


@pytest.mark.long  # replays name slow ranks in each run; here it costs a minute
@needs_callback
def test_a_slow_rank_is_named(launch: Launch, watch, hasty) -> None:
    watcher = watch(*hasty("RankStraggling"))
    launch("slow@100:rank=1:for=100000:seconds=0.1")
    line = watcher.until("RankStraggling")
    assert of_rank(line, 1)
    assert watcher.fired() == {"RankStraggling"}


@pytest.mark.long  # the detectors have tests of their own; here it costs half a minute
def test_a_spike_and_an_exploding_gradient(launch: Launch, watch) -> None:
    """Steps take a tenth of a second: the monitor looks once a second."""
    watcher = watch()
    spike = "loss_spike@60:rank=0:for=4:x=20"
    launch(f"slow@0:for=9999:seconds=0.1,{spike},grad_explosion@100:for=9999:x=1e3")
    line = watcher.until("LossSpike")
    assert of_rank(line, 0) or not HAS_CALLBACK
    watcher.until("GradientNormHigh")
    assert watcher.fired() == {"LossSpike", "GradientNormHigh"}


def test_what_cannot_work_is_refused_before_anything_starts(launch: Launch, tmp_path: Path) -> None:
    process = launch(EFFECTIVE_BATCH_SIZE="100")
    assert process.wait(PATIENCE) == 2
    assert (
        "effective batch 100 (from step 0) is no multiple of 8"
        in (tmp_path / "console").read_text()
    )
    assert list((tmp_path / "train_logs").iterdir()) == []


@pytest.mark.long  # two starts of two ranks; tests/together/supervise restarts in each run
def test_a_restarted_run_goes_on_from_its_checkpoint(launch: Launch, watch, tmp_path: Path) -> None:
    """torchrun restarts both ranks; the rows of both attempts are there."""
    watcher = watch()
    process = launch("kill@50:rank=1", L2T_STEPS="60", L2T_SAVE_FREQ="20", MAX_RESTARTS="1")
    assert process.wait(PATIENCE) == 0
    rows = _rows(tmp_path)
    attempts = [(row["attempt"], row["step"]) for row in rows]
    assert attempts[-1] == (1, 59)
    assert [step for attempt, step in attempts if attempt == 1] == list(range(40, 60))
    assert watcher.fired() <= {"TrainingCrashed", "RankLost"}


def _rows(tmp_path: Path) -> list[dict[str, object]]:
    text = (tmp_path / "saved/l2t/training_log.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
