"""`attach`: the same screen over a real server on a real port."""

import time
from collections.abc import Iterator

import pytest

from ldlm_monitor.base.errors import RemoteError
from ldlm_monitor.base.queries import LogQuery
from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.screen.remote import RemoteSource
from ldlm_monitor.service.serve import Server, Site
from tests.screen.screens import NOW, Screen, Shown, on_screen


@pytest.fixture
def server(shown: Shown) -> Iterator[Server]:
    server = Server(
        "127.0.0.1",
        0,
        Site(
            snapshot=lambda: shown.snapshot,
            ready=lambda: True,
            redact=redact,
            silencing=shown.silences,
            takes_commands=True,
            source=shown.source,
        ),
    )
    server.start()
    yield server
    server.stop()


@pytest.fixture
def remote(server: Server) -> Iterator[RemoteSource]:
    remote = RemoteSource(f"http://127.0.0.1:{server.port}")
    remote.start()
    yield remote
    remote.stop()


def test_the_pictures_are_the_same(shown: Shown, remote: RemoteSource) -> None:
    here, there = shown.snapshot, remote.snapshot()
    left_out = {"points", "curves"}
    assert there.model_dump_json(exclude=left_out) == here.model_dump_json(exclude=left_out)


def test_curves_and_logs_are_the_same(shown: Shown, remote: RemoteSource) -> None:
    (run, *_) = shown.snapshot.runs
    one, other = (each.series(run.name, "loss", 10, 90, 50) for each in (shown.source, remote))
    assert one is not None
    assert other is not None
    assert list(one.lows) == list(other.lows)
    assert one.position(3) == other.position(3)
    assert remote.series(run.name, "nothing", None, None, 10) is None
    query = LogQuery(path=run.files[0], before=20)
    assert remote.log(query) == shown.source.log(query)


def test_a_picture_that_did_not_change_is_the_same_object(
    shown: Shown, remote: RemoteSource
) -> None:
    before = remote.snapshot()
    remote._update()
    assert remote.snapshot() is before
    shown.snapshot = shown.snapshot.model_copy(update={"version": 10**6})
    remote._update()
    assert remote.snapshot().version == 10**6


def test_an_attached_screen_shows_jumps_and_commands(shown: Shown, remote: RemoteSource) -> None:
    async def steps(screen: Screen) -> None:
        await screen.until("3 runs", "nothing to do (probable)", "127.0.0.1")
        await screen.press("3", "a")
        await screen.until("acknowledged by")
        await screen.press("s")
        await screen.until("for how long?")
        await screen.press("enter")
        await screen.press("enter")
        await screen.until("Traceback (most recent call last)")

    on_screen(remote, steps, size=(140, 36), clock=time.time)  # the daemon's
    kept = shown.silences.listing(NOW)
    assert [len(kept["acks"]), len(kept["silences"])] == [1, 1]


def test_a_daemon_that_is_gone_is_said_and_the_last_picture_stays(
    server: Server, remote: RemoteSource
) -> None:
    before = remote.snapshot()
    server.stop()
    with pytest.raises(RemoteError, match="does not answer"):
        remote._update()
    assert remote.snapshot() is before
