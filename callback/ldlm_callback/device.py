"""The accelerator: copies values from it without waiting, and samples its driver.

The values of a step are stacked on the device and copied to pinned memory on the stream that
made them; a change of that memory shows that they arrived. The driver (NVML) is asked every few
seconds, in a thread of its own. PyTorch is never imported here: if there are tensors, the
training has imported it.
"""

import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

SLOTS = 32
"""Steps whose values may be under way; values of more are lost. A device is few steps behind."""
WIDTH = 64  # values of a slot; more take several. A choice: few losses have more; pins 8 KiB
_UNWRITTEN = 0x7FC0DEAD
"""Bits of a float32 NaN that no arithmetic makes: cells have it until the copy reaches them."""
_BLANK = _UNWRITTEN.to_bytes(4, sys.byteorder) * WIDTH  # four bytes a float32
SAMPLE_SECONDS = 5.0
"""Seconds before each sample of the driver: shorter costs more, longer misses peaks of memory."""

THROTTLED = {"power": 0x04 | 0x80, "thermal": 0x20 | 0x40, "hardware": 0x08}
"""Why the clock is held down: bits of nvmlClocksThrottleReason*, by software and by hardware. Those
of an idle GPU and of clocks that somebody set are none: they hold nothing down that is wanted."""
_UNCORRECTED = (1, 0)  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC: since driver's start


class DeviceCopies:
    """The pinned memory of one device, and the copies that are under way into it.

    The memory itself shows that values arrived. Asking the driver would cost the loop a call, and
    from another thread it would invalidate a CUDA graph that is being captured.
    """

    def __init__(self, device: Any) -> None:
        torch = sys.modules["torch"]
        self._torch = torch
        pin = device.type != "cpu"
        self._ring = torch.empty(SLOTS, WIDTH, dtype=torch.float32, pin_memory=pin)
        self._free = list(range(SLOTS))
        self._views: dict[tuple[int, int], Any] = {}

    def start(self, tensors: Sequence[Any]) -> int | None:
        """Copy one-element tensors to a slot, for `read`; None if none is free or wide enough."""
        if not self._free or len(tensors) > WIDTH:
            return None
        float32 = self._torch.float32
        flat = [
            (each if each.dtype is float32 else each.to(float32)).reshape(()) for each in tensors
        ]
        slot, count = self._free.pop(), len(flat)
        try:
            cells = self._cells(slot, count)
            ctypes.memmove(cells.data_ptr(), _BLANK, 4 * count)
            stacked = self._torch.stack(flat) if count > 1 else flat[0].reshape(1)
            cells.copy_(stacked, non_blocking=True)
            return slot
        except BaseException:  # Ctrl-C too: the slot must not be lost
            self._free.append(slot)
            raise

    def read(self, slot: int, count: int) -> list[float] | None:
        """The values in the slot, which is free afterwards; None while they are under way."""
        cells = self._cells(slot, count)
        words = (ctypes.c_uint32 * count).from_address(cells.data_ptr())
        if _UNWRITTEN in tuple(words):
            return None
        values: list[float] = cells.tolist()
        self._free.append(slot)
        return values

    def _cells(self, slot: int, count: int) -> Any:
        view = self._views.get((slot, count))
        if view is None:
            view = self._views[slot, count] = self._ring[slot, :count]
        return view


