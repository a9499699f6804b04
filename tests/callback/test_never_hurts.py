"""Whatever happens to the callback, training goes on as if it were not there."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ldlm_callback.rows import Entry, Row
from ldlm_callback.writer import RowWriter


def test_a_folder_that_cannot_be_made_is_said_once_and_training_goes_on(train, tmp_path) -> None:
    (tmp_path / "file").write_text("not a folder")
    training = train(
        """
        callback = HealthCallback(out=sys.argv[1])
        for step in range(100):
            callback.on_step(step, loss=1.0)
        """,
        out=tmp_path / "file" / "run",
    )
    code, errors = training.end()
    assert code == 0
    assert errors.count("training goes on") == 1
    assert all(line.startswith("ldlm-monitor callback: ") for line in errors.splitlines())


def test_a_full_disk_costs_rows_and_not_the_training(train) -> None:
    """A file size limit fails as a full disk does, half a line written."""
    training = train(
        """
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
        callback = HealthCallback(out=sys.argv[1])
        for step in range(1000):
            callback.on_step(step, loss=1.0)
        while callback._session._writer.problem is None:
            time.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, ) * 2)
        """
    )
    code, errors = training.end()
    assert code == 0
    assert errors.count("File too large; training goes on") == 1
    steps = [row["step"] for row in training.rows() if row["type"] == "step"]
    assert steps == list(range(1000)), "there was room again before the queue was full"


@pytest.fixture
def small_disk(tmp_path: Path):
    """A disk of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs takes root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_on_a_disk_that_is_full_the_process_lives_and_says_so(train, small_disk) -> None:
    """The heartbeat's page has its block, so that a store to it can't fail either."""
    training = train(
        """
        callback = HealthCallback(out=sys.argv[1])
        for step in range(30_000):
            callback.on_step(step, loss=1.0)
        """,
        out=small_disk,
    )
    code, errors = training.end()
    assert code == 0
    assert "No space left on device; training goes on" in errors
    assert "the last rows of rank 0 are lost: No space left on device" in errors


def test_without_room_for_a_page_there_is_no_heartbeat(train, small_disk) -> None:
    with pytest.raises(OSError, match="No space"):
        (small_disk / "filler").write_bytes(bytes(100_000))
    training = train(
        "callback = HealthCallback(out=sys.argv[1])\ncallback.on_step(1)", out=small_disk
    )
    code, errors = training.end()
    assert code == 0
    assert "there is no heartbeat" in errors
    assert not (small_disk / "heartbeat_rank0").exists()


def test_a_disk_that_became_read_only_costs_rows_and_not_the_training(train, small_disk) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    training = train(
        "callback = HealthCallback(out=sys.argv[1])\ncallback.on_step(1)", out=small_disk
    )
    code, errors = training.end()
    assert code == 0
    assert "Read-only file system; training goes on" in errors


PLANTED = {
    "a link": 'echo mine > target; ln -s target "$F"',
    "a link to nothing": 'ln -s target "$F"',
    "a pipe": 'mkfifo "$F"',
    "a folder": 'mkdir "$F"',
    "a device": 'mknod "$F" c 1 3',
    "another user's": ': > "$F"; chown 65533 "$F"',
}


@pytest.mark.parametrize("name", ["health_rank0.jsonl", "stack_rank0.txt"])
@pytest.mark.parametrize("what", PLANTED)
def test_what_another_put_in_a_files_place_is_not_written_to_and_that_is_said_once(
    train, tmp_path, what, name
) -> None:
    environment = {**os.environ, "F": name}
    planted = subprocess.run(
        ["sh", "-c", PLANTED[what]], cwd=tmp_path, env=environment, check=False
    )
    if planted.returncode:
        pytest.skip("making it takes root")
    before = (tmp_path / name).lstat()
    training = train(
        """
        callback = HealthCallback(out=sys.argv[1])
        for step in range(100):
            callback.on_step(step, loss=1.0)
        """,
        out=tmp_path,
    )
    code, errors = training.end()
    assert code == 0
    assert errors.count("and is not written to: remove it") == (2 if "health" in name else 1)
    after = (tmp_path / name).lstat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    if what == "a link":
        assert (tmp_path / "target").read_text() == "mine\n"
    assert (tmp_path / "target").exists() == (what == "a link")


