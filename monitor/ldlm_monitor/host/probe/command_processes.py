"""The processes that a command started: how much memory they use, and how they are ended."""

import contextlib
import os
import signal
from collections.abc import Callable

from ldlm_monitor.host.probe import process


class CommandProcesses:
    """A process and those of its descendants that `look` found while their parents ran.

    Descendants that leave the process group, as torchrun's workers do, are included.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: dict[int, int] = {}
        self.pids: frozenset[int] = frozenset({pid})

    def look(self) -> int:
        """Find the processes; return their resident memory together, in bytes."""
        table = process.among(process.pids()).table
        self._known = {
            pid: started
            for pid, started in self._known.items()
            if pid in table and table[pid].started == started
        }
        found = {*self._known, *({self._pid} & table.keys())}
        before = -1
        while len(found) != before:
            before = len(found)
            found |= {pid for pid, each in table.items() if each.parent in found}
        self._known = {pid: table[pid].started for pid in found}
        # Zombies and dead processes (states Z and X of proc(5)) use no memory.
        self.pids = frozenset(pid for pid in found if table[pid].state not in "ZX")
        return sum(map(process.resident, self.pids))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group, and to descendants that left the group."""
        self.look()
        with_group = {pid for pid in self.pids if _group(pid) == self._pid}
        if with_group:
            _send(os.killpg, self._pid, number)
        for pid in self.pids - with_group:
            found = process.look(pid)
            if found is not None and found.started == self._known.get(pid):
                _send(os.kill, pid, number)

    @property
    def is_alive(self) -> bool:
        """Whether any of the processes runs."""
        self.look()
        return bool(self.pids)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _send(kill: Callable[[int, int], None], target: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(target, number)
