"""GPU memory of a command, by nvidia-ml-py from a driver library that a C compiler makes here.

Its answers (tests/host/nvml/driver.c) stand in a file, which the commands write themselves.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.host.nvml.nvml_driver import GIB, build, gpu, with_driver

pytestmark = [pytest.mark.live, with_driver]
Bench = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver's library."""
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def bench(library: Path, tmp_path: Path) -> Bench:
    """Benches a shell script that may write the driver's answers to `$NVML_STATE`; its record."""

    def run(script: str, *gpus: str, code: int = 0) -> dict[str, Any]:
        state = tmp_path / "nvml"
        if gpus:
            state.write_text("".join(f"{line}\n" for line in gpus), encoding="utf-8")
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "NVML_STATE": str(state),
            "XDG_STATE_HOME": str(tmp_path / "state"),
        }
        command = [sys.executable, "-m", "ldlm_monitor", "bench", "--name", "gpu", "--"]
        done = subprocess.run(
            [*command, "sh", "-c", script], env=environment, cwd=tmp_path, check=False
        )
        assert done.returncode == code
        (path,) = (tmp_path / "state/ldlm-monitor/runs").glob("gpu_*/record.json")
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found

    return run


def peak(found: dict[str, Any]) -> float:
    """The most GPU memory of a record, bytes."""
    values: list[float] = found["series"]["gpu_memory_bytes"]["values"]
    return max(values)


def test_the_fullest_gpu_of_the_command_counts_and_other_processes_do_not(bench: Bench) -> None:
    """Its child holds 13 GiB on the second GPU; process 1, which is not of it, 60 on the first."""
    script = (
        f'echo "process 0 $$ {10 * GIB}" >> $NVML_STATE; '
        f"sh -c 'echo \"process 1 $$ {13 * GIB}\" >> $NVML_STATE; sleep 1; exit'"
    )
    found = bench(script, gpu(GIB), gpu(GIB, "NVIDIA-H200"), f"process 0 1 {60 * GIB}")
    assert peak(found) == 13 * GIB


def test_where_the_driver_numbers_processes_otherwise_the_increase_counts(bench: Bench) -> None:
    """As in a container: the pids are the host's, and what each uses is not said."""
    script = f'printf "{gpu(21 * GIB)}\\nprocess 0 4123456 -\\n" > $NVML_STATE; sleep 1'
    assert peak(bench(script, gpu(GIB))) == 20 * GIB


def test_a_command_that_uses_no_gpu_has_none(bench: Bench) -> None:
    found = bench("sleep 0.5", gpu(40 * GIB), f"process 0 1 {39 * GIB}")
    assert "gpu_memory_bytes" not in found["series"]


def test_a_gpu_that_falls_off_the_bus_ends_no_benchmark(bench: Bench) -> None:
    script = (
        f'echo "process 0 $$ {5 * GIB}" >> $NVML_STATE; sleep 1; echo lost > $NVML_STATE; '
        "sleep 0.5; exit 7"
    )
    found = bench(script, gpu(GIB), code=7)
    assert peak(found) == 5 * GIB
    assert found["exit_code"] == 7


def test_a_library_without_a_driver_has_nothing_to_tell(bench: Bench) -> None:
    assert "gpu_memory_bytes" not in bench("true")["series"]
