"""What survives a restart: which content of which file was read, and how far."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest

from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.file_identity import FilePosition, KnownContents
from ldlm_monitor.logs.source.file_system import DIRECT
from ldlm_monitor.logs.source.notices import Journal
from tests.logs.source.kept_positions import positions_from_json, positions_to_json

BANNER = b"#" * 1500 + b"\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def lines(start: int, stop: int) -> bytes:
    return b"".join(b"line %d\n" % i for i in range(start, stop))


def expected(start: int, stop: int) -> list[bytes]:
    return lines(start, stop).splitlines()


@pytest.fixture
def restarted(reading):
    """`restarted(reader, path)`: another reader that goes on where the first was."""

    def make(reader, *paths: Path):
        positions = reader.follower.positions()
        reader.follower.close()
        again = reading()
        for path in paths:
            resume = [p for p in positions if p.path == str(path)]
            again.follower.add(path, resume=resume)
        return again

    return make


def test_reading_goes_on_where_it_was_with_the_right_line(reading, restarted, log):
    append(log, BANNER + lines(0, 10) + b"half a li")
    reader = reading(log)
    reader.look()
    append(log, b"ne\n" + lines(11, 20))
    again = restarted(reader, log)
    assert again.look() == [b"half a line", *expected(11, 20)]
    assert again.chunks[0].line == 12
    assert again.chunks[0].file == reader.chunks[0].file


def test_a_position_holds_no_text_of_the_log(reading, log):
    append(log, b"token=secret-in-the-log\n" * 100)
    reader = reading(log)
    reader.look()
    (position,) = reader.follower.positions()
    assert position.read == position.offset == log.stat().st_size
    assert "secret" not in repr(position)


def test_another_content_under_the_same_inode_is_read_from_its_start_and_counted(
    reading, restarted, log
):
    append(log, BANNER + lines(0, 10))
    reader = reading(log)
    reader.look()
    os.truncate(log, 0)
    append(log, BANNER + lines(50, 80))
    again = restarted(reader, log)
    assert again.look()[1:] == expected(50, 80)
    assert again.notices() == ["rewritten"]
    assert again.chunks[0].file[2] == 1


def test_a_file_renamed_while_nobody_read_is_read_to_its_end_first(reading, restarted, log):
    append(log, lines(0, 10))
    reader = reading(log)
    reader.look()
    append(log, lines(10, 20))
    log.rename(log.with_suffix(".log.7"))
    append(log, lines(20, 30))
    again = restarted(reader, log)
    assert again.look() == expected(10, 30)


def test_a_file_that_lost_its_name_before_the_restart_is_read_on(reading, restarted, log):
    reader = reading(log)
    with log.open("ab", buffering=0) as old:
        old.write(lines(0, 10))
        reader.look()
        log.rename(log.with_suffix(".log.1"))
        append(log, lines(100, 110))
        reader.look()
        again = restarted(reader, log)
        again.look()
        old.write(lines(10, 20))
        append(log, lines(110, 120))
        assert again.look(after=2) == expected(10, 20) + expected(110, 120)


def test_a_file_deleted_while_nobody_read_is_counted_as_gone(reading, restarted, log):
    append(log, BANNER + lines(0, 10))
    reader = reading(log)
    reader.look()
    append(log, lines(10, 20))
    log.rename(log.with_name("kept from reuse"))
    again = restarted(reader, log)
    log.with_name("kept from reuse").unlink()
    assert again.look() == []
    assert again.notices() == ["vanished"]
    append(log, lines(20, 30))
    assert again.look(after=1) == expected(20, 30)
    assert {"gone", "truncated", "rewritten"} & set(again.notices())


def test_a_file_that_comes_back_after_the_restart_goes_on_where_it_was(
    reading, restarted, log, tmp_path
):
    """As where the file system is mounted later than the monitor starts."""
    (tmp_path / "elsewhere").mkdir()
    append(log, lines(0, 10))
    reader = reading(log)
    reader.look()
    away = log.rename(tmp_path / "elsewhere" / "x")
    again = restarted(reader, log)
    assert again.look() == []
    kept = again.follower.positions()
    assert kept == reader.follower.positions()
    append(away, lines(10, 20))
    away.rename(log)
    assert again.look(after=1) == expected(10, 20)
    assert again.notices() == ["vanished", "returned"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_copy_in_the_place_of_a_file_goes_on_where_that_was(reading, restarted, log, restart):
    """rsync and editors write a new file and rename it over the old one."""
    append(log, BANNER + lines(0, 10))
    reader = reading(log)
    reader.look()
    append(log, lines(10, 15))
    copy = log.with_name("copy")
    shutil.copy(log, copy)
    append(copy, lines(15, 20))
    if restart:
        reader = restarted(reader, log)
    copy.replace(log)
    assert reader.look() == expected(10, 20)
    assert reader.notices() == ["copied"]
    append(log, lines(20, 22))
    assert reader.look() == expected(20, 22)


def rows(start: int, stop: int) -> bytes:
    return b"".join(b"step %d loss 2.%03d\n" % (step, 999 - step) for step in range(start, stop))


def expected_rows(start: int, stop: int) -> list[bytes]:
    return rows(start, stop).splitlines()


def edited(log: Path, edit: Callable[[bytes], bytes]) -> None:
    """As `sed -i` does: a new file with other text takes the name, and the old one is deleted."""
    copy = log.with_name("sedXXXX")
    copy.write_bytes(edit(log.read_bytes()))
    copy.replace(log)


EDITS = {
    "longer": lambda text: text.replace(b"loss", b"the loss", 3),
    "shorter": lambda text: text.replace(b"step 1 ", b"", 3),
    "without a line": lambda text: text.replace(rows(3, 4), b""),
    "at its end": lambda text: text.replace(rows(96, 97), b"# removed\n"),
    "with a line more": lambda text: text.replace(rows(60, 61), rows(60, 61) + b"# added\n"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_log_goes_on_behind_the_last_lines_that_were_read(reading, log, edit):
    append(log, rows(0, 100))
    reader = reading(log)
    reader.look()
    edited(log, edit)
    assert (reader.look(), reader.notices()) == ([], ["copied"])
    append(log, rows(100, 102))
    assert reader.look() == expected_rows(100, 102)
    assert reader.chunks[-1].line == log.read_bytes().count(b"\n") - 1


def test_what_was_written_beside_an_edit_comes_once(reading, log):
    append(log, rows(0, 100))
    reader = reading(log)
    reader.look()
    append(log, rows(100, 103))
    edited(log, lambda text: b"# edited\n" + text + rows(103, 105))
    assert reader.look() == expected_rows(100, 105)
    assert reader.look() == []


@pytest.mark.parametrize("end", [b"", b"saved\n"])
def test_lines_written_where_an_edit_removed_some_are_read(reading, log, end):
    """`sed -i '$d'`, or `'$s/a/b/'`, and then the training's next lines."""
    append(log, rows(0, 100) + end)
    reader = reading(log)
    reader.look()
    edited(log, lambda text: text.removesuffix(end or rows(99, 100)) + b"loss nan\n" + end)
    assert reader.look() == [b"loss nan", *end.splitlines()]


