"""Samples a rank's GPU through the driver (NVML), every few seconds, in a thread of its own."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SAMPLE_SECONDS = 5.0
"""Between two samples, and before the first: enough for a trend, too few to cost anything."""


class GpuSampler:
    """Samples by nvidia-ml-py every few seconds, and calls `take` with each sample.

    Without the package, the driver or a GPU it ends by itself. `local_rank` picks the
    GPU where PyTorch has not picked one.
    """

    def __init__(self, local_rank: int, take: Callable[[dict[str, float]], None]) -> None:
        self._local_rank = local_rank
        self._take = take
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ldlm-health-gpu", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop sampling. Waits half a second at most for a driver that does not answer."""
        self._stop.set()
        self._thread.join(0.5)

    def _run(self) -> None:
        """Without package or driver there are no values, and training goes on without them."""
        with suppress(Exception):
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            with suppress(Exception):
                self._sample(nvml)
            nvml.nvmlShutdown()

    def _sample(self, nvml: Any) -> None:
        """Until it is stopped, or there is no GPU from the start."""
        was_there = False
        while not self._stop.wait(SAMPLE_SECONDS):
            handle = find(nvml, self._local_rank)
            if handle is None and not was_there:
                return
            was_there = True
            # Of a GPU that fell off the bus nothing is known any more.
            self._take(sample(nvml, handle, self._local_rank))


def sample(nvml: Any, handle: Any, local_rank: int = 0) -> dict[str, float]:
    """One GPU's values under their metric names; what is not known now is left out."""

    def ask(name: str, *arguments: Any) -> Any:
        try:
            return None if handle is None else getattr(nvml, name)(handle, *arguments)
        except Exception:  # noqa: BLE001 not supported on this GPU, or it is lost
            return None

    rates, memory = ask("nvmlDeviceGetUtilizationRates"), ask("nvmlDeviceGetMemoryInfo")
    temperature = ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
    found = {
        "gpu_utilization_ratio": (getattr(rates, "gpu", None), 0.01),
        "gpu_memory_used_bytes": (getattr(memory, "used", None), 1),
        "gpu_memory_total_bytes": (getattr(memory, "total", None), 1),
        "gpu_temperature_celsius": (temperature, 1),
        "gpu_sm_clock_hertz": (ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM), 1e6),
        "gpu_memory_clock_hertz": (ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
        "gpu_power_watts": (ask("nvmlDeviceGetPowerUsage"), 1e-3),
        "memory_allocated_bytes": (_allocated(local_rank), 1),
    }
    return {
        name: float(value) * factor for name, (value, factor) in found.items() if value is not None
    }


def find(nvml: Any, local_rank: int) -> Any | None:
    """The driver's handle of the GPU that this rank trains on.

    PyTorch knows its UUID; before that, CUDA_VISIBLE_DEVICES has it; its numbers are
    the driver's where all GPUs are of one kind.
    """
    try:
        if (uuid := _torch_uuid(local_rank)) is not None:
            return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = None if visible is None else [part.strip() for part in visible.split(",")]
        # A launcher may show each rank its own GPU alone.
        chosen = str(local_rank) if names is None else names[local_rank % len(names)]
        if not chosen:
            return None
        if chosen.isdigit():
            return nvml.nvmlDeviceGetHandleByIndex(int(chosen))
        return nvml.nvmlDeviceGetHandleByUUID(chosen)
    except Exception:  # noqa: BLE001 no such GPU: the rank trains on the CPU
        return None


def _cuda(local_rank: int) -> tuple[Any, int]:
    """PyTorch's CUDA and this rank's device; None and 0 until the training has begun to use it.

    The first use creates a context, which is not ours to do.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    count = cuda.device_count() if cuda is not None and cuda.is_initialized() else 0
    return (cuda, local_rank % count) if count else (None, 0)


def _torch_uuid(local_rank: int) -> str | None:
    cuda, device = _cuda(local_rank)
    uuid = getattr(cuda.get_device_properties(device), "uuid", None) if cuda else None
    return None if uuid is None else str(uuid)


def _allocated(local_rank: int) -> float | None:
    cuda, device = _cuda(local_rank)
    stats = cuda.memory_stats(device) if cuda else {}
    return stats.get("allocated_bytes.all.current")