def test_a_folder_that_is_reached_by_a_link_is_written_to(train, tmp_path) -> None:
    (tmp_path / "large_disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "large_disk")
    training = train(
        "callback = HealthCallback(out=sys.argv[1])\ncallback.on_step(1)", out=tmp_path / "run"
    )
    assert training.end() == (0, "")
    assert [row["type"] for row in training.rows()] == ["run", "step", "end"]
    assert (tmp_path / "large_disk/heartbeat_rank0").stat().st_size == 4096


def test_a_limit_of_file_sizes_ends_no_training_that_no_longer_ignores_its_signal(train) -> None:
    training = train(
        """
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        callback = HealthCallback(out=sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        for step in range(100):
            callback.on_step(step, loss=1.0)
        """
    )
    code, errors = training.end()
    assert code == 0
    assert "File too large" in errors


@pytest.fixture
def dead_disk(tmp_path: Path):
    """A mount whose server has stopped: no call on it returns."""
    (tmp_path / "remote").mkdir()
    (tmp_path / "mounted").mkdir()
    script = Path(__file__).parents[1] / "together/live/fuse_server.py"
    server = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "remote"), str(tmp_path / "mounted")],
        stdout=subprocess.PIPE,
        text=True,
    )
    said = server.stdout.readline().strip()
    server.send_signal(signal.SIGSTOP)
    yield tmp_path / "mounted" if said == "mounted" else None
    server.kill()
    server.communicate()
    if said == "mounted":
        subprocess.run(["umount", "--lazy", str(tmp_path / "mounted")], check=True)


def test_a_disk_that_never_answers_holds_up_neither_steps_nor_the_end_for_long(
    train, dead_disk
) -> None:
    if dead_disk is None:
        pytest.skip("mounting takes root and /dev/fuse")
    training = train(
        """
        callback = HealthCallback(run="run_a", out=sys.argv[1])
        for step in range(20_000):
            callback.on_step(step, loss=1.0)
        print("done", flush=True)
        """,
        out=dead_disk / "run",
    )
    training.said("done")
    code, errors = training.end()
    assert code == 0
    assert "the last rows of rank 0 are lost: the disk does not answer" in errors


def test_of_rows_that_wait_too_long_the_oldest_go_and_are_counted(tmp_path) -> None:
    gate = threading.Event()
    path = tmp_path / "rows.jsonl"
    writer = RowWriter(path, lambda: {"type": "run"}, prepare=gate.wait, limit=100)
    writer.start()
    for number in range(250):
        writer.put({"number": number})
    gate.set()
    assert writer.close(10.0)
    lines = path.read_text().splitlines()
    assert [line for line in lines if "number" in line] == [
        f'{{"number":{number}}}' for number in range(150, 250)
    ]
    assert "the callback dropped 150 rows that could not be written, or not in time" in lines[1]


def test_steps_of_a_loop_that_outruns_the_writer_are_counted_and_the_count_is_reported(
    health, reported, tmp_path
) -> None:
    """A folder is in the file's place until the loop is done."""
    (path := tmp_path / "health_rank0.jsonl").mkdir()
    callback = health()
    for step in range(25_000):
        callback.on_step(step, loss=1.0)
    path.rmdir()
    callback.close()
    rows = reported()
    steps = [row["step"] for row in rows if row["type"] == "step"]
    counted = [row["fields"]["dropped"] for row in rows if row.get("kind") == "warning"]
    assert steps[-1] == 24_999
    assert sum(counted) == 25_000 - len(steps) > 0


def test_what_cannot_be_made_a_row_is_counted_and_the_rows_beside_it_are_written(tmp_path) -> None:
    def make(_: object) -> list[dict[str, object]]:
        raise ValueError("a value that raises when it is read")

    path = tmp_path / "rows.jsonl"
    writer = RowWriter(path, lambda: {"type": "run"}, make=make)
    writer.start()
    writer.put({"number": 1})
    writer.put((2, 0.0, None, 0.0, None, {}, None, None, None, None))
    writer.put({"number": 3})
    assert writer.close(10.0)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["number"] for row in rows if "number" in row] == [1, 3]
    assert writer.dropped == 1
    assert rows[-1]["fields"]["dropped"] == 1


def test_rows_that_were_on_their_way_when_the_file_broke_are_counted(tmp_path) -> None:
    """The descriptor becomes one that cannot be written to, which no waiting mends."""
    path = tmp_path / "rows.jsonl"
    is_broken = threading.Event()

    def shut() -> None:
        if not is_broken.is_set():
            os.dup2(nowhere, writer._fd)
            for number in range(3):
                writer.put({"number": number})
            is_broken.set()

    nowhere = os.open(os.devnull, os.O_RDONLY)
    writer = RowWriter(path, lambda: {"type": "run"}, idle=shut)
    writer.start()
    assert is_broken.wait(10.0)
    writer.close(10.0)
    os.close(nowhere)
    assert path.read_text() == '{"type":"run"}\n'
    assert writer.problem == "Bad file descriptor"
    assert writer.dropped == 3


