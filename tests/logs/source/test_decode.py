"""Compressed logs and UTF-16 are read as what they hold, by whatever reads files."""

import bz2
import errno
import gzip
import io
import lzma
import os
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.source import decoded_files, decoders
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.file_identity import KnownContents
from ldlm_monitor.logs.source.file_system import DIRECT
from ldlm_monitor.logs.source.input_patterns import resolve
from ldlm_monitor.logs.source.log_parts import LogReader
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.logs.source.split import Splitter, split

NUMBERS = random.Random(0)
TEXT = b"".join(b"step %d loss %.4f\n" % (n, NUMBERS.random()) for n in range(60_000))
"""Over a MiB: more than is read, decoded or kept at once."""
SOME = b"".join(TEXT.splitlines(keepends=True)[:200])


def zstd(data: bytes) -> bytes:
    module = pytest.importorskip("backports.zstd")
    packed: bytes = module.compress(data)
    return packed


def xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


def utf16(data: bytes) -> bytes:
    return b"\xff\xfe" + data.decode().encode("utf-16-le")


def big_endian(data: bytes) -> bytes:
    return b"\xfe\xff" + data.decode().encode("utf-16-be")


def members(data: bytes) -> bytes:
    """As pigz --independent and repeated `gzip >>` write it."""
    middle = len(data) // 2
    return gzip.compress(data[:middle]) + gzip.compress(data[middle:])


COMPRESSED = [gzip.compress, members, xz, bz2.compress, zstd]
FORMS = [*COMPRESSED, utf16, big_endian]
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
Form = Callable[[bytes], bytes]


def backlog(path: Path) -> tuple[list[Chunk], Backlog]:
    found = Backlog.new(path, Journal())
    chunks = list(found.all(0.0))
    found.tail.close()
    return chunks, found


@every_form
def test_it_is_read_as_what_it_holds(log: Path, form: Form) -> None:
    log.write_bytes(form(TEXT))
    chunks, found = backlog(log)
    assert b"".join(chunk.data for chunk in chunks) == TEXT
    assert (found.size, found.trouble) == (len(TEXT), "")


@every_form
def test_positions_count_decoded_bytes_and_lines(log: Path, form: Form) -> None:
    log.write_bytes(form(TEXT))
    chunks, _ = backlog(log)
    assert len(chunks) > 3
    for chunk in chunks:
        assert TEXT.startswith(chunk.data, chunk.offset)
        assert chunk.line == 1 + TEXT.count(b"\n", 0, chunk.offset)


def test_a_new_file_with_the_number_the_length_and_the_time_of_a_deleted_one(log: Path) -> None:
    """Its size is its own: it was known by these three, and its last bytes were not read."""
    for held in (b"step 1\n" + b"x" * 220, b"step 1\n" + b"x" * 230):
        log.write_bytes(gzip.compress(held, mtime=0))
        os.utime(log, (1_769_681_700,) * 2)
        chunks, _ = backlog(log)
        assert b"".join(chunk.data for chunk in chunks) == held


@every_form
def test_any_part_can_be_read(log: Path, form: Form) -> None:
    log.write_bytes(form(TEXT))
    descriptor = DIRECT.open(log, os.O_RDONLY)
    random_places = random.Random(1)
    for _ in range(10):
        start, size = random_places.randrange(len(TEXT)), random_places.randrange(300_000)
        assert DIRECT.pread(descriptor, size, start) == TEXT[start : start + size]
    DIRECT.close(descriptor)


@every_form
def test_a_pipe_is_decoded(form: Form) -> None:
    chunks = split(io.BytesIO(form(TEXT)), Splitter("-", (0, 0, 0)))
    assert b"".join(chunk.data for chunk in chunks) == TEXT


@every_form
def test_a_screen_shows_what_it_holds(log: Path, form: Form) -> None:
    log.write_bytes(form(TEXT))
    reader = LogReader(str(log))
    assert reader.size == len(TEXT)
    last = next(reader.before(reader.size))
    assert last.text + b"\n" == TEXT.splitlines(keepends=True)[-1]
    reader.close()


@every_form
def test_a_followed_file_grows_by_any_bytes(log: Path, reading, form: Form) -> None:
    """Half code units and cut streams wait for the rest."""
    whole = SOME.decode().replace("step", "st\U0001f525p").encode()
    packed, cuts = form(whole), random.Random(2)
    reader, at, found = reading(log), 0, []
    while at < len(packed):
        size = cuts.randrange(1, 40)
        with log.open("ab") as file:
            file.write(packed[at : at + size])
        at += size
        found += reader.look()
    assert found == whole.splitlines()
    assert reader.notices() == []


