"""What the doctor reads of a running process."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from ldlm_doctor.live import Process, audit, defaults, look_at
from ldlm_doctor.setting import Setting, Surroundings


def process(torch: tuple[int, int] | None, *names: str) -> Process:
    settings = tuple(Setting(name, "1", "environ", 1, f"{name}=1") for name in names)
    return Process(1, ("python", "train.py"), settings, torch, 8)


@pytest.mark.parametrize(
    ("torch", "heartbeat", "dumps", "records"),
    [
        ((2, 2), "120", "0", "0"),
        ((2, 4), "600", "0", "0"),
        ((2, 6), "480", "0", "2000"),
        ((2, 13), "480", "1", "2000"),
    ],
)
def test_what_holds_where_nothing_is_set_depends_on_the_version(
    torch: tuple[int, int], heartbeat: str, dumps: str, records: str
) -> None:
    found = defaults(process(torch))
    assert found["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == heartbeat
    assert found["TORCH_NCCL_DUMP_ON_TIMEOUT"] == dumps
    assert found["TORCH_NCCL_TRACE_BUFFER_SIZE"] == records


def test_what_is_set_under_either_name_has_no_default() -> None:
    found = defaults(process((2, 9), "NCCL_BLOCKING_WAIT", "TORCH_NCCL_ENABLE_MONITORING"))
    assert not {"TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_ENABLE_MONITORING"} & set(found)


def test_of_an_unknown_version_nothing_is_said() -> None:
    assert defaults(process(None)) == {}


def found(process: Process, project: Surroundings) -> dict[str, str]:
    return {finding.check.id: finding.detail for finding in audit(process, project)}


def test_the_options_of_the_command_line_count_with_the_cores_that_it_has() -> None:
    words = ("python", "-u", "train.py", "--num_workers", "12", "--ddp_timeout", "180000000")
    findings = found(Process(1, (*words, "--notes", "a\nb"), (), None, 8), Surroundings())
    assert findings["too-many-workers"].startswith("12 workers")
    assert "ddp-timeout-days" in findings
    assert found(Process(1, ("", "'"), (), None, 8), Surroundings()) == {}


@pytest.fixture
def training() -> Iterator[subprocess.Popen[str]]:
    program = "import torch, time; print('ready', flush=True); time.sleep(600)"
    running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    running.stdout.readline()
    yield running
    running.kill()
    running.stdout.close()
    running.wait()


@pytest.mark.long
def test_the_version_is_that_of_the_library_it_has_loaded(training: subprocess.Popen[str]) -> None:
    torch = pytest.importorskip("torch")
    major, minor = torch.__version__.split(".")[:2]
    assert look_at(training.pid).torch == (int(major), int(minor))