class LateArrays:
    """Arrays of JAX, or of its kind, whose values are being computed: read once they are there.

    Their copies to host memory begin at once; asking whether they are ready waits for nothing.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = arrays
        for each in arrays:
            with suppress(Exception):  # without it, reading copies
                each.copy_to_host_async()

    def read(self, slot: int, count: int) -> list[Any] | None:
        """The values; None while they are computed. One that cannot be read stays as it is."""
        del slot, count
        try:
            if not all(each.is_ready() for each in self._arrays):
                return None
        except Exception:  # noqa: BLE001 its memory was given to another computation
            return list(self._arrays)
        return [_value(each) for each in self._arrays]


def _value(array: Any) -> Any:
    try:
        return float(array)
    except Exception:  # noqa: BLE001 of several elements, on other hosts, or gone
        return array


def is_late(value: Any) -> bool:
    """Whether it is an array of one element whose value may still be computed, as JAX has them."""
    has_one = hasattr(value, "is_ready") and getattr(value, "size", None) == 1
    return has_one and hasattr(value, "copy_to_host_async")


def is_elsewhere(value: Any) -> bool:
    """Whether reading it may wait for a device or a computation: an array that is not in NumPy."""
    if any(f"{base.__module__}.".startswith("numpy.") for base in type(value).__mro__):
        return False
    return any(hasattr(value, name) for name in ("__array__", "__dlpack__", "is_ready", "device"))


def is_tensor(value: Any) -> bool:
    """Whether it is a PyTorch tensor, without importing PyTorch."""
    return hasattr(value, "is_cpu") and hasattr(value, "detach")


def local_value(tensor: Any) -> Any | None:
    """The tensor, detached, if it has one element and is whole on this rank; otherwise None.

    Gathering a sharded tensor is a collective, which a callback must not start.
    """
    if hasattr(tensor, "to_local"):  # torch.distributed.tensor.DTensor
        if not all(placement.is_replicate() for placement in tensor.placements):
            return None
        tensor = tensor.to_local()
    strided = sys.modules["torch"].strided
    if tensor.numel() != 1 or tensor.is_complex() or tensor.layout is not strided:
        return None
    return tensor.detach()


def host_number(tensor: Any) -> float:
    """The value of a tensor of one element in host memory."""
    value = tensor.tolist()
    while isinstance(value, list):
        value = value[0]
    return float(value)


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured: copies made now would be part of it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return bool(cuda is not None and cuda.is_initialized() and cuda.is_current_stream_capturing())


def leave_uncompiled(hooks: Iterable[Any]) -> None:
    """Make `torch.compile` skip the frames of these functions, and of those that they call.

    Otherwise it compiles every frame below a compiled one, even that of a function marked as
    disabled. The switch for whole frames is private (torch 2.13); if it is missing, the functions
    still work, but more slowly in a loop that is compiled as a whole.
    """
    if "torch" not in sys.modules:
        return
    try:
        frames = importlib.import_module("torch._C._dynamo.eval_frame")
        skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        for hook in hooks:
            frames.set_code_exec_strategy(hook.__code__, skip)
    except (ImportError, AttributeError, TypeError):
        return


class GpuSampler:
    """Samples by nvidia-ml-py every few seconds; its thread calls `take` with each sample.

    Without the package, the driver or a GPU it ends by itself. `local_rank` selects the
    GPU unless PyTorch has selected one.
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
        with suppress(Exception):  # no package or driver: the values are optional
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            with suppress(Exception):
                self._sample(nvml)
            nvml.nvmlShutdown()

    def _sample(self, nvml: Any) -> None:
        """Sample until `close`, or end at once if there is no GPU from the start."""
        was_there = False
        while not self._stop.wait(SAMPLE_SECONDS):
            handle = find(nvml, self._local_rank)
            if handle is None and not was_there:
                return
            was_there = True
            # A GPU that fell off the bus has no handle: then only PyTorch's own value is left.
            self._take(sample(nvml, handle, self._local_rank))


def sample(nvml: Any, handle: Any, local_rank: int = 0) -> dict[str, float]:
    """One GPU's available values in base units, by metric; `handle` None: only PyTorch's own."""

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
        "gpu_ecc_errors_total": (ask("nvmlDeviceGetTotalEccErrors", *_UNCORRECTED), 1),
        "memory_allocated_bytes": (_allocator(local_rank, "allocated"), 1),
        "memory_reserved_bytes": (_allocator(local_rank, "reserved"), 1),
    }
    held = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    for reason, bits in THROTTLED.items():
        found[f"gpu_throttled_{reason}"] = (None if held is None else bool(held & bits), 1)
    return {
        name: float(value) * factor for name, (value, factor) in found.items() if value is not None
    }


def find(nvml: Any, local_rank: int) -> Any | None:
    """The driver's handle of the GPU that this rank trains on; None if there is none.

    Its UUID comes from PyTorch, or from CUDA_VISIBLE_DEVICES before CUDA is initialised. Numbers
    in that variable are read as the driver's, which is right if all GPUs are of one kind.
    """
    try:
        if (uuid := _torch_uuid(local_rank)) is not None:
            return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = None if visible is None else [part.strip() for part in visible.split(",")]
        # `%`: a launcher may make only its own GPU visible to each rank.
        chosen = str(local_rank) if names is None else names[local_rank % len(names)]
        if chosen.isdigit():
            return nvml.nvmlDeviceGetHandleByIndex(int(chosen))
        return nvml.nvmlDeviceGetHandleByUUID(chosen)
    except Exception:  # noqa: BLE001 no such GPU: the rank trains on the CPU
        return None


def _cuda(local_rank: int) -> tuple[Any, int]:
    """PyTorch's CUDA and this rank's device; None and 0 until the training has initialised CUDA.

    The first use would create a context, which takes device memory: the training decides when.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    count = cuda.device_count() if cuda is not None and cuda.is_initialized() else 0
    return (cuda, local_rank % count) if count else (None, 0)


def _torch_uuid(local_rank: int) -> str | None:
    cuda, device = _cuda(local_rank)
    uuid = getattr(cuda.get_device_properties(device), "uuid", None) if cuda else None
    return None if uuid is None else str(uuid)


def _allocator(local_rank: int, what: str) -> float | None:
    """Bytes of PyTorch's allocator: `allocated` to tensors, `reserved` from the driver."""
    cuda, device = _cuda(local_rank)
    stats = cuda.memory_stats(device) if cuda else {}
    return stats.get(f"{what}_bytes.all.current")
