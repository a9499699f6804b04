"""GPU memory of a command. No machine with a GPU was at hand: the driver's answers stand here."""

import sys
from types import SimpleNamespace

import pytest

from ldlm_monitor.bench.gpu import GpuMemory

GIB = 2**30


class Driver:
    """Two GPUs as NVML tells of them (nvidia-ml-py 13): who uses them, and how much is in use."""

    def __init__(self) -> None:
        self.used = [GIB, GIB]
        self.processes: list[list[tuple[int, int | None]]] = [[], []]

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "NVIDIA H100"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(used=self.used[handle], total=80 * GIB)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:  # noqa: N802
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.processes[handle]
        ]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", found)  # type: ignore[arg-type]
    return found


def test_the_fullest_gpu_of_the_command_counts_and_other_processes_do_not(driver: Driver) -> None:
    gpu = GpuMemory()
    driver.processes = [[(7, 10 * GIB), (99, 60 * GIB)], [(8, 12 * GIB), (7, GIB)]]
    assert gpu.look({7, 8}) == 13 * GIB
    assert gpu.names == ("NVIDIA H100", "NVIDIA H100")


def test_where_the_driver_numbers_processes_otherwise_the_increase_counts(driver: Driver) -> None:
    gpu = GpuMemory()
    driver.used = [21 * GIB, GIB]
    driver.processes = [[(12345, None)], []]
    assert gpu.look({7}) == 20 * GIB


def test_a_command_that_uses_no_gpu_has_none(driver: Driver) -> None:
    assert GpuMemory().look({7}) is None


def test_without_a_driver_there_is_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpu = GpuMemory()
    assert (gpu.look({7}), gpu.names) == (None, ())
