"""The pump on local files and on those of a server that falls silent."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.history.merge import place
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.file_identity import FilePosition
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.state.state_store import StateStore
from tests.service.daemon.failing_lines import NAN
from tests.service.daemon.watching import NOW, Watching, append, bars

HERE, THERE = "here", "there"


class Watched(Watching):
    """A pump on `here.log` and whatever the server has; only the time is an argument."""

    def __init__(self, server, folder: Path) -> None:
        self.server = server
        self.here, self.there = folder / "here.log", server.folder / "there.log"
        self.folder = folder
        self.now = NOW
        self.open()

    def open(self) -> None:
        files = (str(self.here), str(self.server.folder / "*.log"))
        self.start(
            Settings(files=files),
            self.folder,
            disk=self.server.disk,
            mounts=lambda: self.server.table,
        )

    def write(self, path: Path, text: str) -> None:
        append(path, text, self.now)

    def look(self, until: Callable[[], bool] = lambda: True) -> None:
        """Turn once a second, at least once, until so."""
        while True:
            self.now += 1.0
            self.pump.turn(None, self.now)
            if until():
                return

    def step(self, run: str) -> int | None:
        return next(
            (each.step for each in self.pump.monitor.snapshot().runs if each.name == run), None
        )


@pytest.fixture
def watched(server, tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(server, tmp_path)
    yield watched
    watched.close()


@pytest.fixture
def played_until(watched, monkeypatch) -> Callable[[Callable[[], None]], list[tuple[float, bytes]]]:
    """What is judged of the server's file from now on, with its times; `end` at the first of it."""

    def watch(end: Callable[[], None]) -> list[tuple[float, bytes]]:
        played: list[tuple[float, bytes]] = []
        feed = Monitor.feed

        def note(monitor: Monitor, chunk: Chunk, now: float, **how: bool) -> list[Transition]:
            if chunk.path == str(watched.there) and monitor is watched.pump.monitor:
                if not played:
                    end()
                played.append((now, chunk.data))
            return feed(monitor, chunk, now, **how)

        monkeypatch.setattr(Monitor, "feed", note)
        return played

    return watch


@pytest.mark.parametrize("call", ["stat", "open", "pread"])
def test_files_of_a_server_that_is_silent_at_the_start_join_when_it_answers(watched, server, call):
    watched.write(watched.here, bars(0, 40))
    watched.write(watched.there, bars(0, 40) + NAN + bars(40, 50))
    server.silent = {call}
    watched.look()
    assert (watched.step(HERE), watched.step(THERE)) == (39, None)
    watched.write(watched.here, bars(40, 60))
    watched.look()
    assert watched.step(HERE) == 59
    server.revive()
    watched.look(until=lambda: watched.step(THERE) == 49)
    assert any("NonFiniteLoss" in key for key in watched.outbox.firing_keys())
    watched.write(watched.there, bars(50, 70))
    watched.look(until=lambda: watched.step(THERE) == 69)


def test_a_server_that_falls_silent_amid_a_first_reading_has_the_rest_read_once_and_as_history(
    watched, server, played_until
):
    watched.write(watched.here, bars(0, 40))
    watched.write(watched.there, bars(0, 4000) + NAN + bars(4000, 8000))
    history = place([watched.there], RunNames())
    undisturbed = [(when, chunk.data) for when, chunk, _ in history.play() if not chunk.final]
    played = played_until(lambda: server.silent.add("pread"))
    watched.look()
    os.read(server.entered, 1)
    assert 0 < len(played) < len(undisturbed)
    assert watched.step(HERE) == 39
    server.revive()
    watched.look(until=lambda: watched.step(THERE) == 7999)
    assert played == undisturbed
    watched.write(watched.there, bars(8000, 8001))
    watched.look(until=lambda: watched.step(THERE) == 8000)


def test_a_file_that_cannot_be_read_amid_a_first_reading_is_read_on_where_that_ended(
    watched, server, played_until
):
    watched.write(watched.here, bars(0, 40))
    watched.write(watched.there, bars(0, 8000))
    played = played_until(lambda: setattr(server, "broken", True))
    watched.look()
    assert len(played) > 0
    assert watched.step(HERE) == 39
    server.broken = False
    watched.look(until=lambda: watched.step(THERE) == 7999)
    assert b"".join(data for _, data in played) == watched.there.read_bytes()


def test_how_far_a_silent_servers_files_were_judged_is_kept_over_a_restart(watched, server):
    watched.write(watched.here, bars(0, 40))
    watched.write(watched.there, bars(0, 40))
    watched.look(until=lambda: watched.step(THERE) == 39)
    watched.close()
    (before,) = [each for each in positions(watched) if each.path == str(watched.there)]
    server.silent = {"stat"}
    watched.open()
    watched.look()
    watched.close()
    assert before in positions(watched)
    server.revive()
    watched.open()


def positions(watched: Watched) -> list[FilePosition]:
    ledger = StateStore(watched.folder / "ledger.sqlite")
    state = ledger.load()
    ledger.close()
    assert state is not None
    return state.positions


def test_of_a_chunk_what_stands_behind_a_place_is_left():
    chunk = Chunk("a.log", (1, 2, 0), 100, 7, b"one\ntwo\nthree\n")
    assert chunk.after(0) is chunk.after(100) is chunk
    assert chunk.after(108) == Chunk("a.log", (1, 2, 0), 108, 9, b"three\n")
    assert chunk.after(114) is None
