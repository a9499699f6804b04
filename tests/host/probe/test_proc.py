"""What stands in /proc, to the number: whose processes, how busy, how large, on which disk."""

import os
import shutil
from pathlib import Path

import pytest

from ldlm_monitor.base.records import Position
from ldlm_monitor.host.probe import cgroup, process
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


def test_a_log_behind_several_filters_is_of_who_feeds_the_first(proc: Path, tmp_path: Path) -> None:
    log = str(tmp_path / "train.log")
    reads = {"waits_in": "pipe_read"}
    add(proc, 10, files={0: ("pipe:[1]", READS), 3: (log, WRITES)}, **reads)
    add(proc, 11, files={0: ("pipe:[2]", READS), 1: ("pipe:[1]", WRITES)}, **reads)
    add(proc, 12, files={1: ("pipe:[2]", WRITES), 2: ("pipe:[2]", WRITES)})
    add(proc, 13, files={5: ("pipe:[2]", READS)})
    assert {*process.family({log}, None, process.scan(proc)).members} == {10, 11, 12}
    assert ranks(log, proc) == {None: 12}


@pytest.mark.parametrize(
    ("call", "waits_in", "feeds"),
    [
        ("0 0x0 0x7f", "futex", False),  # it reads its standard input, and waits for something else
        ("0 0x0 0x7f", "pipe_read", True),
        ("0 0x3 0x7f", "pipe_read", False),  # another descriptor
        ("running", "pipe_wait", True),
        ("", "0", True),  # not to be read: it may be one
        ("", "do_wait", False),
    ],
)
def test_what_feeds_the_input_of_a_process_that_waits_for_it_writes_its_log(
    proc: Path, tmp_path: Path, call: str, waits_in: str, feeds: bool
) -> None:
    log = str(tmp_path / "train.log")
    add(proc, 10, files={0: ("pipe:[1]", READS), 3: (log, WRITES)}, waits_in=waits_in)
    add(proc, 12, files={1: ("pipe:[1]", WRITES)})
    (proc / "10/syscall").write_text(call)
    found = {*process.family({log}, None, process.scan(proc)).members}
    assert found == ({10, 12} if feeds else {10})


@pytest.mark.parametrize(
    ("flags", "writes"), [("0100002", True), ("02", True), ("01", True), ("0100000", False)]
)
def test_who_may_write_a_file_is_in_its_flags(
    proc: Path, tmp_path: Path, flags: str, writes: bool
) -> None:
    log = str(tmp_path / "train.log")
    add(proc, 10, files={3: (log, flags)})
    assert bool(process.family({log}, None, process.scan(proc)).members) is writes


def test_who_opened_a_log_for_a_child_that_prints_into_it_is_no_member_then_or_later(
    proc: Path, tmp_path: Path
) -> None:
    log = str(tmp_path / "train.log")
    add(proc, 10, files={4: (log, WRITES)}, started=7)
    add(proc, 11, parent=10, files={1: (log, WRITES)})
    found = process.family({log}, None, process.scan(proc))
    assert ({*found.members}, found.openers) == ({11}, {(10, 7)})
    (proc / "11/fd/1").unlink()
    alone = process.scan(proc)
    assert {*process.family({log}, None, alone, found.openers).members} == set()
    assert process.family({log}, None, alone, found.openers).openers == {(10, 7)}
    assert {*process.family({log}, None, alone, {(10, 6)}).members} == {10, 11}


def test_variables_are_read_whole_and_of_the_wanted_names(proc: Path) -> None:
    add(proc, 10, environment="A=b=c\0RANKS=2\0RANK=1\0EMPTY=\0broken")
    assert process.environment(10, ["A", "RANK", "EMPTY"], proc) == {
        "A": "b=c",
        "RANK": "1",
        "EMPTY": "",
    }
    assert process.environment(99, ["A"], proc) == {}


def test_who_listens_is_found_by_ipv6_too_and_cut_lines_are_passed_over(proc: Path) -> None:
    row = "   0: 00000000000000000000000001000000:1F90 0:0 0A 0:0 00:0 0 0 0 77 1\n"
    (proc / "net/tcp").write_text("header\n   0: 0100007F:1F90 0 0A\n")
    (proc / "net/tcp6").write_text("header\n" + row)
    add(proc, 10, files={4: ("socket:[77]", WRITES)})
    assert process.listens([10], 0x1F90, proc)
    (proc / "net/tcp6").write_text(row)
    assert not process.listens([10], 0x1F90, proc), "the first line is the heading"


