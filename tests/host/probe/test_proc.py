"""What stands in /proc, to the number: whose processes, how busy, how large, on which disk."""

from pathlib import Path

import pytest

from ldlm_monitor.base.records import Position
from ldlm_monitor.host.probe import process
from ldlm_monitor.host.probe.gpu import GpuReader
from ldlm_monitor.host.probe.host_facts import HostFacts
from ldlm_monitor.judge.run.verdict import ProbeCandidate
from tests.host.probe.made_proc import BOOTED, add, host

WRITES, READS = "0100001", "0100000"  # O_WRONLY, O_RDONLY, with O_LARGEFILE
PAGE, TICKS = process._PAGE, process.TICKS


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return host(tmp_path / "proc", total_kib=2000, available_kib=700)


def ranks(log: str, proc: Path, **named: int) -> dict[int | None, int]:
    found = process.family(
        {log}, {int(rank[1:]): pid for rank, pid in named.items()}, process.scan(proc)
    )
    return {rank: each.pid for rank, each in found.ranks.items()}


def test_a_process_is_read_field_by_field(proc: Path) -> None:
    add(proc, 70, parent=7, name="a) S (b", state="Z", ticks=(30, 12), started=55, status=9)
    assert process.look(70, proc) == process.Process(70, 7, 55, "Z", 42, 9)
    add(proc, 71, state="R", status=9, pages=3, waits_in="futex_wait")
    alive = process.look(71, proc)
    assert alive is not None
    assert (alive.state, alive.status) == ("R", None)
    assert (process.resident(71, proc), process.resident(5, proc)) == (3 * PAGE, 0)
    assert (process.waits_in(71, proc), process.waits_in(70, proc)) == ("futex_wait", None)
    assert process.look(5, proc) is None
    (proc / "71/stat").write_text("71 (python) S 1 2")  # cut off
    assert process.look(71, proc) is None
    seen = process.among([70, 71], proc)
    assert [*seen.table] == [70]
    assert seen.started_at(70) == BOOTED + 55 / TICKS


def test_a_log_is_of_who_writes_it_of_who_feeds_its_pipe_and_of_their_children(
    proc: Path, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.touch()
    add(proc, 10, files={3: (str(log), READS)})
    add(
        proc,
        20,
        name="tee",
        files={0: ("pipe:[5]", READS), 3: (str(log), WRITES)},
        waits_in="pipe_read",
    )
    add(proc, 30, files={1: ("pipe:[5]", WRITES)}, ticks=(5, 0))
    add(proc, 31, parent=30, ticks=(4, 0))
    add(proc, 40, files={7: ("pipe:[5]", READS)})
    add(proc, 50, files={3: ("/elsewhere/train.log", WRITES)})
    found = process.family({str(log)}, None, process.scan(proc))
    assert {*found.members} == {20, 30, 31}
    assert {rank: each.pid for rank, each in found.ranks.items()} == {None: 30}
    # A process that computes reads no pipe: what feeds its standard input is not the training.
    (proc / "20/syscall").write_text("202 0x5 0x0")
    assert {*process.family({str(log)}, None, process.scan(proc)).members} == {20}


def test_ranks_are_those_of_their_environment_the_trainers_own_before_slurms(
    proc: Path, tmp_path: Path
) -> None:
    log = str(tmp_path / "train.log")
    files = {1: (log, WRITES)}
    add(proc, 10, exe="/bin/bash", files=files, environment="SLURM_PROCID=0\0")
    add(proc, 11, parent=10, files=files, environment="SLURM_PROCID=0\0RANK=4\0", ticks=(50, 0))
    add(proc, 12, parent=11, environment="SLURM_PROCID=0\0RANK=4\0", ticks=(70, 0))  # its loader
    add(proc, 13, parent=10, files=files, environment="RANK=5\0LOCAL_RANK=1\0", ticks=(0, 9))
    assert ranks(log, proc) == {4: 11, 5: 13}
    assert ranks(log, proc, r2=13) == {2: 13}  # a row of the run names it


def test_of_processes_without_ranks_the_busiest_is_the_training(proc: Path, tmp_path: Path) -> None:
    log = str(tmp_path / "train.log")
    files = {1: (log, WRITES)}
    add(proc, 10, exe="/bin/bash", files=files, ticks=(1, 0))
    add(proc, 11, parent=10, files=files, ticks=(3, 40), started=5)
    add(proc, 12, parent=10, files=files, ticks=(3, 40), started=9)
    assert ranks(log, proc) == {None: 11}


def test_who_listens_on_a_port_is_found_by_its_socket(proc: Path) -> None:
    row = "   0: 0100007F:1F90 00000000:0000 {} 00000000:00000000 00:00000000 00000000 0 0 {} 1\n"
    (proc / "net/tcp").write_text("header\n" + row.format("0A", 77) + row.format("01", 78))
    add(proc, 10, files={4: ("socket:[77]", WRITES)})
    add(proc, 11, files={4: ("socket:[78]", WRITES)})
    assert process.listens([10], 0x1F90, proc)
    assert process.listens([], 0x1F90, proc)  # whose it is cannot be read
    assert not process.listens([11], 0x1F90, proc)
    assert not any(process.listens([10], port, proc) for port in (0x1F8F, 0x1F91))


def test_the_view_of_a_host_has_the_bytes_cores_and_disk_of_a_run(
    proc: Path, tmp_path: Path
) -> None:
    (tmp_path / "saved").mkdir()
    add(proc, 10, ticks=(3 * TICKS, TICKS), started=100 * TICKS, pages=7, cwd=str(tmp_path))
    add(proc, 11, parent=10, pages=2)
    add(proc, 20, ticks=(TICKS, 0), started=109 * TICKS + TICKS // 2)
    case = ProbeCandidate(
        run="r", state="running", last_progress_at=0.0, stalls_at=None, ended_at=None,
        files=("train.log",), pids={}, dumps=(), world_size=None,
        position=Position("train.log", 1, 0), saved=2, saved_to="saved/step_2/model.pt",
        reports_gpus=True,
    )  # fmt: skip
    seen = process.scan(proc)
    family = process.family([], {1: 10, 0: 20, 5: 99}, seen)
    found = HostFacts(proc, GpuReader()).look([(case, family)], seen, BOOTED + 110.0)["r"]
    assert (found.memory_total_bytes, found.memory_available_bytes) == (2000 * 1024, 700 * 1024)
    first, second = found.processes
    assert (first.rank, first.pid, first.resident_bytes) == (0, 20, 0)
    assert (second.rank, second.pid, second.resident_bytes) == (1, 10, 9 * PAGE)
    # A process of half a second counts as one of a second.
    assert [first.cores, second.cores] == pytest.approx([1.0, 0.4])
    assert found.disk is not None
    assert (found.disk.folder, found.disk.full_at) == (str(tmp_path / "saved"), None)
    (proc / "meminfo").unlink()
    none = HostFacts(proc, GpuReader()).look([(case, family)], seen, BOOTED + 110.0)["r"]
    assert (none.memory_total_bytes, none.memory_available_bytes) == (0, 0)
