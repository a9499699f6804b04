"""Samples a rank's GPU through the driver (NVML), every few seconds, in a thread of its own."""

from __future__ import annotations

import importlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ldlm_monitor.callback.heartbeat import DeviceBeat

SAMPLE_SECONDS = 5.0
"""Between two samples, and before the first: enough for a trend, too few to cost anything."""
_NAN = math.nan


class GpuSampler:
    """Samples by nvidia-ml-py every few seconds, and calls `take` with each sample.

    Without the package, the driver or a GPU it ends by itself. `local_rank` picks the
    GPU where PyTorch has not picked one.
    """

    def __init__(
        self, local_rank: int, take: Callable[[DeviceBeat], None], seconds: float | None = None
    ) -> None:
        self._local_rank = local_rank
        self._take = take
        self._seconds = SAMPLE_SECONDS if seconds is None else seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ldlm-health-gpu", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self, seconds: float = 0.5) -> None:
        """Stop sampling. Waits for a driver that does not answer `seconds` at most."""
        self._stop.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
        except Exception:  # noqa: BLE001 no package or no driver: no values
            return
        try:
            self._sample(nvml)
        except Exception:  # noqa: BLE001 training goes on without these values
            return
        finally:
            with suppress(Exception):
                nvml.nvmlShutdown()

    def _sample(self, nvml: Any) -> None:
        """Until it is stopped, or there is no GPU from the start."""
        was_there = False
        while not self._stop.wait(self._seconds):
            handle = find(nvml, self._local_rank)
            if handle is None and not was_there:
                return
            was_there = True
            # For a GPU that fell off the bus, store that its values are unknown now.
            self._take(sample(nvml, handle, time.time(), self._local_rank))


def sample(nvml: Any, handle: Any, now: float, local_rank: int = 0) -> DeviceBeat:
    """One GPU's values at `now`; NaN for what the driver does not support, or a lost GPU."""

    def ask(name: str, *arguments: Any) -> Any:
        try:
            return None if handle is None else getattr(nvml, name)(handle, *arguments)
        except Exception:  # noqa: BLE001 not supported on this GPU
            return None

    def number(value: Any, factor: float = 1.0) -> float:
        return _NAN if value is None else float(value) * factor

    rates, memory = ask("nvmlDeviceGetUtilizationRates"), ask("nvmlDeviceGetMemoryInfo")
    name = ask("nvmlDeviceGetName") or ""
    return DeviceBeat(
        time=now,
        utilization=number(getattr(rates, "gpu", None), 0.01),
        memory_utilization=number(getattr(rates, "memory", None), 0.01),
        memory_used=number(getattr(memory, "used", None)),
        memory_total=number(getattr(memory, "total", None)),
        temperature=number(ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)),
        sm_clock=number(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM), 1e6),
        memory_clock=number(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
        power=number(ask("nvmlDeviceGetPowerUsage"), 1e-3),
        memory_allocated=_allocated(local_rank),
        name=name if isinstance(name, bytes) else str(name).encode(),
    )


def values(beat: DeviceBeat) -> dict[str, float]:
    """The same as values of a row, under their metric names; what is unknown is left out."""
    found = {
        "gpu_utilization_ratio": beat.utilization,
        "gpu_memory_used_bytes": beat.memory_used,
        "gpu_memory_total_bytes": beat.memory_total,
        "gpu_temperature_celsius": beat.temperature,
        "gpu_sm_clock_hertz": beat.sm_clock,
        "gpu_memory_clock_hertz": beat.memory_clock,
        "gpu_power_watts": beat.power,
        "memory_allocated_bytes": beat.memory_allocated,
    }
    return {name: value for name, value in found.items() if not math.isnan(value)}


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


def _allocated(local_rank: int) -> float:
    cuda, device = _cuda(local_rank)
    stats = cuda.memory_stats(device) if cuda else {}
    return float(stats.get("allocated_bytes.all.current", _NAN))
