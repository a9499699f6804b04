"""The monitor's side of a run: looks at the alerts, and carries out what is decided."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.base.text.sanitize import redacted_arguments
from ldlm_monitor.host.probe.command_processes import CommandProcesses
from ldlm_monitor.host.supervise import evidence, slurm, stopping
from ldlm_monitor.host.supervise.launch import shells
from ldlm_monitor.host.supervise.reactions import Order, Supervisor
from ldlm_monitor.host.supervise.run_folder import RunRecord
from ldlm_monitor.host.supervise.streams import Link

DECIDE_SECONDS = 60.0
"""Seconds for which a restart waits until the log was read: a command may fail while its monitor
still starts. A choice: that takes seconds, and a monitor that cannot read must not end the run."""
LOOK_SECONDS = 0.25  # between two looks at the alerts, which are to be acted on within a second


class RunSession:
    """Carries the supervisor's orders out: `turn` until `exit_code` is known.

    `exit_code`: the command's last one, as shells give it. `asked_by`: the name of the last signal
    by which somebody asked it to end, or `ldlm-monitor stop`; "" if nobody did. `again`: the
    command that a restart runs. `requeues`: Slurm's part of a restart is done, not only noted.
    """

    def __init__(
        self,
        record: RunRecord,
        link: Link,
        supervisor: Supervisor,
        *,
        again: tuple[str, ...],
        requeues: bool = False,
    ) -> None:
        self._record = record
        self._again = again
        self._requeues = requeues
        self._jobs: slurm.SubmittedJobs | None = None
        if slurm.submits(record.command):
            self._jobs = slurm.SubmittedJobs(Path(record.log), record.folder, Path.cwd())
        self._link = link
        self._supervisor = supervisor
        self._next: Order | None = None  # after an end
        self._processes: CommandProcesses | None = None
        self.exit_code: int | None = None
        self.asked_by = ""

    def turn(self, look: Callable[[], Snapshot | None]) -> None:
        """Heed the relay, for which it waits a moment, and the alerts.

        `look` returns the present snapshot, None while what the log held is still read.
        """
        said, now = self._link.receive(LOOK_SECONDS), time.time()
        for each in said:
            self._heed(each, now)
        if not self._link.is_open and self.exit_code is None:
            self.exit_code = shells(-9)  # the relay was killed, and the command with it
        if self._jobs is not None:
            self._jobs.look()
        snapshot = look()
        self._go_on_if_due(snapshot, now)
        if snapshot is None or not self._link.is_open:
            return
        for order in self._supervisor.observe(snapshot, now):
            if order.evidence is not None:
                path = self._record.folder / f"evidence_{self._supervisor.attempt}.json"
                for line in evidence.keep(path, order.evidence, snapshot, self._own()):
                    self._link.send({"line": line})
            if order.asks and self._asks_to_stop(order.asks, snapshot, now):
                continue
            self._link.send({"note": order.note})
            if self._processes is not None:
                self._processes.look()  # while their parents live
                if order.number == signal.SIGKILL:
                    self._processes.signal(signal.SIGKILL)
            if order.number is not None:
                self._link.send({"signal": order.number})

    def _asks_to_stop(self, reason: str, snapshot: Snapshot, now: float) -> bool:
        """Ask the training to stop by itself; False where it would not, as it has no callback."""
        name = self._record.name
        run = next((each for each in snapshot.runs if each.name == name), None)
        asked = None if run is None else stopping.ask(run, name, reason, now)
        if asked is None:
            return False
        self._link.send({"note": f"{reason}: stop at step {asked.step}"})
        self._supervisor.wait_for_stop(now + asked.seconds)
        return True

    def _own(self) -> frozenset[int]:
        if self._processes is None:
            return frozenset()
        self._processes.look()
        return self._processes.pids

    def _go_on_if_due(self, snapshot: Snapshot | None, now: float) -> None:
        order, processes = self._next, self._processes
        if order is None:
            return
        if self._supervisor.kills and processes is not None and processes.is_alive:
            return
        if (due := order.start_at) is not None:
            is_read = snapshot is not None and self._has_read(snapshot)
            if now < due or (not is_read and now < due + DECIDE_SECONDS):
                return
            if snapshot is not None:
                order = self._supervisor.reconsidered(order, snapshot)
        self._next = None
        if order.start_at is not None:
            self._supervisor.begin(now)
        self._go_on(order)

    def _has_read(self, snapshot: Snapshot) -> bool:
        read = self._jobs is None or self._jobs.are_read(snapshot)
        return read and self._supervisor.has_read_end(snapshot)

    def _go_on(self, order: Order) -> None:
        """Start the command again, or let the run be over."""
        if order.note:
            self._link.send({"note": order.note})
        command = None if order.start_at is None else self._by_slurm(order)
        if command is None:
            self._link.send({"release": True})
            return
        start = {
            "command": command,
            "shown": redacted_arguments(command),
            "environment": dict(order.environment),
        }
        self._link.send({"start": start})

    def close(self) -> None:
        """Order nothing more: the command's next end is the last."""
        self._link.close()

    def _by_slurm(self, order: Order) -> tuple[str, ...] | None:
        """The command of a restart, after Slurm's part; None where Slurm starts it."""
        command, nodes = (
            self._again,
            slurm.nodes_of(order.environment.get("LDLM_EXCLUDE_NODES", "")),
        )
        line = slurm.advice(redacted_arguments(command), slurm.job_of(os.environ), nodes)
        if line and (nodes or self._requeues):
            self._link.send({"note": f"Slurm: {line}"})
        if not line or not self._requeues:
            return command
        if slurm.submits(command):
            return slurm.without(command, nodes)
        slurm.do(line)
        return None

    def _heed(self, said: Mapping[str, Any], now: float) -> None:
        if "interrupted" in said:
            self.asked_by = said["interrupted"]
            self._supervisor.interrupted()
            if self._next is not None:  # between two attempts: there will be none
                self._next = None
                self._link.send({"release": True})
        if "started" in said:
            self._processes = CommandProcesses(said["started"])
        if "ended" in said:
            self._next = self._supervisor.ended(said["ended"], now)
        if "over" in said:
            self.exit_code = shells(said["over"])
