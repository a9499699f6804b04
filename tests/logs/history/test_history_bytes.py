"""Finished files are read as live ones are: holes, marks and long lines cost no record."""

import subprocess
import sys
from pathlib import Path

import pytest

from ldlm_monitor.logs.history.merge import place
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.follower import Follower

ROWS = b'{"step": 1, "loss": NaN}\n{"step": 2, "loss": 2.5}\n'
BEFORE = [b"\0" * 5, b"\0" * 300_000, b"\xef\xbb\xbf"]
TEXT = b"step 1 loss nan\nstep 2 loss 2.5\n"


def played(path: Path) -> bytes:
    return b"".join(chunk.data for _, chunk, _ in place([path], RunNames()).play())


@pytest.mark.parametrize("before", BEFORE, ids=["nuls", "hole", "mark"])
@pytest.mark.parametrize(
    ("name", "data"), [("a.jsonl", ROWS), ("a.log", TEXT)], ids=["rows", "text"]
)
def test_what_stands_before_the_first_record_is_no_part_of_it(
    tmp_path: Path, before: bytes, name: str, data: bytes
) -> None:
    log = tmp_path / name
    log.write_bytes(before + data)
    follower = Follower()
    follower.add(log)
    live = b"".join(chunk.data for chunk in follower.read(None, 1000.0))
    follower.close()
    assert played(log) == live == data


def test_the_rows_behind_a_mark_of_utf_8_are_known_as_rows(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"\xef\xbb\xbf" + ROWS)
    (file,) = place([log], RunNames()).files
    assert file.form == "rows"


@pytest.mark.parametrize(
    "time", ["1769681700123", "9" * 400, "176968170"], ids=["milliseconds", "infinite", "early"]
)
def test_times_that_the_parser_refuses_date_nothing(tmp_path: Path, time: str) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text(f'{{"timestamp": {time}, "step": 1, "loss": 2.5}}\n')
    (file,) = place([log], RunNames()).files
    assert not file.timeline.timed


def test_a_time_that_the_parser_refuses_leaves_the_others(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    times = ("1769681700.5", "9" * 400, "1769681760")
    log.write_text("".join(f'{{"timestamp": {time}, "loss": 2.5}}\n' for time in times))
    history = place([log], RunNames())
    assert history.end == 1769681760.0
    assert {when for when, _, _ in history.play()} == {1769681700.5, 1769681760.0}


@pytest.mark.parametrize("before", ["hole", "line"])
def test_rows_without_time_are_read_in_bounded_memory(tmp_path: Path, before: str) -> None:
    log = tmp_path / "a.jsonl"
    with log.open("wb") as file:
        file.write(ROWS)
        if before == "hole":
            file.seek(2**30)
        else:
            for _ in range(200):
                file.write(b"x" * 2**20)
            file.write(b"\n")
        file.write(ROWS)
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from ldlm_monitor.logs.history.merge import place\n"
        "from ldlm_monitor.logs.parse.run_names import RunNames\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, ({400 * 2**20}, {400 * 2**20}))\n"
        "pieces = place([Path(sys.argv[1])], RunNames()).play()\n"
        "print(sum(chunk.data.count(b'step') for _, chunk, _ in pieces))\n"
    )
    found = subprocess.check_output([sys.executable, "-c", code, str(log)], text=True)
    assert found == "4\n"


def test_a_hole_at_the_end_is_not_read(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_bytes(ROWS)
    with log.open("r+b") as file:
        file.truncate(2**40)
    assert played(log) == ROWS
