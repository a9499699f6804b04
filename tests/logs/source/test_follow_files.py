"""What writers, rotation and people do to files, and that nothing is lost or doubled by it."""

import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.logs.source.file_identity import KnownContents
from ldlm_monitor.logs.source.file_system import DIRECT
from ldlm_monitor.logs.source.open_files import RETIRED_SECONDS


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def lines(start: int, stop: int) -> bytes:
    return b"".join(b"line %d\n" % i for i in range(start, stop))


def expected(start: int, stop: int) -> list[bytes]:
    return lines(start, stop).splitlines()


def test_a_late_file_is_read_from_its_start(reading, log):
    reader = reading(log)
    assert reader.look() == []
    append(log, lines(0, 100))
    assert reader.look() == expected(0, 100)
    append(log, lines(100, 110))
    assert reader.look() == expected(100, 110)


def test_a_renamed_file_is_read_to_its_end_while_its_writer_keeps_it(reading, log):
    reader = reading(log)
    with log.open("ab", buffering=0) as old:
        old.write(lines(0, 10))
        reader.look()
        old.write(lines(10, 15))
        log.rename(log.with_suffix(".log.1"))
        old.write(lines(15, 20))
        append(log, lines(20, 30))
        assert reader.look() == expected(10, 30), "the old one first"
        old.write(lines(30, 40))
        assert reader.look(after=1.2) == expected(30, 40)
    assert reader.notices() == ["replaced"]
    assert len({chunk.file for chunk in reader.chunks}) == 2


def test_what_follows_a_rotated_file_continues_it_and_a_new_file_of_the_name_does_not(reading, log):
    reader = reading(log)
    append(log, lines(0, 10))
    reader.look()
    log.rename(log.with_suffix(".log.1"))
    append(log, lines(10, 20))
    reader.look()
    assert [each.continues for each in reader.chunks] == ["", str(log)]
    log.unlink()
    reader.look(after=10)
    append(log, lines(20, 30))
    reader.look()
    assert (reader.chunks[-1].data, reader.chunks[-1].continues) == (lines(20, 30), "")


@pytest.mark.parametrize("looks_between", [True, False])
def test_a_copy_of_a_log_that_was_emptied_and_then_renamed_is_no_file_of_that_name(
    reading, log, looks_between
):
    """Files that had the name for a while between two looks are read, too, and lie beside it."""
    reader = reading(log)
    append(log, lines(0, 500))
    assert reader.look() == expected(0, 500)
    log.with_suffix(".log.1").write_bytes(log.read_bytes())
    os.truncate(log, 0)
    append(log, lines(500, 510))
    came = reader.look() if looks_between else []
    log.rename(log.with_suffix(".log.2"))
    append(log, lines(510, 520))
    assert sorted(came + reader.look() + reader.look(after=1.2)) == expected(500, 520)