def test_bars_and_long_lines_show_the_place_in_an_edited_log(reading, log):
    text = b"config " + b"c" * 3000 + b"\n" + rows(0, 60).replace(b"\n", b"\r") + rows(60, 61)
    append(log, text + b"x" * 3000 + b"\n")
    reader = reading(log)
    reader.look()
    edited(log, lambda text: b"# edited\n" + text + rows(61, 62))
    assert reader.look() == expected_rows(61, 62)


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: rows(0, 40),  # another launch of the same program
        lambda text: text.replace(b"loss", b"cost"),  # no line is left
        lambda text: b"launch 2\n" + rows(0, 10) + text[-60:] + rows(20, 60),
    ],
)
def test_a_log_without_the_last_lines_that_were_read_is_another_one(reading, log, edit):
    append(log, rows(0, 100))
    reader = reading(log)
    reader.look()
    edited(log, edit)
    assert len(reader.look()) == log.read_bytes().count(b"\n")
    assert reader.notices() == ["replaced"]


def test_rows_that_are_all_the_same_show_no_place_in_an_edited_log(reading, log):
    same = b"loss 100.0\n" * 200
    append(log, b"launch 1\n" + same)
    reader = reading(log)
    reader.look()
    edited(log, lambda _: b"launch 2\n" + same + same)
    assert reader.look()[0] == b"launch 2"


