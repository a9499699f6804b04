"""The GPU memory of the processes that a command started."""

from collections.abc import Collection

from ldlm_monitor.probe.gpu import GpuReader


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
