"""The processes that a command started: how much memory they use, and how they are ended."""

import contextlib
import os
import signal
from collections.abc import Callable, Collection

from ldlm_monitor.probe import process
from ldlm_monitor.probe.gpu import GpuReader


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


class GpuMemory:
    """GPU memory by nvidia-ml-py (extra `gpu`); without it or a GPU, `look` returns None."""

    def __init__(self) -> None:
        self._reader = GpuReader()
        self._before = self._used()

    def look(self, pids: Collection[int]) -> int | None:
        """Bytes that these processes use on the GPU that they fill most; None if they use none.

        If the driver lists none of these processes, as in a container with its own process
        numbers, the increase of the GPU's memory in use since the command began is returned.
        """
        now = self._used()
        used = [sum(on.get(pid) or 0 for pid in pids) for on in self._reader.processes]
        if not any(used):
            used = [at - before for at, before in zip(now, self._before, strict=False)]
        most = max(used, default=0)
        return most if most > 0 else None

    def _used(self) -> list[int]:
        return [int(gpu.values["gpu_memory_used_bytes"]) for gpu in self._reader.look()]