def test_a_new_launch_with_the_same_banner_is_no_copy(reading, log):
    """The rotated file still has a name, so it was not replaced."""
    append(log, BANNER)
    reader = reading(log)
    reader.look()
    log.rename(log.with_suffix(".log.1"))
    append(log, BANNER + lines(0, 3))
    assert reader.look() == [BANNER[:-1], *expected(0, 3)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_shorter_than_a_copys_least_size_is_no_copy(reading, restarted, log, restart):
    """Its few lines may be equal by chance, as those of two launches are."""
    append(log, lines(0, 10))
    reader = reading(log)
    reader.look()
    if restart:
        reader = restarted(reader, log)
    relaunched = log.with_name("relaunched")
    append(relaunched, lines(0, 10))
    relaunched.replace(log)
    assert reader.look() == expected(0, 10)
    assert "copied" not in reader.notices()


def test_a_short_log_beside_an_equal_one_is_not_continued_by_what_replaces_it(reading, log):
    """As by a copy and truncation: of so few bytes it does not show that they were copied."""
    append(log, lines(0, 10))
    reader = reading(log)
    reader.look()
    shutil.copy(log, log.with_suffix(".log.1"))
    os.truncate(log, 0)
    append(log, b"new\n")
    reader.look()
    assert (reader.look(after=10), reader.chunks[-1].continues) == ([], "")


def test_a_short_log_of_a_launch_between_two_looks_is_read_though_it_begins_alike(reading, log):
    append(log, lines(0, 10))
    reader = reading(log)
    reader.look()
    log.rename(log.with_suffix(".log.2"))
    append(log, lines(0, 12))
    log.rename(log.with_suffix(".log.1"))
    append(log, b"third launch\n")
    assert reader.look() == [*expected(0, 12), b"third launch"]


@pytest.mark.parametrize(("count", "name"), [(10, ""), (500, "train.log")])
def test_a_path_is_known_as_a_copy_from_a_least_size_on(reading, log, count, name):
    append(log, lines(0, count))
    reader = reading(log)
    reader.look()
    copy = log.with_suffix(".log.1")
    shutil.copy(log, copy)
    assert Path(KnownContents(reader.follower.contents(), DIRECT).find(copy).name).name == name


def test_files_with_names_are_found_before_nameless_ones(reading, log):
    """The deleted file's inode was given to the next log, which begins with the same banner."""
    append(log, BANNER)
    reader = reading(log)
    reader.look()
    (deleted,) = reader.follower.positions()
    append(log, lines(0, 10))
    reader.look()
    (named,) = reader.follower.positions()
    append(log, lines(10, 12))
    again = reading()
    again.follower.add(log, resume=[replace(deleted, nameless=True), named])
    assert again.look() == expected(10, 12)


def test_a_writer_that_wakes_in_a_renamed_file_after_an_hour_s_half_is_heard(reading, log):
    reader = reading(log)
    with log.open("ab", buffering=0) as old:
        old.write(lines(0, 10))
        reader.look()
        log.rename(log.with_suffix(".log.1"))
        append(log, b"new\n")
        reader.look()
        reader.look(after=61)
        assert reader.chunks[-1].final
        old.write(lines(10, 12))
        assert reader.look(after=1700) == expected(10, 12)
        assert reader.chunks[-1].line == 11


def test_a_deleted_file_is_not_kept_from_being_freed(reading, log):
    append(log, lines(0, 10))
    reader = reading(log)
    reader.look()
    log.unlink()
    reader.look(after=1)
    reader.look(after=61)
    reader.look(after=1)
    held = [
        os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)
    ]
    assert not [name for name in held if str(log) in name]


