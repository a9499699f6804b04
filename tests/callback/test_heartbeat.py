"""The page with where a rank stands, whatever became of its process."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from ldlm_callback.rank import (
    BEAT,
    BEAT_AT,
    IDENTITY,
    MAGIC,
    SIZE,
    Beat,
    HeartbeatPage,
    Identity,
)


def identity(**changes) -> Identity:
    reported = {
        "pid": 7,
        "stack_signal": 12,
        "started": 99,
        "pid_namespace": 5,
        "rank": 3,
        "host": b"node1",
        "stack_file": b"stack_rank3.txt",
        "recorder_socket": b"",
    }
    return Identity(**{**reported, **changes})


def beat_of(page: bytes) -> dict:
    first, *reported, last = BEAT.unpack_from(page, BEAT_AT)
    assert first == last
    return dict(zip(Beat.__dataclass_fields__, reported, strict=True))


def read(path: Path) -> dict | None:
    """What a page says of its process and last step; None where a reader must read again."""
    page = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    if len(page) != SIZE or not page.startswith(MAGIC):
        return None
    first, step, *_, last = BEAT.unpack_from(page, BEAT_AT)
    return {"pid": IDENTITY.unpack_from(page)[1], "step": step} if first == last > 0 else None


def test_blocks_do_not_reach_into_each_other() -> None:
    assert IDENTITY.size <= BEAT_AT
    assert BEAT_AT + BEAT.size <= 4096


def test_the_page_has_who_writes_and_where_it_stands(tmp_path) -> None:
    path = tmp_path / "heartbeat_rank3"
    heartbeat = HeartbeatPage(path, identity())
    heartbeat.beat(Beat(step=41, time=1e9, phase=b"eval"))
    heartbeat.sync()
    page = path.read_bytes()
    assert len(page) == 4096
    assert IDENTITY.unpack_from(page)[:4] == (b"ldlmhb02", 7, 12, 99)
    reported = beat_of(page)
    assert (reported["step"], reported["time"], reported["phase"].rstrip(b"\0")) == (
        41,
        1e9,
        b"eval",
    )


def test_a_new_run_takes_the_name_and_leaves_the_old_page_to_those_who_hold_it(tmp_path) -> None:
    path = tmp_path / "heartbeat_rank3"
    old = HeartbeatPage(path, identity())
    reader = os.open(path, os.O_RDONLY)
    HeartbeatPage(path, identity(pid=8)).beat(Beat(step=1))
    old.beat(Beat(step=2))
    old.sync()
    assert beat_of(os.pread(reader, 4096, 0))["step"] == 2
    assert beat_of(path.read_bytes())["step"] != 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["heartbeat_rank3"]
    os.close(reader)


def test_the_heartbeat_survives_kill_9_in_the_phase_where_it_came(train) -> None:
    training = train(
        """
        callback = HealthCallback(out=sys.argv[1])
        for step in range(100):
            callback.on_step(step, loss=step / 2)
        with callback.phase("checkpoint"):
            print("there", flush=True)
            time.sleep(60)
        """
    )
    training.said("there")
    training.process.kill()
    training.end()
    reported = beat_of((training.out / "heartbeat_rank0").read_bytes())
    assert reported["step"] == 99
    assert reported["phase"].rstrip(b"\0") == b"checkpoint"
    assert reported["status"].rstrip(b"\0") == b"running"


def test_the_page_has_how_it_ended(train) -> None:
    training = train(
        """
        callback = HealthCallback(out=sys.argv[1])
        for step in range(5):
            callback.on_step(step, loss=1.0)
        callback.close(ValueError("diverged"))
        """
    )
    assert training.end() == (0, "")
    page = (training.out / "heartbeat_rank0").read_bytes()
    assert beat_of(page)["status"].rstrip(b"\0") == b"failed"
    last = training.rows()[-1]
    assert (last["status"], last["error"]) == ("failed", "ValueError: diverged")


HURT = {
    "emptied": ': > "$F"',
    "copied over": 'cp /dev/null "$F"',
    "truncated": 'truncate -s 0 "$F"',
    "truncated and grown": 'truncate -s 0 "$F"; truncate -s 4096 "$F"',
    "removed": 'rm "$F"',
    "replaced": 'mv "$F" "$F.old"; : > "$F"',
    "copied and truncated": 'cp "$F" "$F.1"; : > "$F"',
    "replaced by its copy": 'cp "$F" "$F.1"; mv "$F.1" "$F"',
    # By a rename, since the callback makes a file anew that is gone for a moment.
    "a link": 'echo target > target; ln -s target made; mv -T made "$F"',
    "a pipe": 'mkfifo made; mv -T made "$F"',
    "its folder made anew": 'rm -r "$PWD"; mkdir "$PWD"',
}


@pytest.mark.parametrize("how", HURT)
def test_a_file_that_is_cut_or_removed_is_whole_again_and_the_training_goes_on(
    train, until, how
) -> None:
    training = train(
        """
        callback = HealthCallback(out=sys.argv[1])
        for step in range(100):
            callback.on_step(step, loss=1.0)
        print("there", flush=True)
        sys.stdin.readline()
        for step in range(100, 200):
            callback.on_step(step, loss=1.0)
        print("on", flush=True)
        time.sleep(60)
        """
    )
    training.said("there")
    path = training.out / "heartbeat_rank0"
    environment = {**os.environ, "F": path.name}
    subprocess.run(["sh", "-c", HURT[how]], cwd=training.out, env=environment, check=True)
    training.process.stdin.write("\n")
    training.process.stdin.flush()
    training.said("on")
    until(lambda: (page := read(path)) is not None and page["step"] == 199)
    training.process.kill()
    training.end()
    assert read(path)["step"] == 199
    if how == "a link":
        assert (training.out / "target").read_text() == "target\n"


def test_a_file_that_is_cut_while_the_process_is_stopped_is_whole_again(train, until) -> None:
    training = train(
        """
        callback = HealthCallback(out=sys.argv[1])
        callback.on_step(7, loss=1.0)
        print("there", flush=True)
        time.sleep(60)
        """
    )
    training.said("there")
    training.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, training.process.pid, os.WSTOPPED)
    path = training.out / "heartbeat_rank0"
    os.truncate(path, 0)
    training.process.send_signal(signal.SIGCONT)
    until(lambda: (page := read(path)) is not None and page["step"] == 7)


def test_the_last_step_is_readable_where_a_library_holds_the_interpreters_lock(
    train, until
) -> None:
    training = train(
        """
        import ctypes
        callback = HealthCallback(out=sys.argv[1])
        print("there", flush=True)
        for step in range(100):
            callback.on_step(step, loss=1.0)
        ctypes.PyDLL(None).sleep(60)
        """
    )
    training.said("there")
    path = training.out / "heartbeat_rank0"
    until(lambda: (page := read(path)) is not None and page["step"] == 99)
    training.process.kill()
    training.end()
    assert read(path)["step"] == 99


def test_an_old_process_leaves_the_name_to_the_one_that_came_after_it(tmp_path) -> None:
    path = tmp_path / "heartbeat_rank3"
    old = HeartbeatPage(path, identity())
    new = HeartbeatPage(path, identity(pid=8))
    new.beat(Beat(step=1))
    new.sync()
    old.beat(Beat(step=2))
    old.sync()
    assert read(path)["pid"] == 8


def test_a_planted_link_in_the_place_of_the_new_file_is_not_followed(tmp_path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / f".heartbeat_rank3.{os.getpid()}").symlink_to(target)
    HeartbeatPage(tmp_path / "heartbeat_rank3", identity()).beat(Beat(step=1))
    assert target.read_text() == "mine"
    assert read(tmp_path / "heartbeat_rank3")["step"] == 1