def test_a_scan_has_all_but_itself_with_children_and_the_time_of_the_boot(proc: Path) -> None:
    add(proc, os.getpid())
    add(proc, 20)
    add(proc, 21, parent=20)
    add(proc, 22, parent=21)
    seen = process.scan(proc)
    assert {*seen.table} == {20, 21, 22}
    assert seen.booted_at == BOOTED
    assert process.descendants([20, 99], seen) == {20, 21, 22}
    assert process.descendants([21], seen) == {21, 22}
    (proc / "stat").unlink()
    assert process.scan(proc).booted_at == 0.0


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    os.close(process.open_regular(tmp_path / "file"))
    for name, why in (("link", "symbolic"), (".", "not a regular file"), ("none", "No such file")):
        with pytest.raises(OSError, match=why):
            process.open_regular(tmp_path / name)


# Control groups


def memory_group(folder: Path, kills: int, limit: str = "max") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.events").write_text(f"oom {kills}\noom_kill {kills}\n")
    (folder / "memory.max").write_text(f"{limit}\n")
    return folder


def test_the_groups_around_one_are_those_below_the_mount(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    inner = mount / "memory/job.slice/step.scope"
    assert [*cgroup.upwards(inner, mount / "memory")] == [inner, inner.parent]
    assert [*cgroup.upwards(mount, mount)] == [mount]
    assert [*cgroup.upwards(tmp_path / "else/where", mount)] == [tmp_path / "else/where"]
    assert cgroup.look(tmp_path / "none") is None


def test_a_group_is_that_of_memory_before_the_unified_one(tmp_path: Path) -> None:
    for name in ("memory/a", "unified/b", "c"):
        (tmp_path / name).mkdir(parents=True)
    assert cgroup.group_of("9:cpu:/x\n3:memory:/a\n0::/b\n", tmp_path) == tmp_path / "memory/a"
    assert cgroup.group_of("9:cpu:/x\n0::/b\n", tmp_path) == tmp_path / "unified/b"
    (tmp_path / "unified/b").rmdir()
    (tmp_path / "unified").rmdir()
    assert cgroup.group_of("0::/c\n", tmp_path) == tmp_path / "c"
    assert cgroup.group_of("9:cpu:/x\nbroken\n", tmp_path) is None


def test_kills_since_the_last_note_are_an_event_with_the_rank_that_died(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    own = memory_group(mount / "job/step0", 3, str(64 << 20))
    other = memory_group(mount / "job/step1", 0)
    around = memory_group(mount / "job", 3)
    groups = cgroup.MemoryGroups({0: own, 1: other, 2: other})
    case = ProbeCandidate(
        "r", "stalled", 0.0, None, None, ("a.log",), {}, (), None, Position("a.log", 1, 0)
    )
    groups.note(mount, goes_on=True)
    assert [*groups.events(case, mount, [0])] == []
    memory_group(own, 5, str(64 << 20))
    memory_group(around, 6)
    groups.note(mount, goes_on=False)  # known groups keep their counts
    (event,) = groups.events(case, mount, [])
    assert event.message == (
        "the kernel killed 2 processes of the control group step0 (limit 64 MiB) to free memory"
    )
    assert (event.rank, event.fields["kills"], event.fields["limit_bytes"]) == (None, 2, 64 << 20)
    assert [*groups.events(case, mount, [])] == [], "it is reported once"
    memory_group(other, 1)
    (event,) = groups.events(case, mount, [1])
    assert (event.rank, event.fields["limit_bytes"]) == (1, None)
    assert event.message.startswith("the kernel killed a process of the control group step1 to")
    memory_group(other, 2)
    (event,) = groups.events(case, mount, [1, 2])
    assert event.rank is None, "either may be it"
    memory_group(around, 7)
    shutil.rmtree(own)
    assert [*groups.events(case, mount, [])] == [], "it may be another job's"
    (event,) = groups.events(case, mount, [0])
    assert (event.fields["cgroup"], event.fields["kills"]) == (str(around), 4)
