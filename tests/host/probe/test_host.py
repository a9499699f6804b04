"""What a look at this host finds of real processes; the kernel is asked, not a copy of it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.records import Event, from_json, to_json
from ldlm_monitor.host.probe import cgroup
from ldlm_monitor.host.probe.host import HostProbe
from ldlm_monitor.host.probe.process import family
from ldlm_monitor.judge.run.verdict import verdict

from .conftest import wait_until
from .test_nccl_ras import INCOMPLETE, Ras

DATA = Path(__file__).parent / "data"
NOBODY = ("127.0.0.1", 1)


def probe(**reported: object) -> HostProbe:
    return HostProbe(**{"ras": NOBODY, **reported})


def looked(host: HostProbe, case) -> list[Event]:
    return host.look([case], 4.5)[case.run]


def only(events: list[Event]) -> Event:
    (event,) = events
    assert event.fields["probe"] is True
    assert from_json(to_json(event)) == event
    return event


def processes(event: Event) -> list[dict[str, object]]:
    return event.fields["processes"]


def test_nothing_is_said_where_nobody_writes_the_log(case) -> None:
    assert looked(probe(), case()) == []


def host_without_others(tmp_path: Path, *shown: int, table: str = "pid:[4026531836]") -> HostProbe:
    """A probe of a host that has these processes alone; `table`: whose processes it sees."""
    proc = tmp_path / "proc"
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to(table)
    for name in ("stat", *map(str, shown)):
        (proc / name).symlink_to(Path("/proc") / name)
    return probe(proc=proc)


def test_a_log_that_no_process_of_this_host_can_write_has_ended(train, case, tmp_path) -> None:
    """It was not seen while it was written: the monitor came later. Nobody waited for its end."""
    pid = train("exit", "0").pid
    wait_until(lambda: b"Z" in Path(f"/proc/{pid}/stat").read_bytes().split()[2:3])
    late = case(last_progress_at=time.time() + 1.0)
    event = only(looked(host_without_others(tmp_path, pid), late))
    assert (event.kind, event.fields["alive"]) == ("exit_without_error", 0)
    assert str(verdict([event])) == "ended: no process of this host writes its log"


def test_a_process_that_computed_may_write_its_log_line_by_line(train, case, tmp_path) -> None:
    other = train("compute")
    (tmp_path / "train.log").unlink()
    (tmp_path / "train.log").write_text("step 1 loss 2.5\n")
    late = case(last_progress_at=time.time() + 1.0)
    assert looked(host_without_others(tmp_path, other.pid), late) == []


@pytest.mark.parametrize("hidden", ["elsewhere", "copied"])
def test_a_log_whose_writer_may_not_be_seen_shows_nothing(train, case, tmp_path, hidden) -> None:
    """In a container's table of processes, and where the file was copied from another host."""
    train("exit", "0").process.wait()
    late = case(last_progress_at=time.time() + 1.0)
    if hidden == "copied":
        os.utime(tmp_path / "train.log", (1_780_000_000, 1_780_000_000))
    table = "pid:[4026532995]" if hidden == "elsewhere" else "pid:[4026531836]"
    assert looked(host_without_others(tmp_path, table=table), late) == []


def test_a_process_that_sleeps_hangs(train, case) -> None:
    training = train("sleep")
    event = only(looked(probe(), case()))
    (seen,) = processes(event)
    assert (event.kind, seen["pid"], seen["state"]) == ("log_silence", training.pid, "sleeping")
    assert verdict([event]).word == "hung"


def test_a_call_in_c_that_holds_the_gil_is_seen_from_outside(train, case) -> None:
    training = train("hold the GIL")
    found = verdict(looked(probe(), case()))
    assert found.word == "hung"
    assert f"pid {training.pid} sleeps" in str(found)


def test_a_stopped_process_hangs_and_how_it_goes_on_is_said(train, case) -> None:
    training = train("compute")
    os.kill(training.pid, signal.SIGSTOP)
    found = verdict(looked(probe(), case()))
    assert str(found) == f"hung: pid {training.pid} is stopped; SIGCONT continues it"


