"""GPU memory that a command's processes use, from the driver (NVML)."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any


class GpuMemory:
    """Asks nvidia-ml-py (extra `gpu`); without it, a driver or a GPU there is nothing to tell."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self._devices: list[Any] = []
        self._before: list[int] = []
        try:
            self._nvml: Any = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._devices = [self._nvml.nvmlDeviceGetHandleByIndex(n) for n in range(count)]
            names = (self._nvml.nvmlDeviceGetName(device) for device in self._devices)
            self.names = tuple(str(name) for name in names)
            self._before = [self._used(device) for device in self._devices]
        except Exception:  # noqa: BLE001 no package, no driver: nothing to tell
            self._devices = []

    def look(self, pids: Collection[int]) -> int | None:
        """Bytes in use on the GPU that these processes fill most; None: on none.

        Where the driver counts processes otherwise, as in a container, it is what was not in
        use before the command began.
        """
        try:
            told = [self._of(device, pids) for device in self._devices]
            if not any(told):
                used = [self._used(device) for device in self._devices]
                told = [now - before for now, before in zip(used, self._before, strict=True)]
        except Exception:  # noqa: BLE001 a GPU that fell off the bus is the kernel log's to tell
            return None
        most = max(told, default=0)
        return most if most > 0 else None

    def _of(self, device: Any, pids: Collection[int]) -> int:
        found = self._nvml.nvmlDeviceGetComputeRunningProcesses(device)
        return sum(each.usedGpuMemory or 0 for each in found if each.pid in pids)

    def _used(self, device: Any) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(device).used)