def _is_open(descriptor: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


def test_a_name_that_cannot_be_read_keeps_its_position(reading, restarted, log, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    append(log, lines(0, 10))
    reader = reading(log)
    reader.look()
    away = log.rename(tmp_path / "elsewhere" / "x")
    log.mkdir()
    again = restarted(reader, log)
    append(away, lines(10, 12))
    assert again.look() == []
    log.rmdir()
    away.rename(log)
    assert again.look(after=1) == expected(10, 12)
    assert again.notices() == ["unreadable", "readable"]


def test_a_name_that_is_no_utf_8_survives(reading, restarted, tmp_path):
    log = tmp_path / os.fsdecode(b"bad\xff.log")
    append(log, b"one\n")
    reader = reading(log)
    reader.look()
    append(log, b"two\n")
    assert restarted(reader, log).look() == [b"two"]


FINDS = """
import os, sys
from pathlib import Path
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.notices import Journal

log = Path(sys.argv[1])
listed = []
sys.addaudithook(lambda event, given: event == "os.scandir" and listed.append(given[0]))
backlog = Backlog.new(log, Journal())
assert sum(len(chunk.data) for chunk in backlog.chunks(0.0)) == 70
position = backlog.position()
found = Backlog.of(position, 0.0, Journal())
print(found.offset, found.has_name, listed)
log.rename(log.with_name("a.log.1"))
found = Backlog.of(position, 0.0, Journal())
print(found.offset, found.has_name, listed)
"""


def test_a_file_that_is_where_it_was_is_found_without_a_look_at_its_folder(tmp_path: Path) -> None:
    """For a thousand logs in one folder, a thousand entries would be read a thousand times."""
    log = tmp_path / "a.log"
    log.write_text("a line\n" * 10)
    output = subprocess.check_output([sys.executable, "-c", FINDS, str(log)], text=True)
    assert output.splitlines() == ["70 True []", f"70 False ['{tmp_path}']"]


def descriptors() -> list[str]:
    return os.listdir("/proc/self/fd")


def position_after(log: Path) -> FilePosition:
    """The position once the banner was written and read."""
    append(log, BANNER)
    backlog = Backlog.new(log, Journal())
    list(backlog.chunks(0.0))
    position = backlog.position()
    backlog.rest()
    assert position is not None
    return position


def fails(*_: object) -> Never:
    raise TimeoutError(errno.ETIMEDOUT, "planted")


@pytest.mark.parametrize("call", ["fstat", "pread", "realpath"])
def test_a_file_is_closed_whose_backlog_cannot_be_read(log: Path, call: str) -> None:
    position = position_after(log)
    disk, before = replace(DIRECT, **{call: fails}), descriptors()
    with pytest.raises(TimeoutError, match="planted"):
        Backlog.of(position, 0.0, Journal(), disk)
    with pytest.raises(TimeoutError, match="planted"):
        Backlog.new(log, Journal(), disk)
    assert descriptors() == before


def test_a_renamed_file_whose_server_does_not_answer_is_not_counted_as_gone(log: Path) -> None:
    position = position_after(log)
    log.rename(log.with_name("train.log.1"))
    append(log, b"new\n")

    def answers_for_the_name(path: Path, flags: int) -> int:
        return DIRECT.open(path, flags) if path == log else fails()

    journal, before = Journal(), descriptors()
    with pytest.raises(TimeoutError, match="planted"):
        Backlog.of(position, 0.0, journal, replace(DIRECT, open=answers_for_the_name))
    assert (journal.drain(), descriptors()) == ([], before)


@pytest.mark.parametrize("working", range(8))
def test_a_file_that_fails_while_it_is_resumed_under_another_name_keeps_its_position(
    reading, log, working
):
    """Of its calls of `pread`, `working` succeed and the next one fails."""
    append(log, BANNER + lines(0, 10))
    reader = reading(log)
    reader.look()
    (position,) = reader.follower.positions()
    reader.follower.close()
    other = log.with_name("other.log")
    log.rename(other)
    folder = log.parent / "old"
    left = [working]

    def read(descriptor: int, size: int, offset: int) -> bytes:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.EIO, "planted")
        return DIRECT.pread(descriptor, size, offset)

    again = reading(disk=replace(DIRECT, pread=read))
    moved = replace(position, path=str(folder / "a.log"), place=str(folder / "a.log"))
    again.follower.add(Path(moved.path), resume=[moved])
    again.follower.add(other)
    append(other, lines(10, 12))
    assert [*again.look(), *again.look(after=1), *again.look(after=1)] == expected(10, 12)


@pytest.mark.parametrize("working", range(14))
def test_a_copy_that_cannot_be_read_at_once_is_still_no_new_file(reading, log, working):
    """Of the calls of `pread` after the copy, `working` succeed and the next one fails."""
    append(log, BANNER + lines(0, 10))
    left = [len(BANNER) * 100]

    def read(descriptor: int, size: int, offset: int) -> bytes:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.EIO, "planted")
        return DIRECT.pread(descriptor, size, offset)

    reader = reading(log, disk=replace(DIRECT, pread=read))
    reader.look()
    copy = log.with_name("copy")
    shutil.copy(log, copy)
    append(copy, lines(10, 12))
    copy.replace(log)
    left[0] = working
    assert [*reader.look(), *reader.look(after=1), *reader.look(after=1)] == expected(10, 12)


