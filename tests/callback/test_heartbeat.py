"""The page with where a rank stands, whatever became of its process."""

import os

from ldlm_callback.rank import (
    BEAT,
    BEAT_AT,
    IDENTITY,
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
