"""The monitor's side of a run: what comes by the link, and what is ordered."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ldlm_callback.rank import Beat, HeartbeatPage, Identity
from ldlm_callback.stop_request import read_request
from ldlm_monitor.base.incident_view import DecisionView
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import AlertView, MonitorView, RunView, Snapshot
from ldlm_monitor.host.supervise import reactions
from ldlm_monitor.host.supervise.launch import shells
from ldlm_monitor.host.supervise.reactions import Reactions, Supervisor
from ldlm_monitor.host.supervise.run_folder import RunRecord, runs_dir
from ldlm_monitor.host.supervise.run_session import RunSession
from ldlm_monitor.host.supervise.streams import Link

AGAIN = ("python", "train.py", "--password", "hunter2")


class Relay:
    """The relay's end of the monitor's link."""

    def __init__(self) -> None:
        ours, self.other = socket.socketpair()
        self.other.setblocking(False)
        self.link = Link(ours.detach())
        self.reader = Link(os.dup(self.other.fileno()))

    def says(self, text: str) -> None:
        self.other.sendall(text.encode() + b"\n")

    def orders(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        while said := self.reader.receive(0.0):
            found += said
        return found

    def close(self) -> None:
        self.other.close()
        self.reader.close()


@pytest.fixture
def relay() -> Iterator[Relay]:
    made = Relay()
    yield made
    made.close()
    made.link.close()


@pytest.fixture(autouse=True)
def outside_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def session(relay: Relay, *on: str, requeues: bool = False) -> RunSession:
    record = RunRecord(
        name="train_1", command=("python",), directory="/", log="/a.log", started_at=0.0
    )
    (runs_dir() / "train_1").mkdir(parents=True, exist_ok=True)
    supervisor = Supervisor(Reactions.read(on, "5/24h"), "train_1", 0.0)
    return RunSession(record, relay.link, supervisor, again=AGAIN, requeues=requeues)


def snapshot(*alerts: str) -> Snapshot:
    run = RunView(
        name="train_1", framework="", world_size=None, state="running", health="HEALTHY", step=7,
        total_steps=None, epoch=None, progress=None, eta_seconds=None, started_at=None,
        last_progress_at=None, stall_limit_seconds=None, ended_at=None, files=(), statistics={},
        event_counts={}, skipped_steps=0, settings={},
    )  # fmt: skip
    firing = tuple(
        AlertView(
            name=name, state="firing", labels={"run": "train_1", "severity": "critical"},
            annotations={}, value=1.0, active_at=1.0, fired_at=1.0, position=None,
        )
        for name in alerts
    )  # fmt: skip
    return Snapshot(
        version=1, at=1.0, runs=(run,), alerts=firing, events=(), monitor=MonitorView.fresh(),
        points=(),
    )  # fmt: skip


def nothing() -> None:
    return None


def test_an_end_that_nothing_answers_releases_the_relay(relay: Relay) -> None:
    watching = session(relay)
    relay.says('{"ended": 3}')
    watching.turn(nothing)
    assert relay.orders() == [{"release": True}]
    assert watching.exit_code is None
    relay.says('{"over": 3}')
    watching.turn(nothing)
    assert watching.exit_code == 3


def test_a_signal_gives_the_exit_code_of_shells(relay: Relay) -> None:
    watching = session(relay)
    relay.says('{"over": -15}')
    watching.turn(nothing)
    assert watching.exit_code == shells(-15) == 143
    assert [shells(code) for code in (0, 1, 255, -9)] == [0, 1, 255, 137]


def test_a_relay_that_is_gone_was_killed_with_its_command(relay: Relay) -> None:
    watching = session(relay)
    relay.close()
    watching.turn(snapshot)
    assert watching.exit_code == 137


def test_who_asked_for_the_end_is_kept(relay: Relay) -> None:
    watching = session(relay, "crash=restart:3")
    assert watching.asked_by == ""
    relay.says('{"interrupted": "SIGTERM"}\n{"ended": -15}')
    watching.turn(snapshot)
    assert watching.asked_by == "SIGTERM"
    assert relay.orders() == [{"release": True}]


def test_an_alert_is_answered_with_evidence_and_a_signal(relay: Relay, tmp_path: Path) -> None:
    watching = session(relay, "nan=stop")
    watching.turn(lambda: snapshot("NonFiniteLoss"))
    note, order = relay.orders()
    assert str(note["note"]).startswith("NonFiniteLoss, --on nan=")
    assert order == {"signal": 15}
    assert (runs_dir() / "train_1" / "evidence_1.json").exists()
    watching.turn(lambda: snapshot("NonFiniteLoss"))
    assert relay.orders() == []


def test_a_restart_waits_until_the_log_was_read(relay: Relay) -> None:
    watching = session(relay, "crash=restart:3")
    relay.says('{"ended": 1}')
    watching.turn(nothing)
    watching.turn(nothing)
    assert relay.orders() == []


def test_a_restart_waits_for_the_end_of_the_log(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last attempt still wrote is not of the next one."""
    monkeypatch.setattr(reactions, "BACKOFF_SECONDS", 0.0)
    watching = session(relay, "crash=restart:3")
    relay.says('{"ended": 1}')
    watching.turn(snapshot)
    assert relay.orders() == []
    end = Event(
        run="train_1", rank=None, time=time.time(), kind="elastic_worker_failed",
        severity="error", message="ldlm-monitor run: the command ended with exit code 1",
        fields={}, position=Position("/a.log", 9, 900),
    )  # fmt: skip
    watching.turn(lambda: snapshot().model_copy(update={"events": (end,)}))
    (note, start) = relay.orders()
    assert str(note["note"]).startswith("restart 1 of 5")
    assert "start" in start


