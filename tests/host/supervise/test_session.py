"""The monitor's side of a run: what comes by the link, and what is ordered."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import AlertView, MonitorView, RunView, Snapshot
from ldlm_monitor.host.supervise import reactions
from ldlm_monitor.host.supervise.launch import shells
from ldlm_monitor.host.supervise.reactions import Reactions, Supervisor
from ldlm_monitor.host.supervise.run_folder import RunRecord, runs_dir
from ldlm_monitor.host.supervise.run_session import RunSession
from ldlm_monitor.host.supervise.streams import Link

AGAIN = ("python", "train.py", "--token", "abc")


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
