"""Compiled definitions are kept between starts, where nobody else can have written them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import hyperscan
import pytest

from ldlm_monitor.logs.parse import definitions, triggers
from ldlm_monitor.logs.parse.cache import (
    DOCUMENTS,
    MAX_FILES,
    Cache,
    cache_of,
    packaged_definitions,
)
from ldlm_monitor.logs.parse.triggers import Rules, Scanner

LINES = b"CUDA out of memory\n{'loss': 3.5}\n 10%|# | 1/10\nmine says MINE\n"
FORMAT = """\
format: mine
lines:
  - name: line
    trigger: 'mine says {word}'
    pattern: 'mine says (?P<loss>\\d+)'
    values: {{loss: loss}}
    needs: [[loss]]
    examples: [{{line: mine says 3, values: {{loss: 3.0}}}}]
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def start() -> Callable[..., Rules]:
    """The rules as a new process gets them."""

    def run(*files: Path) -> Rules:
        triggers._compiled.cache_clear()
        return triggers.compiled(files)

    return run


def kept(home: Path) -> list[Path]:
    return sorted((home / "ldlm-monitor").iterdir())


def hits(rules: Rules, data: bytes = LINES) -> list[tuple[int, int]]:
    return Scanner(rules.databases).scan(data)


def test_a_second_start_gives_the_same_rules(home: Path, start: Callable[..., Rules]) -> None:
    cold = start()
    (file,) = kept(home)
    written = file.stat()
    warm = start()
    data = LINES + b"".join(path.read_bytes() for path in definitions.packaged_files())
    assert hits(warm, data) == hits(cold, data) != []
    assert [mark for mark, _ in warm.databases] == [mark for mark, _ in cold.databases]
    specs = [repr(getattr(rule, "spec", rule)) for rules in cold.named for rule in rules]
    assert len(specs) == sum(map(len, warm.named))
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


def test_kept_documents_are_the_files(home: Path) -> None:
    entries: dict[str, bytes] = {}
    cold, warm = packaged_definitions(entries), packaged_definitions(entries)
    assert set(entries) == {DOCUMENTS}
    read = [(path, definitions.load(path)) for path in definitions.packaged_files()]
    assert repr(cold) == repr(warm) == repr(read)  # NaN in examples differs from itself


def replace_databases(by: bytes) -> None:
    """Put other bytes for each database into the file that the next start reads."""
    cache = cache_of(())
    for key in cache.entries:
        if key != DOCUMENTS:
            cache.entries[key] = by
    cache.save()


def finds_mine_alone() -> bytes:
    """A database that the definitions do not give."""
    other = hyperscan.Database()
    other.compile(expressions=[b"MINE"], ids=[0], elements=1, flags=[0])
    data: bytes = hyperscan.dumpb(other)
    return data


def test_the_second_start_scans_with_what_was_kept(home: Path, start: Callable[..., Rules]) -> None:
    start()
    replace_databases(finds_mine_alone())
    assert set(hits(start())) == {(LINES.index(b"MINE") + 4, 0)}


def test_the_folder_and_the_file_are_closed(home: Path, start: Callable[..., Rules]) -> None:
    mask = os.umask(0)
    try:
        start()
    finally:
        os.umask(mask)
    (file,) = kept(home)
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_file_is_replaced(home: Path, start: Callable[..., Rules], damage: str) -> None:
    good = hits(start())
    (file,) = kept(home)
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    file.write_bytes({"cut": whole[:-9], "flipped": flipped, "empty": b"", "other": LINES}[damage])
    assert hits(start()) == good
    assert kept(home) == [file]
    assert hits(start()) == good
    assert cache_of(()).entries


def test_a_database_that_hyperscan_refuses_is_compiled(
    home: Path, start: Callable[..., Rules]
) -> None:
    good = hits(start())
    replace_databases(b"of another processor")
    assert hits(start()) == good
    assert b"of another processor" not in cache_of(()).entries.values()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_write_to_is_not_used(
    home: Path, start: Callable[..., Rules], mode: int
) -> None:
    good = hits(start())
    replace_databases(finds_mine_alone())
    (file,) = kept(home)
    file.parent.chmod(mode)
    assert hits(start()) == good
    file.unlink()
    assert hits(start()) == good
    assert kept(home) == []


def test_a_link_is_not_used(home: Path, start: Callable[..., Rules], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    home.mkdir()
    (home / "ldlm-monitor").symlink_to(tmp_path / "elsewhere")
    assert hits(start())
    assert kept(home) == []


@as_root
def test_another_users_folder_is_not_used(home: Path, start: Callable[..., Rules]) -> None:
    good = hits(start())
    replace_databases(finds_mine_alone())
    (file,) = kept(home)
    os.chown(file.parent, 12345, 12345)
    assert hits(start()) == good
    file.unlink()
    assert hits(start()) == good
    assert kept(home) == []


@as_root
def test_nothing_is_made_in_another_users_home(
    home: Path, start: Callable[..., Rules], tmp_path: Path
) -> None:
    os.chown(tmp_path, 12345, 12345)
    assert hits(start())
    assert not home.exists()


@pytest.mark.parametrize("value", ["/proc/nowhere/cache", "/dev/null", "relative"])
def test_without_a_writable_home_it_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: Callable[..., Rules], value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert hits(start())
    assert not list(tmp_path.iterdir())


def test_the_default_is_in_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: Callable[..., Rules]
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    start()
    assert len(kept(tmp_path / ".cache")) == 1


def test_changed_definitions_are_compiled(
    home: Path, start: Callable[..., Rules], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text(FORMAT.format(word="MINE"))
    end = LINES.index(b"MINE") + len(b"MINE")
    assert end in dict(hits(start(mine)))
    mine.write_text(FORMAT.format(word="THIS"))
    assert end not in dict(hits(start(mine)))
    assert end not in dict(hits(start()))
    assert len(kept(home)) == 3


def test_the_oldest_of_many_sets_is_deleted(home: Path) -> None:
    for number in range(MAX_FILES + 3):
        cache = Cache([b"%d" % number])
        cache.entries["a"] = b"%d" % number
        cache.save()
        if number < 3:
            os.utime(max(kept(home), key=lambda file: file.stat().st_mtime_ns), (number, number))
    assert len(kept(home)) == MAX_FILES
    found = [Cache([b"%d" % number]).entries for number in range(MAX_FILES + 3)]
    assert found == [{}] * 3 + [{"a": b"%d" % number} for number in range(3, MAX_FILES + 3)]
