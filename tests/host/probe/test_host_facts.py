"""What the page of a host shows, read of real processes and of a driver made here."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.host.probe.gpu import SECONDS, GpuReader
from ldlm_monitor.host.probe.host import HostProbe
from ldlm_monitor.host.probe.host_facts import _Fill
from ldlm_monitor.judge.core.self_metrics import SelfCounts
from ldlm_monitor.judge.run.fleet import Fleet
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.logs.parse import Parser
from tests.host.nvml.nvml_driver import GIB, TOTAL, build, gpu, with_driver

HOUR = 3600.0  # seconds


def filled(*free: int, hours: float = 1.0) -> float | None:
    """Hours until a disk is full, seen after each checkpoint with these free bytes."""
    fill = _Fill(saved=7)
    found = None
    for number, left in enumerate(free):
        found = fill.full_at(8 + number, number * hours * HOUR, left)
    return None if found is None else found / HOUR - (len(free) - 1) * hours


def test_a_disk_is_full_at_the_pace_of_the_last_checkpoints() -> None:
    assert filled(1000, 900, 800, 700) == 7.0
    assert filled(10_000, 1000, 900, 800, 700, hours=2) == 14.0


@pytest.mark.parametrize(
    "free",
    [
        (1000, 900, 800),  # two intervals are no pace
        (1000, 900, 800, 800),  # the trainer deletes as much as it saves
        (1000, 900, 990, 890),  # somebody made room
        (1000, 1000, 1000, 1000),
    ],
)
def test_a_disk_that_need_not_fill_has_no_end(free: tuple[int, ...]) -> None:
    assert filled(*free) is None


def test_between_two_checkpoints_the_end_comes_no_nearer_and_room_that_is_made_counts() -> None:
    fill = _Fill(saved=0)
    for number, free in enumerate((1000, 900, 800, 700)):
        fill.full_at(number + 1, number * HOUR, free)
    assert fill.full_at(4, 3.5 * HOUR, 700) == 10.5 * HOUR
    assert fill.full_at(4, 3.5 * HOUR, 7000) == 73.5 * HOUR


def test_before_the_first_checkpoint_that_is_seen_nothing_is_measured() -> None:
    """When the last one before it was saved is not known, nor what was free then."""
    fill = _Fill(saved=7)
    fill.full_at(7, 0.0, 10_000)
    assert [*fill.free] == []


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what the driver answers to children that are started from now on."""
    state = tmp_path / "nvml"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("NVML_STATE", str(state))

    def become(*lines: str) -> None:
        state.with_suffix(".new").write_text("\n".join(lines) + "\n", encoding="utf-8")
        state.with_suffix(".new").replace(state)

    return become


@pytest.fixture
def reader() -> Iterator[GpuReader]:
    made = GpuReader()
    yield made
    made.close()


@with_driver
def test_a_run_on_this_host_is_shown_with_its_processes_memory_disk_and_gpu(
    train, case, driver, tmp_path: Path
) -> None:
    (tmp_path / "saved").mkdir()
    training = train("sleep", rank=1)
    driver(gpu(GIB), gpu(60 * GIB, "H100"), f"process 1 {training.pid} {59 * GIB}")
    host = HostProbe()
    host.watch([case(saved_to=str(tmp_path / "saved/step_10/model.pt"))])
    found = host.facts["r"]
    (main,) = found.processes
    assert (main.rank, main.pid) == (1, training.pid)
    assert 2**20 < main.resident_bytes < found.memory_available_bytes < found.memory_total_bytes
    assert found.disk is not None
    assert found.disk.folder == str(tmp_path / "saved")
    assert 0 < found.disk.free_bytes <= found.disk.total_bytes
    (card,) = found.gpus
    assert (card.gpu, card.name) == ("1", "H100")
    assert card.values["gpu_memory_used_bytes"] == 60 * GIB
    own = SelfCounts(Parser(), Fleet(Stall(), 0.0))
    own.note([], {"r": found})
    exported = {(p.name, p.labels): p.value for p in own.host_points(time.time())}
    here = (("gpu", "1"), ("run", "r"))
    assert exported["ldlm_gpu_utilization_ratio", here] == 0.87
    assert exported["ldlm_gpu_ecc_errors_total", here] == 4
    hot = (("gpu", "1"), ("reason", "thermal"), ("run", "r"))
    assert exported["ldlm_gpu_throttled", hot] == 1
    assert not any("clock" in name for name, _ in exported)
    host.gpus.close()


@with_driver
def test_a_run_whose_callback_reports_its_gpus_has_them_from_there_alone(
    train, case, driver
) -> None:
    driver(gpu(GIB))
    train("sleep")
    host = HostProbe()
    host.watch([case(reports_gpus=True)])
    assert (host.facts["r"].gpus, host.facts["r"].without_gpus) == ((), "")


def test_of_a_run_that_has_no_process_here_nothing_is_read(case) -> None:
    host = HostProbe()
    host.watch([case()])
    assert host.facts == {}


@with_driver
def test_in_a_container_whose_pids_the_driver_does_not_have_all_gpus_are_shown(
    driver, reader: GpuReader
) -> None:
    driver(gpu(GIB), gpu(2 * GIB), f"process 0 4123456 {GIB}")
    gpus = reader.look()
    assert [each.gpu for each in reader.of({os.getpid()}, gpus)] == ["0", "1"]
    assert [each.gpu for each in reader.of({4123456}, gpus)] == ["0"]
    assert gpus[1].values["gpu_memory_total_bytes"] == TOTAL


@with_driver
def test_a_driver_that_does_not_return_is_left_alone_and_no_process_stays(driver) -> None:
    now = 0.0
    reader = GpuReader(clock=lambda: now)
    driver(gpu(GIB), "stuck")
    assert reader.look() == ()
    assert reader.problem == f"the driver of the GPUs did not answer within {SECONDS:g} s"
    assert reader._child is None
    driver(gpu(GIB))
    assert reader.look() == ()
    now = 601.0
    assert len(reader.look()) == 1
    assert reader.problem == ""
    driver("lost")
    assert reader.look() == ()
    assert "lost" in reader.problem.lower()


def test_without_package_or_driver_the_reader_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reader: GpuReader
) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert reader.look() == ()
    assert "pip install 'ldlm-monitor[gpu]'" in reader.problem
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    other = GpuReader()
    assert other.look() == ()
    assert "cannot run" in other.problem