def test_rows_that_come_fast_are_written_before_they_are_too_many(
    tmp_path, monkeypatch, until
) -> None:
    monkeypatch.setattr("ldlm_callback.writer.POLL_SECONDS", 3600.0)
    path = tmp_path / "rows.jsonl"
    writer = RowWriter(path, lambda: {"type": "run"}, limit=100)
    writer.start()
    until(lambda: path.exists() and path.read_text() != "")
    for number in range(51):
        writer.put({"number": number})
    until(lambda: path.read_text().count("number") >= 50)
    assert writer.close(10.0)
    assert writer.dropped == 0


def test_errors_of_its_own_are_said_once_and_after_ten_it_is_silent(train) -> None:
    training = train(
        """
        class Broken:
            is_cpu = True
            detach = None
            def __getattr__(self, name):
                raise RuntimeError("broken")
        callback = HealthCallback(out=sys.argv[1])
        for step in range(100):
            callback.watch(Broken())
        with callback.phase("eval"):
            pass
        callback.event("later")
        callback.close()
        """
    )
    code, errors = training.end()
    assert code == 0
    assert errors == "ldlm-monitor callback: RuntimeError: broken; training goes on\n"


@pytest.mark.parametrize(
    "arguments", ["out=3.5", "every=0", "every='x'", "rank='x'", "config=7", "serve='nowhere:x'"]
)
def test_arguments_that_make_no_sense_raise_nothing(train, arguments) -> None:
    training = train(
        f"""
        wishes = dict(out=sys.argv[1])
        wishes.update({arguments})
        callback = HealthCallback(**wishes)
        callback.on_step(1, loss=1.0)
        callback.close()
        """
    )
    assert training.end()[0] == 0


def test_numbers_that_no_page_or_row_can_hold_raise_nothing(health, reported) -> None:
    callback = health()
    callback.on_step(2**70, loss=10**400, samples=-(2**80))
    callback.on_step("later", loss=1.0)
    callback.on_step(5, loss=2.0)
    callback.close()
    assert reported("step")[-1]["loss"] == 2.0


def test_values_that_break_a_row_cost_that_row_alone(health, reported) -> None:
    class Hostile(dict):
        def items(self):
            raise RuntimeError("no items")

    callback = health()
    callback.on_step(1, loss=10**400, tokens=10**400)
    callback.on_step(2, loss=1.0, count=10**5000)
    callback.event("config", config=Hostile(a={1, 2}), other={"x": object})
    callback.event("deep", nested=[[[[[[[[[[[[1]]]]]]]]]]]])
    callback.on_step(3, loss=2.0)
    callback.close()
    assert reported("step")[-1]["loss"] == 2.0
    assert reported("end")[0]["status"] == "finished"


def test_an_exception_that_cannot_be_shown_is_raised_as_before(train) -> None:
    training = train(
        """
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError("no text")
        callback = HealthCallback(out=sys.argv[1])
        callback.on_step(1)
        raise Odd()
        """
    )
    code, errors = training.end()
    assert code == 1
    assert "Odd: <exception str() failed>" in errors


def test_two_callbacks_in_a_process_do_not_disturb_each_other(train) -> None:
    training = train(
        """
        first = HealthCallback(out=sys.argv[1], rank=0)
        second = HealthCallback(out=sys.argv[1], rank=1)
        first.on_step(1), second.on_step(1)
        first.close()
        second.on_step(2)
        """
    )
    assert training.end() == (0, "")
    assert [row["type"] for row in training.rows(0)] == ["run", "step", "end"]
    assert [row["type"] for row in training.rows(1)] == ["run", "step", "step", "end"]


def test_a_flush_waits_for_rows_that_are_being_made(tmp_path) -> None:
    may_go_on, began = threading.Event(), threading.Event()

    def make(entry: Entry) -> list[Row]:
        began.set()
        may_go_on.wait()
        return [{"type": "step", "step": entry[0]}]

    writer = RowWriter(tmp_path / "rows.jsonl", lambda: {"type": "run"}, make=make)
    writer.start()
    writer.put((1, 0.0, 0.0, 0.0, None, {}, None, None, None, None))
    writer.hurry()
    began.wait()
    assert not writer.flush(0.0)
    may_go_on.set()
    assert writer.flush(10.0)
    assert '"step":1' in (tmp_path / "rows.jsonl").read_text()
    writer.close(10.0)
