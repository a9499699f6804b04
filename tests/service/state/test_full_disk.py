"""A disk that is full, and then is not: what was kept meanwhile is in the file again."""

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ldlm_monitor.service.state import database
from ldlm_monitor.service.state.database import Database
from ldlm_monitor.service.state.state_dir import StateDir

SCHEMA = "CREATE TABLE IF NOT EXISTS news (text TEXT NOT NULL)"
PATIENCE = 60.0


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


class News:
    def __init__(self, path: Path) -> None:
        self.database = Database(path, f"{SCHEMA};")

    def add(self, text: str) -> None:
        self.database.run(lambda db: db.execute("INSERT INTO news VALUES (?)", (text,)))

    def all(self) -> list[str]:
        return [text for (text,) in self.database.rows("SELECT text FROM news")]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], News]]:
    """Opens the file, and closes what the test left open."""
    made: list[News] = []

    def begin() -> News:
        for each in made:
            each.database.close()
        made.append(News(tmp_path / "home/state/news.sqlite"))
        return made[-1]

    yield begin
    made[-1].database.close()


def until_said(caplog: pytest.LogCaptureFixture, text: str) -> None:
    end = time.monotonic() + PATIENCE
    while text not in caplog.text:
        assert time.monotonic() < end, caplog.text
        threading.Event().wait(0.01)


@pytest.fixture
def tries_often(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(database, "RETRY_SECONDS", 0.02)


@pytest.mark.usefixtures("tries_often")
def test_what_is_kept_while_the_disk_is_full_is_in_the_file_once_there_is_room(
    opened: Callable[[], News], caplog: pytest.LogCaptureFixture
) -> None:
    news = opened()
    news.add("before")
    with full_disk():
        news.add("meanwhile")
        news.add("and then")
        assert news.all() == ["before", "meanwhile", "and then"]
        assert "are kept in memory only; free space on the disk, which is then" in caplog.text
    until_said(caplog, "can be used again, and holds what was kept in memory")
    news.add("after")
    assert opened().all() == ["before", "meanwhile", "and then", "after"]
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1


@pytest.mark.usefixtures("tries_often")
def test_a_start_on_a_full_disk_begins_in_memory(
    opened: Callable[[], News], caplog: pytest.LogCaptureFixture
) -> None:
    with full_disk():
        news = opened()
        news.add("meanwhile")
    until_said(caplog, "can be used again")
    assert opened().all() == ["meanwhile"]


def test_an_end_does_not_wait_for_room(
    opened: Callable[[], News], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "RETRY_SECONDS", 3600.0)
    news = opened()
    with full_disk():
        news.add("meanwhile")
        news.database.close()
    assert opened().all() == []


def test_a_nearly_full_disk_is_not_filled(
    opened: Callable[[], News], monkeypatch: pytest.MonkeyPatch
) -> None:
    news = opened()
    with full_disk():
        news.add("meanwhile")
    with monkeypatch.context() as nearly_full:
        nearly_full.setattr(database, "SPARE_BYTES", 1 << 60)
        with pytest.raises(OSError, match="too little room"):
            news.database._copy_back()
    news.database._copy_back()
    assert opened().all() == ["meanwhile"]


def test_where_no_folder_can_be_made_nothing_survives_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    state = StateDir(tmp_path / "file/state")
    assert state.notice is not None
    assert "nothing will survive a restart" in state.notice
    assert "--state-dir" in state.notice
    (state.path / "outbox.sqlite").touch()
    state.announce("http://127.0.0.1:9090")
    state.close()
    assert not state.path.exists()
