"""How a rank's GPU does, by nvidia-ml-py from a driver that a C compiler makes here.

No machine with a GPU was at hand; the library is as NVIDIA's documentation has it.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ldlm_callback.device import GpuSampler

made = pytest.importorskip("tests.host.nvml.nvml_driver", reason="the driver's source is not here")
GIB, TOTAL, gpu, with_driver = made.GIB, made.TOTAL, made.gpu, made.with_driver


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver's library."""
    return made.build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(library: Path, tmp_path: Path, monkeypatch) -> Callable[[str], None]:
    """Processes that are started now have eight GPUs; how these do may be changed."""
    path = tmp_path / "nvml"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("NVML_STATE", str(path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def become(*lines: str) -> None:
        path.with_suffix(".new").write_text("\n".join(lines), encoding="utf-8")
        path.with_suffix(".new").replace(path)

    become(*(gpu(60 * GIB, f"H100-{number}") for number in range(8)))
    return become


BEGIN = """
import ldlm_callback.device as device
device.SAMPLE_SECONDS = 0.05
callback = HealthCallback(out=sys.argv[1])
"""
SAMPLES = f"""{BEGIN}
while not callback._session._rows.extra:
    time.sleep(0.01)
"""
STEPS = """
callback.on_step(1, loss=1.0)
callback.close()
"""


SAMPLED = {
    "gpu_utilization_ratio": 0.87,
    "gpu_memory_used_bytes": 60 * GIB,
    "gpu_memory_total_bytes": TOTAL,
    "gpu_temperature_celsius": 71.0,
    "gpu_sm_clock_hertz": 1.98e9,
    "gpu_memory_clock_hertz": 2.619e9,
    "gpu_ecc_errors_total": 3,
    "gpu_throttled_power": 0,
    "gpu_throttled_thermal": 1,
    "gpu_throttled_hardware": 0,
}
"""What is sampled of the driver's first GPU."""
EXPORTED = {
    f"ldlm_train_{name}" for name in ("loss", "step", "step_seconds", "learning_rate", "metric")
}
"""The metrics that a rank serves of the steps below."""


def said_of_the_gpu(training) -> dict[str, Any]:
    """What the row of its only step has of the GPU, once the training has ended."""
    assert training.end() == (0, "")
    (row,) = [row for row in training.rows() if row["type"] == "step"]
    return {name: value for name, value in row.items() if name.startswith(("gpu", "memory"))}


@with_driver
def test_what_the_driver_says_is_sampled_in_base_units_and_the_rest_left_out(train, driver) -> None:
    assert said_of_the_gpu(train(SAMPLES + STEPS)) == SAMPLED


@with_driver
def test_of_a_gpu_that_falls_off_the_bus_nothing_is_known_any_more(train, driver) -> None:
    training = train(
        f"""{SAMPLES}
print("seen", flush=True)
while callback._session._rows.extra:
    time.sleep(0.01)
{STEPS}"""
    )
    training.said("seen")
    driver("lost")
    assert said_of_the_gpu(training) == {}


@with_driver
def test_a_driver_that_does_not_return_holds_up_neither_steps_nor_the_end(train, driver) -> None:
    driver("stuck")
    training = train(
        f"""{BEGIN}
while "pynvml" not in sys.modules:
    time.sleep(0.01)
for step in range(1000):
    callback.on_step(step, loss=1.0)
callback.close()
"""
    )
    assert training.end() == (0, "")
    assert len([row for row in training.rows() if row["type"] == "step"]) == 1000


@with_driver
def test_a_rank_finds_its_gpu_by_what_is_visible(driver) -> None:
    program = """
import json, os, sys, pynvml
from ldlm_callback.device import find
pynvml.nvmlInit()
found = []
for visible, rank in json.loads(sys.argv[1]):
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    handle = find(pynvml, rank)
    found.append(handle and pynvml.nvmlDeviceGetName(handle))
print(json.dumps(found))
"""
    wanted: dict[tuple[str | None, int], int | None] = {
        (None, 3): 3,
        ("4,5", 1): 5,
        ("GPU-77,GPU-6", 1): 6,
        ("GPU-77", 0): None,
        ("5", 3): 5,
        ("", 0): None,
        ("9", 0): None,
    }
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps([*wanted])],
        check=True, capture_output=True, text=True, env=os.environ,
    )  # fmt: skip
    reported = [None if number is None else f"H100-{number}" for number in wanted.values()]
    assert json.loads(done.stdout) == reported


def test_without_a_driver_the_sampler_ends_by_itself(monkeypatch) -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        pytest.skip("this machine has a driver")
    monkeypatch.setattr("ldlm_callback.device.SAMPLE_SECONDS", 0.01)
    took: list[dict[str, float]] = []
    sampler = GpuSampler(0, took.append)
    sampler._thread.join(30)
    assert (sampler._thread.is_alive(), took) == (False, [])


def test_metrics_are_served_over_http_if_asked_for(health) -> None:
    callback = health(serve=0, rank=2)
    callback.on_step(7, loss=float("nan"), lr=0.5, loss_text=1.25)
    callback.on_step(8, loss=2.5, lr=0.5, loss_text=1.25)
    deadline = time.monotonic() + 30
    while callback._session._exporter is None and time.monotonic() < deadline:
        time.sleep(0.01)
    port = callback._session._exporter.port
    lines: list[str] = []
    while 'ldlm_train_loss{rank="2",run="run_a"} 2.5' not in lines:  # the writer makes the rows
        assert time.monotonic() < deadline, lines
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert 'ldlm_train_step{rank="2",run="run_a"} 8.0' in lines
    assert 'ldlm_train_metric{name="loss_text",rank="2",run="run_a"} 1.25' in lines
    assert {line.split("{")[0] for line in lines} == EXPORTED


def test_a_port_that_is_taken_costs_the_metrics_and_nothing_else(health, reported, capfd) -> None:
    first = health(serve=0, rank=0)
    deadline = time.monotonic() + 30
    while first._session._exporter is None and time.monotonic() < deadline:
        time.sleep(0.01)
    second = health(serve=first._session._exporter.port, rank=1)
    second.on_step(1, loss=1.0)
    second.close()
    assert [row["step"] for row in reported("step", rank=1)] == [1]
    assert "no metrics on" in capfd.readouterr().err
