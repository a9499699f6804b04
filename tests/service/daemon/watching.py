"""The daemon's pump in the process of a test: real files and state, time as an argument."""

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.dispatcher import Dispatcher
from ldlm_monitor.service.daemon.pump import Pump
from ldlm_monitor.service.notify.message import Receipt
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.policy import StreamPolicy
from ldlm_monitor.service.state.state_store import StateStore

NOW = 1_769_681_700.0
"""2026-01-29 10:15:00 UTC: when the logs of these tests begin."""
RUN = "train_20260129_101500"
SLACK = "slack"


class PollingWaker:
    """Waits for nothing and watches nothing: each turn looks at every file."""

    polling = True

    def watches(self, folder: Path) -> bool:
        del folder
        return False

    def watch(self, folders: Collection[Path]) -> None:
        del folders

    def ring(self, path: Path) -> None:
        del path


class Watching:
    """A pump whose turns a test calls, and what it has to send; it can be started again."""

    outbox: Outbox
    ledger: StateStore
    pump: Pump

    def start(
        self,
        settings: Settings,
        state: Path,
        *,
        receivers: Collection[str] = (SLACK,),
        dispatcher: Callable[[Outbox, list[str]], Dispatcher] = Dispatcher,
        waker: PollingWaker | None = None,
        policies: Mapping[str, StreamPolicy] = MappingProxyType({}),
        **parts: Any,
    ) -> None:
        """Make a pump that keeps its state in the folder `state`; `parts` are the pump's own."""
        state.mkdir(exist_ok=True)
        self.outbox = Outbox(state / "outbox.sqlite", policies)
        self.ledger = StateStore(state / "ledger.sqlite")
        dispatching = dispatcher(self.outbox, list(receivers))
        self.pump = Pump(
            settings, self.outbox, self.ledger, dispatching, waker or PollingWaker(), **parts
        )

    def close(self) -> None:
        """End as the daemon does: the state is committed."""
        self.pump.close()
        self._release()

    def kill(self) -> None:
        """End at once: nothing is kept that was not kept before."""
        self.pump.follower.close()
        self._release()

    def _release(self) -> None:
        self.outbox.close()
        self.ledger.close()

    def firing(self) -> set[str]:
        """Names of the alerts that fire, but the one that always does."""
        alerts = self.pump.monitor.snapshot().alerts
        return {alert.name for alert in alerts if alert.state == "firing"} - {"Watchdog"}

    def reported(self) -> list[str]:
        """Alert and state of everything that waits for Slack, which then has it."""
        found = []
        while (pending := self.outbox.due(SLACK, NOW + 1e6)) is not None:
            found.append(f"{pending.message.lead.alert} {pending.message.lead.state}")
            self.outbox.accepted(pending, NOW, Receipt())
        return found


def append(path: Path, data: str | bytes, at: float) -> None:
    """Write to the end of a file, which then was last written at that time (Unix seconds)."""
    with path.open("ab") as file:
        file.write(data.encode() if isinstance(data, str) else data)
    os.utime(path, (at, at))


def bars(first: int, last: int, end: str = "\r") -> str:
    """A progress bar of each step, one a second."""
    return "".join(
        f"Training:   1%|▏         | {step}/9500 [{step // 60:02d}:{step % 60:02d}<9:00:00,  "
        f"1.00it/s, Epoch=0/1, Progress=1.0%, Loss=2.{5000 + step * 37 % 991}, Text=2.5]{end}"
        for step in range(first, last)
    )