def test_a_log_that_was_compressed_before_it_was_followed_on_is_known(reading, log):
    """It was read as history, and lost its name before its position was taken up."""
    first, later = reading(log), reading()
    append(log, lines(0, 500))
    first.look()
    packed = log.with_suffix(".log.1.gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    append(log, lines(500, 510))
    later.follower.add(log, resume=first.follower.positions())
    for came in ([], expected(500, 510)):
        assert KnownContents(later.follower.contents(), DIRECT).find(packed).name == str(log)
        assert came or later.look() == expected(500, 510)


def test_a_long_rest_of_a_renamed_file_comes_before_the_new_one(reading, log):
    reader = reading(log)
    append(log, lines(0, 200_000))
    reader.look(budget=1)
    log.rename(log.with_suffix(".log.1"))
    append(log, lines(200_000, 200_010))
    while reader.follower.behind():
        reader.look(budget=1)
    assert [chunk.file for chunk in reader.chunks] == sorted(
        (chunk.file for chunk in reader.chunks), key=lambda file: file != reader.chunks[0].file
    )
    assert reader.chunks[-1].data == lines(200_000, 200_010)


def test_a_record_finished_in_the_old_file_after_the_rename_comes_once_and_whole(reading, log):
    reader = reading(log)
    with log.open("ab", buffering=0) as old:
        old.write(b"one\npart")
        assert reader.look() == [b"one"]
        log.rename(log.with_suffix(".log.1"))
        append(log, b"three\n")
        assert reader.look() == [b"three"]
        old.write(b"ial\n")
        assert reader.look(after=10) == [b"partial"]
    assert reader.look(after=RETIRED_SECONDS) == []
    assert [(chunk.data, chunk.final) for chunk in reader.chunks][-1] == (b"", True)


def test_an_unfinished_end_of_an_old_file_comes_when_the_file_has_long_been_silent(reading, log):
    reader = reading(log)
    append(log, b"one\nunfinished")
    reader.look()
    log.rename(log.with_suffix(".log.1"))
    append(log, b"two\n")
    reader.look()
    reader.look(after=RETIRED_SECONDS - 1)
    assert not any(chunk.final for chunk in reader.chunks)
    assert reader.look(after=1) == [b"unfinished"]
    assert reader.chunks[-1].final


def test_rotation_inside_a_followed_glob_reads_nothing_twice(reading, log):
    """`train.log*` follows the renamed file under its new name too."""
    older = log.with_name("train.log.1")
    reader = reading(log, older)
    append(log, lines(0, 5))
    reader.look()
    with log.open("ab", buffering=0) as old:
        log.rename(older)
        append(log, lines(5, 10))
        old.write(lines(10, 12))
        assert sorted(reader.look()) == sorted(expected(5, 12))
        old.write(lines(12, 14))
        assert reader.look(after=2) == expected(12, 14)
        old.write(lines(14, 16))
        assert reader.look(after=2 * RETIRED_SECONDS) == expected(14, 16)


def test_two_names_of_one_file_are_read_once(reading, log):
    link = log.with_name("latest.log")
    append(log, b"one\n")
    link.symlink_to(log)
    reader = reading(link, log)
    assert reader.look() == [b"one"]
    append(log, b"two\n")
    assert reader.look() == [b"two"]


def test_a_second_name_of_a_file_that_was_emptied_just_now_is_that_file(reading, log):
    append(log, b"one %d\n" % 10**1500)
    reader = reading(log)
    reader.look()
    second = log.with_name("second.log")
    os.truncate(log, 0)
    append(log, b"two %d\n" % 10**1600)
    os.link(log, second)
    assert KnownContents(reader.follower.contents(), DIRECT).find(second).name == str(log)


def test_a_file_that_comes_back_with_other_content_is_read_from_its_start(reading, log):
    append(log, b"old %d\n" % 10**1500)
    reader = reading(log)
    reader.look()
    away = log.rename(log.with_name("away"))
    reader.look()
    reader.look(after=RETIRED_SECONDS + 1)
    away.rename(log)
    log.write_bytes(b"new %d\nlast\n" % 10**3000)
    assert reader.look()[-1:] + reader.look() == [b"last"]
    assert "rewritten" in reader.notices()


def test_two_files_that_exchange_names_go_on_where_they_were(reading, tmp_path):
    a, b, c = (tmp_path / name for name in "abc")
    append(a, b"a1\n")
    append(b, b"b1\n")
    reader = reading(a, b)
    reader.look()
    a.rename(c)
    b.rename(a)
    c.rename(b)
    append(a, b"b2\n")
    append(b, b"a2\n")
    assert sorted(reader.look() + reader.look()) == [b"a2", b"b2"]


def test_an_emptied_file_is_read_from_its_start_and_said_so(reading, log):
    reader = reading(log)
    append(log, lines(0, 10))
    reader.look()
    os.truncate(log, 0)
    reader.look(after=1)
    append(log, lines(10, 20))
    assert reader.look() == expected(10, 20)
    assert reader.notices() == ["truncated"]
    first, second = {chunk.file for chunk in reader.chunks}
    assert first[:2] == second[:2]
    assert {first[2], second[2]} == {0, 1}


def test_copytruncate_that_grows_past_the_old_end_between_two_looks_is_noticed(reading, log):
    """All begin with the same banner, longer than what is compared of the first bytes."""
    banner = b"#" * 2000 + b"\n"
    reader = reading(log)
    append(log, banner + lines(0, 10))
    reader.look()
    os.truncate(log, 0)
    append(log, banner + lines(10, 120))
    assert reader.look()[1:] == expected(10, 120)
    assert reader.notices() == ["rewritten"]


def test_a_new_launch_that_repeats_the_same_rows_is_known_by_its_first_line(reading, log):
    rows = b"loss 100.0\n" * 200
    reader = reading(log)
    append(log, b"launch 1\n" + rows)
    reader.look()
    os.truncate(log, 0)
    append(log, b"launch 2\n" + rows + rows)
    assert reader.look()[0] == b"launch 2"


def test_the_same_size_again_at_the_same_moment_is_noticed(reading, log):
    reader = reading(log)
    append(log, b"loss 1\n")
    reader.now = log.stat().st_mtime
    reader.look()
    status = log.stat()
    os.truncate(log, 0)
    append(log, b"loss 2\n")
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert reader.look(after=1) == [b"loss 2"]


def test_an_unfinished_record_that_was_truncated_away_ends_its_generation(reading, log):
    reader = reading(log)
    append(log, b"one\nhalf")
    reader.look()
    os.truncate(log, 0)
    append(log, b"two\n")
    assert reader.look() == [b"half", b"two"]
    assert [chunk.final for chunk in reader.chunks] == [False, True, False]


@pytest.mark.parametrize("looks_between", [True, False])
def test_a_hole_left_by_a_writer_that_does_not_append_is_passed_over(reading, log, looks_between):
    reader = reading(log)
    with log.open("wb", buffering=0) as writer:
        writer.write(lines(0, 1000))
        reader.look()
        os.truncate(log, 0)
        if looks_between:
            reader.look()
        writer.write(lines(1000, 1010))
        assert reader.look() == expected(1000, 1010)
    assert reader.chunks[-1].offset == len(lines(0, 1000))
    assert reader.chunks[-1].line == 1


def test_a_hole_of_terabytes_costs_no_time(reading, log):
    with log.open("wb", buffering=0) as writer:
        writer.write(b"before\n")
        writer.seek(2**42)
        writer.write(b"after\n")
        reader = reading(log)
        assert reader.look() == [b"before", b"after"]


def test_zeros_at_the_end_are_text_that_has_not_arrived(reading, log):
    reader = reading(log)
    with log.open("wb", buffering=0) as writer:
        writer.write(b"one\n" + bytes(100))
        assert reader.look() == [b"one"]
        assert reader.follower.behind() == 0
        writer.seek(4)
        writer.write(b"two\nthree\n")
        assert reader.look(after=1) == [b"two", b"three"]


def test_a_deleted_file_is_read_to_its_end_and_waited_for(reading, log):
    reader = reading(log)
    with log.open("ab", buffering=0) as writer:
        writer.write(lines(0, 10))
        reader.look()
        writer.write(lines(10, 20))
        log.unlink()
        assert reader.look(after=1) == expected(10, 20)
        writer.write(lines(20, 30))
        assert reader.look(after=1) == expected(20, 30)
    append(log, lines(30, 40))
    assert reader.look(after=1) == expected(30, 40)
    assert reader.notices() == ["vanished", "returned"]


def test_a_file_moved_away_and_back_goes_on_where_it_was(reading, log):
    away = log.with_name("away")
    reader = reading(log)
    append(log, b"one\n")
    reader.look()
    for silence in (1, 2 * RETIRED_SECONDS):
        log.rename(away)
        reader.look(after=1)
        reader.look(after=silence)
        append(away, b"two\n")
        away.rename(log)
        assert reader.look(after=1) == [b"two"]
    assert reader.chunks[-1].offset == 8
    assert reader.chunks[-1].line == 3


def test_a_symbolic_link_that_changes_its_target_is_followed_to_both(reading, tmp_path):
    first, second, link = (tmp_path / name for name in ("run1.log", "run2.log", "latest.log"))
    append(first, b"a1\n")
    append(second, b"b1\n")
    link.symlink_to(first)
    reader = reading(link)
    assert reader.look() == [b"a1"]
    assert reader.look({first}) == [], "the target's own path wakes it too"
    append(first, b"a2\n")
    swap = tmp_path / "swap"
    swap.symlink_to(second)
    swap.replace(link)
    assert reader.look() == [b"a2", b"b1"]
    append(first, b"a3\n")
    append(second, b"b2\n")
    assert reader.look() == [b"a3", b"b2"]


def test_resting_files_give_their_descriptors_back_and_lose_nothing(reading, tmp_path):
    paths = [tmp_path / f"{rank}.log" for rank in range(10)]
    for path in paths:
        append(path, b"one\n")
    reader = reading(*paths, open_files=2)
    reader.look()
    held = [fd for fd in os.listdir("/proc/self/fd") if _leads_to(fd, tmp_path)]
    assert len(held) == 2
    for path in paths:
        append(path, b"two\n")
    assert reader.look() == [b"two"] * 10
    append(paths[0], b"three\n")
    paths[0].rename(tmp_path / "0.log.1")
    append(paths[0], b"four\n")
    assert reader.look() == [b"three", b"four"]


def test_files_that_all_have_a_backlog_hold_no_more_descriptors_than_are_allowed(reading, tmp_path):
    paths = [tmp_path / f"{rank}.log" for rank in range(50)]
    for path in paths:
        append(path, b"one\n")
    reader = reading(*paths, open_files=4)
    look = reader.follower.read(None, 1000.0)
    held = [_held_below(tmp_path) for _ in look]
    assert (len(held), max(held)) == (50, 4)


def test_descriptors_follow_the_limit_of_the_process(tmp_path):
    script = """if True:
        import os, resource, sys
        from pathlib import Path
        from ldlm_monitor.logs.source.follower import Follower

        def look(now):
            return b"".join(chunk.data for chunk in follower.read(None, now)).count(b"\\n")

        folder = Path(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        follower = Follower()
        for path in folder.iterdir():
            follower.add(path)
        print(look(1.0), len(os.listdir("/proc/self/fd")) < 32)
        for name in ("late.log", "later.log"):
            folder.joinpath(name).write_text("one\\n")
            follower.add(folder / name)
        others = [os.dup(0) for _ in range(65 - len(os.listdir("/proc/self/fd")))]
        print(look(2.0), [notice.kind for notice in follower.journal.drain()])
        os.close(others.pop())
        os.close(others.pop())
        print(look(3.0), [notice.kind for notice in follower.journal.drain()])
    """
    for rank in range(300):
        append(tmp_path / f"{rank}.log", b"one\n")
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["300 True", "0 ['exhausted']", "2 []"]


def test_a_file_that_lost_its_name_is_checked_although_nothing_rings(reading, log, tmp_path):
    append(log, b"one\n")
    reader = reading(log)
    reader.look()
    with log.open("ab") as writer:
        log.unlink()
        append(log, b"other\n")
        assert reader.look({log}, after=1.0) == [b"other"]
        writer.write(b"two\n")
    assert reader.look(set(), after=1.0) == [b"two"]
    reader.look(set(), after=RETIRED_SECONDS + 1)
    assert [tail.name for tail in reader.tails()] == [str(log)]


def test_a_name_that_is_replaced_again_and_again_holds_few_descriptors(reading, log, tmp_path):
    append(log, b"0\n")
    reader = reading(log)
    found = reader.look()
    for number in range(1, 200):
        append(tmp_path / "swap", b"%d\n" % number)
        (tmp_path / "swap").rename(log)
        found += reader.look(after=0.01)
    assert found == [b"%d" % number for number in range(200)]
    assert _held_below(tmp_path) <= 10


def _held_below(folder: Path) -> int:
    return sum(_leads_to(each, folder) for each in os.listdir("/proc/self/fd"))


def _leads_to(descriptor: str, folder: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(folder))
    except FileNotFoundError:
        return False


@pytest.fixture
def without_privileges() -> Iterator[Path]:
    """A folder in which file modes count, also where the tests run as root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        root = os.geteuid() == 0
        if root:
            os.chown(folder, 65534, -1)
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)


def test_an_unreadable_file_is_reported_once_and_read_when_it_can_be(reading, without_privileges):
    log = without_privileges / "train.log"
    append(log, b"one\n")
    log.chmod(0)
    reader = reading(log)
    assert reader.look() == []
    assert reader.look(after=1) == []
    (notice,) = reader.follower.journal.drain()
    assert str(notice) == f"{log}: cannot be read (Permission denied); trying again"
    log.chmod(0o644)
    assert reader.look(after=1) == [b"one"]
    assert reader.notices() == ["readable"]


def test_a_pipe_or_a_folder_is_no_log_and_holds_up_nobody(reading, tmp_path, log):
    pipe = tmp_path / "pipe.log"
    os.mkfifo(pipe)
    (tmp_path / "folder.log").mkdir()
    append(log, b"one\n")
    reader = reading(pipe, tmp_path / "folder.log", log)
    assert reader.look() == [b"one"]
    assert reader.notices() == ["unreadable", "unreadable"]


def test_lines_written_while_nobody_read_come_after_a_restart(reading, log):
    append(log, lines(0, 10))
    first = reading(log)
    first.look()
    read = log.stat().st_size
    append(log, lines(10, 20))
    second = reading()
    second.follower.add(log, offset=read)
    assert second.look() == expected(10, 20)
