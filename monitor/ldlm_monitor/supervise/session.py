"""The monitor's side of a run: looks at the alerts, and carries out what is decided."""

import contextlib
import json
import select
from collections.abc import Mapping
from typing import Any

from ldlm_monitor.model.view import Snapshot
from ldlm_monitor.supervise.launch import RunLaunch, shells
from ldlm_monitor.supervise.reactions import Order, Supervisor
from ldlm_monitor.supervise.streams import Link

LOOK_SECONDS = 0.25  # between two looks at the alerts, which are to be acted on within a second


class RunSession:
    """Carries the supervisor's orders out: `turn` until `exit_code` is known.

    `exit_code`: the command's last one, as shells give it.
    """

    def __init__(self, launch: RunLaunch, link: Link, supervisor: Supervisor) -> None:
        self._launch = launch
        self._link = link
        self._supervisor = supervisor
        self._restart: Order | None = None
        self.exit_code: int | None = None

    def wait(self) -> None:
        """Return when the relay has something to report, after a moment at the latest."""
        select.select([self._link], [], [], LOOK_SECONDS)

    def turn(self, snapshot: Snapshot | None, now: float) -> None:
        """Heed the relay and the alerts of `snapshot` (None: not yet any). `now`: Unix seconds."""
        if select.select([self._link], [], [], 0)[0]:
            for said in self._link.receive():
                self._heed(said, now)
            if not self._link.is_open and self.exit_code is None:
                self.exit_code = shells(-9)  # the relay was killed, and the command with it
        order = self._restart
        if order is not None and order.start_at is not None and now >= order.start_at:
            self._restart = None
            self._start(
                order if snapshot is None else self._supervisor.reconsidered(order, snapshot)
            )
        if snapshot is None or not self._link.is_open:
            return
        for order in self._supervisor.observe(snapshot, now):
            if order.evidence:
                self._keep_evidence(snapshot)
            self._link.send({"note": order.note})
            if order.number is not None:
                self._link.send({"signal": order.number})

    def _start(self, order: Order) -> None:
        if order.note:
            self._link.send({"note": order.note})
        if order.release:
            self._link.send({"release": True})
            return
        command = self._launch.resume_command or self._launch.command
        environment = dict(order.environment)
        self._link.send({"start": {"command": command, "environment": environment}})

    def _heed(self, said: Mapping[str, Any], now: float) -> None:
        if "interrupted" in said:
            self._supervisor.interrupted()
            if self._restart is not None:  # between two attempts: there will be none
                self._restart = None
                self._link.send({"release": True})
        if "ended" in said:
            order = self._supervisor.ended(said["ended"], now)
            if order.note:
                self._link.send({"note": order.note})
            if order.release:
                self._link.send({"release": True})
            else:
                self._restart = order
        if "over" in said:
            self.exit_code = shells(said["over"])

    def _keep_evidence(self, snapshot: Snapshot) -> None:
        """Write the run's incidents and what its host showed, which a kill would end."""
        name = self._launch.name
        kept = {
            "incidents": [
                each.model_dump(mode="json") for each in snapshot.incidents if each.run == name
            ],
            "events": [
                {"kind": each.kind, "rank": each.rank, "message": each.message, **each.fields}
                for each in snapshot.events
                if each.run == name
            ],
        }
        path = self._launch.folder / f"evidence_{self._supervisor.attempt}.json"
        with contextlib.suppress(OSError):  # a full disk: the incident stays in the outbox
            path.write_text(json.dumps(kept, indent=1, default=str), encoding="utf-8")
