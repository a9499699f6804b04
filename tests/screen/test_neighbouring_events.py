"""Which event of a file is the next one, or the one before."""

from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.screen.timeline import neighbour


def event(path: str, offset: int) -> Event:
    return Event(
        run="r", node=None, rank=None, time=0.0, kind="nan", severity="error", message=str(offset),
        position=Position(path, 1, offset),
    )  # fmt: skip


EVENTS = [event("a.log", 30), event("b.log", 15), event("a.log", 1), event("a.log", 10)]


def at(path: str, offset: int, *, forward: bool) -> str | None:
    found = neighbour(EVENTS, path, offset, forward=forward)
    return found and f"{found.position.path} {found.message}"


def test_the_next_event_of_a_file_is_the_nearest_after_a_byte() -> None:
    assert at("a.log", 1, forward=True) == "a.log 10"
    assert at("a.log", 12, forward=True) == "a.log 30"
    assert at("a.log", 30, forward=True) is None


def test_the_one_before_is_the_nearest_before_it() -> None:
    assert at("a.log", 30, forward=False) == "a.log 10"
    assert at("a.log", 1, forward=False) is None


def test_events_of_another_file_are_none() -> None:
    assert at("b.log", 0, forward=True) == "b.log 15"
    assert at("b.log", 15, forward=True) is None
    assert at("c.log", 0, forward=True) is None