LEAVES_A_PROCESS = """
import signal, subprocess, sys, time
ignores = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
left = [sys.executable, "-c", ignores + "; time.sleep(600)"]
subprocess.Popen(left, start_new_session=True).wait()
"""


def test_a_process_that_survives_the_command_is_killed_before_the_run_is_over(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reactions, "GRACE_SECONDS", 1.0)
    command = subprocess.Popen(
        [sys.executable, "-c", LEAVES_A_PROCESS], stdout=subprocess.PIPE, start_new_session=True
    )
    with command:
        assert command.stdout is not None
        command.stdout.readline()
        watching = session(relay, "nan=kill")
        relay.says(json.dumps({"started": command.pid}))
        watching.turn(lambda: snapshot("NonFiniteLoss"))
        assert {"signal": 15} in relay.orders()
        command.terminate()
        assert command.wait() == -15
        relay.says('{"ended": -15}')
        ordered: list[dict[str, object]] = []
        while {"release": True} not in ordered:
            watching.turn(snapshot)
            ordered += relay.orders()
        assert command.stdout.read() == b""  # nobody has it open any more
    assert {"note": "a process that it left did not end: SIGKILL"} in ordered


def test_a_signal_between_two_attempts_releases_the_relay(relay: Relay) -> None:
    watching = session(relay, "crash=restart:3")
    relay.says('{"ended": 1}')
    watching.turn(nothing)
    relay.says('{"interrupted": "ldlm-monitor stop"}')
    watching.turn(nothing)
    assert relay.orders() == [{"release": True}]
    assert watching.asked_by == "ldlm-monitor stop"


def test_a_session_that_is_closed_orders_nothing(relay: Relay) -> None:
    watching = session(relay, "nan=stop")
    watching.close()
    assert relay.orders() == []
    assert not relay.reader.is_open


def ended(at: float) -> Event:
    """The line at the end of an attempt."""
    return Event(
        run="train_1", rank=None, time=at, kind="elastic_worker_failed", severity="error",
        message="ldlm-monitor run: the command ended with exit code 1", fields={},
        position=Position("/a.log", 9, 900),
    )  # fmt: skip


def decided(*events: Event, **decision: object) -> Snapshot:
    """A picture of the whole log, in which the failure is decided so."""
    facts = {"confidence": "probable", "reasons": ("x",), "rule": "r", "if_wrong": ""}
    (run,) = snapshot().runs
    view = DecisionView.model_validate({"decision": "RESTART", **facts, **decision})
    runs = (run.model_copy(update={"decision": view}),)
    return snapshot().model_copy(update={"events": events, "runs": runs})


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reactions, "BACKOFF_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_restart_runs_the_whole_command_and_shows_it_without_secrets(relay: Relay) -> None:
    watching = session(relay, "crash=restart:3")
    relay.says('{"ended": 1}')
    watching.turn(lambda: decided(ended(time.time()), rollback_step=40))
    note, order = relay.orders()
    assert ", from step 40; decided: RESTART" in str(note["note"])
    assert order == {
        "start": {
            "command": list(AGAIN),
            "shown": ["python", "train.py", "--password", "[redacted]"],
            "environment": {"LDLM_ATTEMPT": "2", "LDLM_RESUME_STEP": "40"},
        }
    }
    watching.turn(lambda: decided(ended(time.time())))
    assert relay.orders() == [], "it is ordered once"


@pytest.mark.usefixtures("at_once")
def test_a_decision_to_stop_lets_the_run_be_over(relay: Relay) -> None:
    watching = session(relay, "crash=restart:3")
    relay.says('{"ended": 1}')
    watching.turn(lambda: decided(ended(time.time()), decision="STOP"))
    note, order = relay.orders()
    assert str(note["note"]).startswith("no restart: STOP")
    assert order == {"release": True}