def test_what_utf_16_has_no_character_for_is_replaced(log: Path, reading) -> None:
    log.write_bytes(b"\xff\xfe" + "a\n".encode("utf-16-le") + b"\x00\xd8" + b"b\0\n\0")
    assert reading(log).look() == [b"a", "�b".encode()]


def test_a_followed_utf_16_log_is_emptied_and_written_again(log: Path, reading) -> None:
    reader = reading(log)
    log.write_bytes(utf16(SOME))
    assert reader.look() == SOME.splitlines()
    with log.open("r+b") as file:
        file.truncate(0)
        file.write(utf16(b"another run\r\nof fewer lines\r\n"))
    assert reader.look() == [b"another run", b"of fewer lines"]
    assert reader.notices()[0] in ("truncated", "rewritten")


def test_a_log_that_is_plain_text_after_utf_16_is_read(log: Path, reading) -> None:
    reader = reading(log)
    log.write_bytes(utf16(SOME))
    reader.look()
    log.write_bytes(TEXT[len(SOME) : 2 * len(SOME)])
    assert reader.look()[:3] == TEXT[len(SOME) :].splitlines()[:3]


@pytest.mark.parametrize("form", COMPRESSED, ids=lambda form: form.__name__)
def test_what_a_cut_file_holds_counts_and_its_end_is_missed(log: Path, form: Form) -> None:
    packed = form(TEXT)
    log.write_bytes(packed[: len(packed) * 3 // 4])
    chunks, found = backlog(log)
    held = b"".join(chunk.data for chunk in chunks)
    assert TEXT.startswith(held)
    assert len(held) > len(TEXT) // 8  # bzip2 and xz decode in blocks
    assert found.trouble.startswith("its end is missing")
    assert str(log.stat().st_size) in found.trouble


@pytest.mark.parametrize("form", COMPRESSED, ids=lambda form: form.__name__)
def test_what_stands_before_damage_counts(log: Path, form: Form) -> None:
    packed = bytearray(form(TEXT))
    place = len(packed) * 3 // 4
    packed[place : place + 200] = bytes(range(200))
    log.write_bytes(packed)
    chunks, found = backlog(log)
    held = b"".join(chunk.data for chunk in chunks)
    assert held.startswith(TEXT[: len(TEXT) // 8])
    assert found.trouble.startswith("damaged")


def test_what_follows_a_stream_is_named(log: Path) -> None:
    log.write_bytes(gzip.compress(b"a\n") + b"plain text that somebody appended" * 9)
    chunks, found = backlog(log)
    assert [chunk.data for chunk in chunks if chunk.data] == [b"a\n"]
    assert found.trouble.startswith("what follows the gzip")


def test_nuls_behind_a_stream_are_padding(log: Path) -> None:
    log.write_bytes(gzip.compress(b"a\n") + bytes(10_000) + gzip.compress(b"b\n") + bytes(512))
    chunks, found = backlog(log)
    assert (b"".join(chunk.data for chunk in chunks), found.trouble) == (b"a\nb\n", "")


@pytest.mark.parametrize("text", [b"", b"BZh9 is no bzip2\n", b"(gz)\n", b"{}\n", b"Px*M"])
def test_a_name_alone_makes_no_form(tmp_path: Path, text: bytes) -> None:
    log = tmp_path / "train.log.gz"
    log.write_bytes(text)
    chunks, _ = backlog(log)
    assert b"".join(chunk.data for chunk in chunks) == text


def test_containers_lines_and_utf_16_in_a_compressed_file(log: Path, reading) -> None:
    log.write_bytes(xz(utf16(SOME)))
    assert reading(log).look() == SOME.splitlines()


@pytest.mark.parametrize("unit", [b"\0", b"a", b"a\n"])
def test_a_bomb_is_read_in_bounded_memory(log: Path, unit: bytes) -> None:
    """What is held is counted by the sizes of what a read returns, and of the window."""
    packer = zlib.compressobj(wbits=31)
    piece = unit * (1024 * 1024 // len(unit))
    log.write_bytes(b"".join(packer.compress(piece) for _ in range(16)) + packer.flush())
    found = Backlog.new(log, Journal())
    assert found.size == 16 * 1024 * 1024
    held = max((len(chunk.data) for chunk in found.chunks(0.0)), default=0)
    file = decoded_files._files[found.tail.open_descriptor()]
    assert held <= 256 * 1024
    assert len(file._window) <= 512 * 1024
    found.tail.close()


def test_no_more_is_decoded_than_a_log_can_hold(log: Path, monkeypatch) -> None:
    monkeypatch.setattr(decoded_files, "DECODED_BYTES", 100_000)
    log.write_bytes(gzip.compress(TEXT))
    chunks, found = backlog(log)
    assert 0 < sum(len(chunk.data) for chunk in chunks) <= 100_000
    assert found.trouble.startswith("only the first 97.7 KiB")


def test_a_missing_package_is_named(log: Path, monkeypatch) -> None:
    def missing(name: str) -> SimpleNamespace:
        raise ImportError(name)

    monkeypatch.setattr(decoders, "import_module", missing)
    log.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(60))
    with pytest.raises(OSError, match=r"needs the package backports\.zstd"):
        Backlog.new(log, Journal())


class TestRotation:
    """What logrotate, loguru and people compress was read already."""

    @pytest.mark.parametrize("name", ["train.log.1.gz", "train.log.gz", "train.log-20260101.gz"])
    def test_it_is_known_while_its_original_is_remembered(self, log, reading, name: str) -> None:
        log = log.with_name("train.log")
        reader = reading(log)
        log.write_bytes(TEXT[:5000])
        reader.look()
        log.rename(log.with_suffix(".old"))
        packed = log.with_name(name)
        packed.write_bytes(gzip.compress(log.with_suffix(".old").read_bytes()))
        log.with_suffix(".old").unlink()
        log.write_bytes(TEXT[5000:9000])
        reader.look()
        known = KnownContents(reader.follower.contents(), DIRECT).find(packed)
        assert (known.name, known.offset) == (str(log), 5000)
        for _ in range(3):
            reader.look(after=61)
        known = KnownContents(reader.follower.contents(), DIRECT).find(packed)
        assert (known.name, known.offset, known.is_doubtful) == (str(log), 5000, False)

    def test_another_content_is_new(self, log, reading) -> None:
        reader = reading(log)
        log.write_bytes(TEXT[:5000])
        reader.look()
        packed = log.with_name(log.name + ".1.gz")
        packed.write_bytes(gzip.compress(TEXT[100:5000]))
        assert KnownContents(reader.follower.contents(), DIRECT).find(packed).name == ""

    def test_beside_its_original_it_is_left_out(self, tmp_path: Path) -> None:
        for name in ("a.log", "a.log.gz", "b.log.xz", "c.txt.zst", "d.bin.gz"):
            (tmp_path / name).write_bytes(b"x")
        patterns = resolve([str(tmp_path)], base=Path())
        assert [path.name for path in patterns.files()] == ["a.log", "b.log.xz", "c.txt.zst"]
        assert [path.name for path in patterns.copies()] == ["a.log.gz"]
        named = resolve([str(tmp_path / "*.gz")], base=Path())
        assert [path.name for path in named.files()] == ["a.log.gz", "d.bin.gz"]


def test_a_member_of_which_little_is_written_is_waited_for(log: Path) -> None:
    packed = gzip.compress(SOME)
    log.write_bytes(packed)
    descriptor = DIRECT.open(log, os.O_RDONLY)
    for written in (packed[:2], packed[2:]):
        with log.open("ab") as file:
            file.write(written)
        found = DIRECT.pread(descriptor, 10 * len(SOME), 0)
    DIRECT.close(descriptor)
    assert found == SOME * 2


def test_opening_a_file_decodes_none_of_it(log: Path) -> None:
    """A growing file is opened again and again where descriptors are scarce."""
    log.write_bytes(gzip.compress(TEXT))
    looked = replace(DIRECT, fstat=lambda descriptor: pytest.fail("decoded for its size"))
    descriptor, key = looked.open_regular(log)
    looked.close(descriptor)
    assert key[1] == log.stat().st_ino


def test_a_file_that_cannot_be_inspected_is_closed(log: Path) -> None:
    def fails(descriptor: int) -> os.stat_result:
        raise OSError(errno.EIO, "planted")

    log.write_bytes(SOME)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="planted"):
        replace(DIRECT, status=fails).open_regular(log)
    assert os.listdir("/proc/self/fd") == before


def test_damage_in_a_pipe_is_named_and_what_came_before_counts(caplog) -> None:
    packed = bytearray(gzip.compress(TEXT))
    middle = len(packed) // 2
    packed[middle : middle + 50] = b"\xff" * 50
    chunks = list(split(io.BytesIO(bytes(packed)), Splitter("/dev/fd/63", (0, 0, 0))))
    assert len(b"".join(chunk.data for chunk in chunks)) > len(TEXT) // 4
    assert "/dev/fd/63: damaged gzip" in caplog.text