def test_a_copy_replaces_a_file_whose_handle_is_stale(reading, log):
    """A server that deletes a file makes its handles stale (nfs(5))."""
    append(log, BANNER + lines(0, 10))
    inode = log.stat().st_ino

    def stale(descriptor: int) -> os.stat_result:
        if not os.fstat(descriptor).st_nlink and os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.ESTALE, "planted")
        return DIRECT.fstat(descriptor)

    def read(descriptor: int, size: int, offset: int) -> bytes:
        stale(descriptor)
        return DIRECT.pread(descriptor, size, offset)

    reader = reading(log, disk=replace(DIRECT, fstat=stale, pread=read))
    reader.look()
    copy = log.with_name("copy")
    shutil.copy(log, copy)
    append(copy, lines(10, 12))
    copy.replace(log)
    assert [*reader.look(), *reader.look(after=1)] == expected(10, 12)
    assert reader.notices() == ["copied"]


@pytest.mark.parametrize("name", ["offset", "line", "read", "shown"])
def test_a_position_that_no_file_can_have_is_refused(reading, log, name):
    append(log, lines(0, 10))
    reader = reading(log)
    reader.look()
    (position,) = reader.follower.positions()
    with pytest.raises(ValueError, match=name):
        positions_from_json(positions_to_json([replace(position, **{name: 2**70})]))
    assert positions_from_json(positions_to_json([replace(position, inode=2**64 - 1)]))


@pytest.mark.parametrize("name", ["start", "stop"])
def test_a_checksum_that_no_file_can_have_is_refused(reading, log, name):
    append(log, lines(0, 10))
    reader = reading(log)
    reader.look()
    (position,) = reader.follower.positions()
    damaged = replace(position.checksum, **{name: 2**70})
    with pytest.raises(ValueError, match=name):
        positions_from_json(positions_to_json([replace(position, checksum=damaged)]))


def test_a_link_that_leads_to_itself_cannot_be_read(log):
    log.symlink_to(log)
    with pytest.raises(OSError, match="symbolic links"):
        Backlog.new(log, Journal())