def test_a_process_that_computes_is_only_silent(train, case) -> None:
    train("compute")
    assert verdict(looked(probe(), case())).word == "silent"


def test_a_process_whose_loader_computes_is_only_silent(train, case) -> None:
    train("fork and compute", rank=0)
    assert verdict(looked(probe(), case())).word == "silent"


def test_of_several_ranks_the_one_that_does_nothing_is_named(train, case) -> None:
    train("compute", rank=0)
    idle = train("sleep", rank=1)
    found = verdict(looked(probe(), case()))
    assert f"rank 1 (pid {idle.pid}) is idle while the others compute" in str(found)


OPENER = """
import subprocess, sys, time
with open(sys.argv[1], "w") as log:
    subprocess.run([sys.executable, "-c", sys.argv[2]], stdout=log)
    print("over", flush=True)
    time.sleep(60)
"""
WRITER = "import time\nfor _ in range(20): print('step', flush=True); time.sleep(0.1)"


def test_who_only_opened_the_log_for_its_writer_is_not_the_training(case, tmp_path) -> None:
    """As a script does that starts trainings: it may keep the file open, and live on."""
    log = tmp_path / "train.log"
    command = [sys.executable, "-c", OPENER, str(log), WRITER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as script:
        wait_until(lambda: log.exists() and log.stat().st_size > 0)
        host = probe()
        host.watch([case()])
        assert script.stdout is not None
        assert script.stdout.readline() == "over\n"
        host.watch([case()])  # the script alone has it open
        event = only(looked(host, case()))
        script.kill()
    assert (event.kind, event.fields["alive"]) == ("exit_without_error", 0)
    assert script.pid not in {each["pid"] for each in processes(event)}
    assert verdict([event]).word == "ended"


def test_a_process_that_was_seen_and_is_gone_was_killed(train, case) -> None:
    host = probe()
    zero, one = train("sleep", rank=0), train("sleep", rank=1)
    host.watch([case()])
    one.process.kill()
    one.process.wait()
    event = only(looked(host, case()))
    assert (event.kind, event.fields["alive"]) == ("exit_without_error", 1)
    assert verdict([event]).word == "killed"
    assert f"rank 1 (pid {one.pid}) is gone" in str(verdict([event]))
    assert zero.process.poll() is None


def test_how_a_process_ended_that_nobody_waited_for_is_known(train, case) -> None:
    host = probe()
    killed, failed = train("sleep", rank=0), train("sleep", rank=1)
    host.watch([case()])
    killed.process.send_signal(signal.SIGKILL)
    wait_until(lambda: b"Z" in Path(f"/proc/{killed.pid}/stat").read_bytes().split()[2:3])
    assert "ended by SIGKILL" in str(verdict(looked(host, case())))
    assert failed.process.poll() is None


def test_a_training_that_was_started_again_is_not_gone(train, case) -> None:
    host = probe()
    first = train("sleep", rank=0)
    host.watch([case()])
    first.end()
    second = train("sleep", rank=0)
    (seen,) = processes(only(looked(host, case())))
    assert (seen["pid"], seen["state"]) == (second.pid, "sleeping")


def test_a_loader_that_ended_is_no_death(train, case) -> None:
    host = probe()
    training = train("fork", rank=0)
    wait_until(lambda: len(family([*case().files]).members) == 2)
    host.watch([case()])
    (child,) = set(family([*case().files]).members) - {training.pid}
    os.kill(child, signal.SIGKILL)
    assert only(looked(host, case())).fields["alive"] == 1


def test_a_rank_that_its_heartbeat_names_is_looked_at(train, case) -> None:
    training = train("sleep")
    now = time.time() + 1
    pids = {5: ("localhost", training.pid)}
    found = looked(probe(), case(files=(), pids=pids, last_progress_at=now))
    (seen,) = processes(only(found))
    assert (seen["rank"], seen["pid"]) == (5, training.pid)


def test_a_pid_that_another_process_got_since_is_not_the_rank(train, case) -> None:
    training = train("sleep")
    long_ago = time.time() - 3600
    pids = {5: ("localhost", training.pid)}
    assert looked(probe(), case(files=(), pids=pids, last_progress_at=long_ago)) == []
    elsewhere = {5: ("elsewhere", training.pid)}
    assert looked(probe(), case(files=(), pids=elsewhere, last_progress_at=time.time() + 1)) == []


def test_a_system_without_proc_is_silent_not_broken(tmp_path, case) -> None:
    host = probe(proc=tmp_path / "none", mount=tmp_path / "none")
    host.watch([case()])
    assert looked(host, case()) == []


# Control groups


@pytest.fixture
def group() -> Iterator[Path]:
    """A real control group with a limit of 64 MiB, where one may be made."""
    own = cgroup.group_of(Path("/proc/self/cgroup").read_text())
    made = (own or cgroup.MOUNT) / f"probe-test-{os.getpid()}"
    try:
        made.mkdir()
        version_1 = (made / "memory.limit_in_bytes").exists()
        (made / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text("67108864")
    except OSError as error:
        if made.is_dir():
            made.rmdir()
        pytest.skip(f"no control group with a limit of memory can be made here ({error.strerror})")
    yield made
    made.rmdir()


GREEDY = """
import os, sys
open(os.path.join(sys.argv[1], "cgroup.procs"), "w").write(str(os.getpid()))
print("started", flush=True)
sys.stdin.read(1)
hoard = [bytearray(1 << 20) for _ in range(4096)]
"""


def test_a_training_that_the_kernel_killed_for_memory_is_told_as_that(group, tmp_path, case):
    host = probe()
    with (tmp_path / "train.log").open("wb") as log:
        training = subprocess.Popen(
            [sys.executable, "-c", GREEDY, group], stdin=subprocess.PIPE, stdout=log
        )
    wait_until(lambda: (tmp_path / "train.log").stat().st_size)
    host.watch([case()])
    training.communicate(b"\n")
    killed, gone = looked(host, case())
    assert training.returncode == -signal.SIGKILL
    assert (gone.kind, killed.kind) == ("exit_without_error", "host_oom_kill")
    assert (killed.severity, killed.fields["role"]) == ("critical", "root")
    assert killed.fields["limit_bytes"] == 64 << 20
    found = verdict([gone, killed])
    assert found.word == "killed"
    assert "out of memory" in str(found)


def tree(root: Path, kills: int, **files: str) -> Path:
    """Files as the kernel lays them out for version 2."""
    folder = root / "job.slice/step.scope"
    folder.mkdir(parents=True, exist_ok=True)
    for place in (folder, folder.parent):
        events = f"low 0\nhigh 0\nmax 7\noom {kills}\noom_kill {kills}\noom_group_kill 0\n"
        (place / "memory.events").write_text(events)
        (place / "memory.max").write_text("max\n")
    return folder


def proc_of(pid: int, root: Path, membership: str) -> Path:
    """/proc with one process, whose control group is another."""
    root.mkdir()
    (root / str(pid)).mkdir()
    for name in ("stat", "environ", "fd", "fdinfo", "cwd", "wchan"):
        (root / str(pid) / name).symlink_to(f"/proc/{pid}/{name}")
    (root / str(pid) / "cgroup").write_text(membership)
    return root


def test_a_counter_of_version_2_that_rose_while_the_run_stood_is_told_once(
    tmp_path, train, case
) -> None:
    training = train("sleep")
    mount = tmp_path / "cgroup"
    tree(mount, kills=3)
    proc = proc_of(training.pid, tmp_path / "proc", "0::/job.slice/step.scope\n")
    host = probe(proc=proc, mount=mount)
    host.watch([case()])
    tree(mount, kills=4)
    host.watch([case()])  # the run went on: no matter who was killed, it was survived
    assert [each.kind for each in looked(host, case())] == ["log_silence"]
    tree(mount, kills=6)
    killed, _ = looked(host, case())
    assert (killed.fields["kills"], killed.fields["limit_bytes"]) == (2, None)
    assert [each.kind for each in looked(host, case())] == ["log_silence"]


def test_a_group_that_went_with_its_processes_is_counted_in_the_one_around_it(
    tmp_path, train, case
) -> None:
    training = train("sleep")
    mount = tmp_path / "cgroup"
    tree(mount, kills=0)
    host = probe(
        proc=proc_of(training.pid, tmp_path / "proc", "0::/job.slice/step.scope\n"), mount=mount
    )
    host.watch([case()])
    training.end()
    shutil.rmtree(tree(mount, kills=1))
    shutil.rmtree(tmp_path / "proc" / str(training.pid))
    assert [each.kind for each in looked(host, case())] == ["host_oom_kill", "exit_without_error"]


def test_both_versions_and_a_container_s_own_view_are_understood(tmp_path) -> None:
    (tmp_path / "memory/docker/abc").mkdir(parents=True)
    assert cgroup.group_of("4:memory:/docker/abc\n0::/\n", tmp_path).name == "abc"
    assert cgroup.group_of("4:cpu,memory:/of/the/host\n", tmp_path) == tmp_path / "memory"
    assert cgroup.group_of("0::/../../etc\n", tmp_path / "none") == tmp_path / "none"
    (tmp_path / "memory/memory.oom_control").write_text(
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    )
    (tmp_path / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    seen = cgroup.look(tmp_path / "memory")
    assert (seen.oom_kills, seen.limit) == (2, None)


# Flight recorder, RAS


def test_dumps_near_the_log_name_the_rank_that_did_not_join(tmp_path, case) -> None:
    for path in (DATA / "missing").glob("comm_lib*"):
        shutil.copy(path, tmp_path)
    event = only(looked(probe(), case()))
    assert (event.kind, event.fields["missing_ranks"]) == ("fr_dump", [2])
    assert (event.fields["collective"], event.fields["seq"]) == ("all_reduce", 4)
    assert event.fields["frame"] == "train_step (/job/train.py:29)"
    assert "rank 2 did not join it" in str(verdict([event]))


def test_dumps_are_looked_for_where_the_process_was_told_to_write_them(
    tmp_path, train, case
) -> None:
    shutil.copytree(DATA / "mismatch", tmp_path / "elsewhere")
    prefix = str(tmp_path / "elsewhere/comm_lib_trace_rank_")
    train("sleep", TORCH_FR_DUMP_TEMP_FILE=prefix)
    silence, dump = looked(probe(), case())
    assert (silence.kind, dump.kind) == ("log_silence", "fr_dump")
    assert dump.fields["mismatched_ranks"] == [1]


def test_dumps_that_the_log_names_are_looked_for_where_the_process_works(
    tmp_path, train, case, monkeypatch
) -> None:
    shutil.copytree(DATA / "missing", tmp_path / "work/traces")
    for rank in range(3):
        dump = tmp_path / f"work/traces/comm_lib_trace_rank_{rank}"
        dump.rename(dump.with_name(f"mine.{rank}"))
    monkeypatch.chdir(tmp_path / "work")
    train("sleep")
    _, dump = looked(probe(), case(dumps=("traces/mine.0",)))
    assert dump.fields["missing_ranks"] == [2]


def test_dumps_of_an_earlier_failure_are_no_evidence(tmp_path, case) -> None:
    for path in (DATA / "missing").glob("comm_lib*"):
        shutil.copy(path, tmp_path)
    later = (tmp_path / "comm_lib_trace_rank_0").stat().st_mtime + 3600
    assert looked(probe(), case(last_progress_at=later)) == []


def test_a_dump_that_cannot_be_read_is_not_one_that_lacks(tmp_path, case) -> None:
    for path in (DATA / "missing").glob("comm_lib*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "comm_lib_trace_rank_2").write_bytes(b"\x80\x04cos\nsystem\n(S'exit'\ntR.")
    event = only(looked(probe(), case(world_size=3)))
    assert (event.fields["unread_ranks"], event.fields["ranks_without_dump"]) == ([2], [])


def test_ras_is_evidence_where_it_accuses(case) -> None:
    server = Ras(INCOMPLETE, None)
    event = only(looked(probe(ras=server.address), case()))
    server.close()
    assert (event.kind, event.severity, event.fields["missing"]) == ("ras_status", "warning", [21])
    assert verdict([event]).word == "hung"


def test_ras_of_another_job_on_this_host_is_not_asked(train, case) -> None:
    train("sleep")
    with socket.create_server(("127.0.0.1", 0)) as others:
        assert [each.kind for each in looked(probe(ras=others.getsockname()), case())] == [
            "log_silence"
        ]


def test_many_runs_are_looked_at_in_the_time_of_one(train, case) -> None:
    train("sleep")
    waits: list[float] = []
    host = probe(wait=waits.append)
    cases = [case(run=f"r{number}") for number in range(20)]
    assert set(host.look(cases, 4.5)) == {each.run for each in cases}
    assert len(waits) == 1


def test_a_look_leaves_a_stopped_process_stopped(train, case) -> None:
    training = train("sleep")
    os.kill(training.pid, signal.SIGSTOP)
    for _ in range(2):
        (seen,) = processes(only(looked(probe(), case())))
        assert seen["state"] == "stopped"


def test_a_process_that_left_while_the_run_went_on_is_not_missed(train, case) -> None:
    """Another one writes, which is not seen: its log is opened for each line, or elsewhere."""
    host = probe()
    training = train("sleep", rank=0)
    host.watch([case()])
    training.end()
    host.watch([case(last_progress_at=time.time() - 60)])
    (seen,) = processes(only(looked(host, case(last_progress_at=time.time() - 60))))
    assert seen["state"] == "gone"
    host.watch([case(last_progress_at=time.time() + 60)])
    assert looked(host, case(last_progress_at=time.time() + 60)) == []


def test_of_very_many_runs_those_that_were_active_last_are_known(
    train, case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldlm_monitor.host.probe.host.MAX_KNOWN", 2)
    host = probe()
    for number in range(5):
        host.watch([case(run=f"r{number}", files=())])
    host.watch([case(run="r3", files=())])
    assert [*host._known] == ["r2", "r4", "r3"]
    host.watch([case(run="r5", files=())], note=False)
    assert "r5" not in host._known


def test_a_look_without_time_asks_no_ras(case) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        host = probe(ras=server.getsockname(), wait=lambda seconds: None)
        assert host.look([case()], 1.0)["r"] == []
        with pytest.raises(TimeoutError):
            server.accept()


def test_ras_is_asked_at_the_address_of_the_processes_environment(train, case) -> None:
    """If nobody else listens there: RAS is of the job's own processes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        training = train("sleep", NCCL_RAS_ADDR=f"{host}:{port}")
        server.settimeout(0.1)
        assert [each.kind for each in looked(probe(), case())] == ["log_silence"]
        with pytest.raises(TimeoutError):
            server.accept()
    assert training.process.poll() is None


@pytest.mark.parametrize("state", ["missing", "known"])
def test_a_log_that_is_gone_or_whose_processes_are_named_shows_no_end(
    case, tmp_path, state
) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.5\n")
    late = {"last_progress_at": time.time() + 1.0}
    assert only(looked(host_without_others(tmp_path), case(**late))).fields["alive"] == 0
    if state == "missing":
        log.unlink()
        late["files"] = (str(log),)
    else:
        late["pids"] = {0: ("elsewhere", 1)}
    again = host_without_others(tmp_path / "again")
    assert looked(again, case(**late)) == []