@pytest.mark.usefixtures("at_once")
def test_a_monitor_that_cannot_read_does_not_end_the_run(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = session(relay, "crash=restart:3")
    relay.says('{"ended": 1}')
    watching.turn(nothing)
    began = time.time()
    for late, orders in ((59.0, 0), (60.5, 2)):
        with monkeypatch.context() as later:
            later.setattr(time, "time", partial(float, began + late))
            watching.turn(nothing)
        assert len(relay.orders()) == orders


@pytest.mark.parametrize("heeds", [True, False], ids=["asks", "does not ask"])
def test_a_training_that_asks_whether_to_stop_gets_a_request_and_any_other_a_signal(
    relay: Relay, tmp_path: Path, heeds: bool
) -> None:
    page = HeartbeatPage(
        tmp_path / "heartbeat_rank0",
        Identity(7, 0, 0, 0, 0, socket.gethostname().encode(), b"", b""),
    )
    page.beat(Beat(step=40, time=time.time()))
    if heeds:
        page.heed_stop()
    page.sync()
    seen = snapshot("NonFiniteLoss")
    facts = {"files": (str(tmp_path / "health_rank0.jsonl"),), "step_seconds": 1.0}
    (run,) = seen.runs
    session(relay, "nan=stop").turn(
        lambda: seen.model_copy(update={"runs": (run.model_copy(update=facts),)})
    )
    said = [each for each in relay.orders() if "line" not in each]
    if heeds:
        assert said == [{"note": "NonFiniteLoss, --on nan=stop: stop at step 50"}]
    else:
        assert said == [{"note": "NonFiniteLoss, --on nan=stop: SIGTERM"}, {"signal": 15}]
    assert (read_request(tmp_path, "train_1") is not None) == heeds


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of Slurm, whose scontrol writes down what it is asked."""
    asked = tmp_path / "asked"
    program = tmp_path / "bin/scontrol"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setattr(reactions, "BACKOFF_SECONDS", 0.0)
    return asked


def test_in_a_job_what_to_type_without_the_node_is_noted_and_the_command_started_here(
    relay: Relay, slurm: Path
) -> None:
    watching = session(relay, "crash=restart:3")
    relay.says('{"ended": 1}')
    watching.turn(lambda: decided(ended(time.time()), node="gpu07"))
    _, note, order = relay.orders()
    assert str(note["note"]).startswith("Slurm: scontrol requeuehold 12 && ")
    assert "ExcNodeList=gpu07" in str(note["note"])
    assert "start" in order
    assert not slurm.exists()


def test_without_a_bad_node_nothing_is_noted_of_slurm(relay: Relay, slurm: Path) -> None:
    watching = session(relay, "crash=restart:3")
    relay.says('{"ended": 1}')
    watching.turn(lambda: decided(ended(time.time())))
    assert [next(iter(each)) for each in relay.orders()] == ["note", "start"]


def test_where_it_may_the_session_requeues_its_job_and_starts_nothing_here(
    relay: Relay, slurm: Path
) -> None:
    watching = session(relay, "crash=restart:3", requeues=True)
    relay.says('{"ended": 1}')
    watching.turn(lambda: decided(ended(time.time())))
    *_, note, order = relay.orders()
    assert note == {"note": "Slurm: scontrol requeue 12"}
    assert order == {"release": True}
    assert slurm.read_text() == "requeue 12\n"


def test_a_job_that_the_command_submits_is_submitted_again_without_the_node(
    relay: Relay, slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the restart waits until the output of the job was read, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sh").touch()
    log = tmp_path / "a.log"
    log.write_text("Submitted batch job 7\n")
    command = ("sbatch", "a.sh")
    record = RunRecord(name="train_1", command=command, directory="/", log=str(log), started_at=0.0)
    record.folder.mkdir(parents=True)
    acting = Supervisor(Reactions.read(["crash=restart:3"], "5/24h"), "train_1", 0.0)
    watching = RunSession(record, relay.link, acting, again=command, requeues=True)
    relay.says('{"ended": 1}')
    seen = decided(ended(time.time()), node="gpu07")
    watching.turn(lambda: seen)
    assert relay.orders() == []
    job = record.folder / "job_7.out"
    assert job.readlink() == tmp_path / "slurm-7.out"
    (run,) = seen.runs
    runs = (run.model_copy(update={"files": (str(job),)}),)
    watching.turn(lambda: seen.model_copy(update={"runs": runs}))
    *_, order = relay.orders()
    assert order["start"]["command"] == ["sbatch", "--exclude=gpu07", "a.sh"]  # type: ignore[index]
