"""How a rank's GPU does. No machine with one was at hand: the driver's answers are written here."""

import importlib.util
import math
import time
import urllib.request
from types import SimpleNamespace

import pytest

from ldlm_monitor.callback.gpu import GpuSampler, find, sample, values
from ldlm_monitor.callback.heartbeat import DEVICE
from ldlm_monitor.names import METRICS
from ldlm_monitor.parse.vocabulary import canonical


class Driver:
    """Answers as NVML's do (nvidia-ml-py 13); what a GPU does not support raises."""

    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if index > 7:
            raise ValueError("Invalid Argument")
        return f"index {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return f"uuid {uuid}"

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802
        return SimpleNamespace(gpu=87, memory=40)

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(used=60 * 2**30, total=80 * 2**30)

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return "NVIDIA H100"

    def nvmlDeviceGetTemperature(self, handle, sensor):  # noqa: N802
        return 71

    def nvmlDeviceGetClockInfo(self, handle, clock):  # noqa: N802
        return {1: 1980, 2: 2619}[clock]


def test_what_the_driver_says_is_told_in_base_units_and_what_it_does_not_is_left_out() -> None:
    beat = sample(Driver(), "index 0", now=5.0)
    assert (beat.time, beat.name) == (5.0, b"NVIDIA H100")
    assert math.isnan(beat.power), "this GPU does not tell"
    assert values(beat) == {
        "gpu_utilization_ratio": 0.87,
        "gpu_memory_used_bytes": 60 * 2**30,
        "gpu_memory_total_bytes": 80 * 2**30,
        "gpu_temperature_celsius": 71.0,
        "gpu_sm_clock_hertz": 1.98e9,
        "gpu_memory_clock_hertz": 2.619e9,
    }
    assert all(canonical(name) == name for name in values(beat))
    told = [getattr(beat, name) for name in beat.__dataclass_fields__]
    assert DEVICE.unpack(DEVICE.pack(1, *told, 1))[1:3] == (5.0, 0.87)


@pytest.mark.parametrize(
    ("visible", "local_rank", "handle"),
    [
        (None, 3, "index 3"),
        ("4,5", 1, "index 5"),
        ("GPU-8f2b,GPU-77aa", 1, "uuid GPU-77aa"),
        ("5", 3, "index 5"),
        ("", 0, None),
        ("9", 0, None),
    ],
)
def test_a_rank_finds_its_gpu_by_what_is_visible(monkeypatch, visible, local_rank, handle) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find(Driver(), local_rank) == handle


@pytest.mark.skipif(
    importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed"
)
def test_without_a_driver_the_sampler_ends_by_itself() -> None:
    took: list[object] = []
    sampler = GpuSampler(0, took.append, seconds=0.01)
    sampler.start()
    time.sleep(0.2)
    sampler.stop()
    assert took == [] or all(beat.memory_total > 0 for beat in took)


def test_metrics_are_served_over_http_if_asked_for(health) -> None:
    callback = health(serve=0, rank=2)
    callback.on_step(7, loss=float("nan"), lr=0.5, loss_text=1.25)
    callback.on_step(8, loss=2.5, lr=0.5, loss_text=1.25)
    deadline = time.monotonic() + 30
    while callback._session._exporter is None and time.monotonic() < deadline:
        time.sleep(0.01)
    port = callback._session._exporter.port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert 'ldlm_train_loss{rank="2",run="run_a"} 2.5' in lines
    assert 'ldlm_train_step{rank="2",run="run_a"} 8.0' in lines
    assert 'ldlm_train_metric{name="loss_text",rank="2",run="run_a"} 1.25' in lines
    assert {line.split("{")[0] for line in lines} <= set(METRICS)


def test_a_port_that_is_taken_costs_the_metrics_and_nothing_else(health, told, capfd) -> None:
    first = health(serve=0, rank=0)
    deadline = time.monotonic() + 30
    while first._session._exporter is None and time.monotonic() < deadline:
        time.sleep(0.01)
    second = health(serve=first._session._exporter.port, rank=1)
    second.on_step(1, loss=1.0)
    second.close()
    assert [row["step"] for row in told("step", rank=1)] == [1]
    assert "no metrics on" in capfd.readouterr().err
