"""The dead man's switch gets requests from a monitor that works, and from no other."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from email.message import Message as Headers

import pytest

from ldlm_monitor.service.notify import courier
from ldlm_monitor.service.notify.courier import AGAIN_SECONDS, Sender
from ldlm_monitor.service.notify.dead_mans_switch import HeartbeatSender
from ldlm_monitor.service.notify.http_client import HttpAnswer
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.states import STILL_SECONDS, Pulse


class Pump:
    turns = 0


@pytest.fixture
def pump() -> Pump:
    return Pump()


@pytest.fixture
def pulse(pump: Pump) -> Pulse:
    return Pulse(lambda: pump.turns)


@pytest.fixture
def begin(outbox: Outbox, pulse: Pulse) -> Iterator[Callable[..., HeartbeatSender]]:
    started: list[HeartbeatSender] = []

    def start(url: str, interval: float = 0.05) -> HeartbeatSender:
        heartbeat = HeartbeatSender(url, interval, pulse, outbox)
        heartbeat.start()
        started.append(heartbeat)
        return heartbeat

    yield start
    for heartbeat in started:
        assert heartbeat.stop(10)


def test_a_pulse_beats_from_the_first_turn_until_a_minute_after_the_last(pump, pulse) -> None:
    assert not pulse.beats(0)
    pump.turns = 1
    assert pulse.beats(100)
    assert pulse.beats(100 + STILL_SECONDS)
    assert not pulse.beats(101 + STILL_SECONDS)
    pump.turns = 2
    assert pulse.beats(102 + STILL_SECONDS)


def test_it_asks_again_and_again_once_the_pump_turns(slack, pump, outbox, begin) -> None:
    begin(slack.url)
    assert slack.received == [], "no turn has ended yet"
    pump.turns = 1
    slack.wait_for(3)
    assert set(slack.methods) == {"GET"}
    assert outbox.counts()["heartbeat", "sent"] >= 2


def test_a_stuck_pump_is_silent_although_the_process_lives(
    slack, pump, outbox, monkeypatch
) -> None:
    pump.turns = 1
    pulse = Pulse(lambda: pump.turns)
    assert pulse.beats(time.monotonic() - STILL_SECONDS - 1)
    heartbeat = HeartbeatSender(slack.url, 0.05, pulse, outbox)
    heartbeat.start()
    threading.Event().wait(0.3)
    assert heartbeat.is_alive()
    assert slack.methods == []
    pump.turns = 2
    slack.wait_for(1)
    assert heartbeat.stop(10)


@pytest.mark.parametrize("answer", [(500, {}, b""), (404, {}, b""), (302, {"Location": "/"}, b"")])
def test_what_is_not_taken_is_counted_said_once_and_tried_again_soon(
    slack, outbox, caplog, answer
) -> None:
    slack.answers = [answer, answer]
    heartbeat = HeartbeatSender(slack.url, 3600, Pulse(lambda: 1), outbox)
    caplog.set_level(logging.DEBUG)
    assert [heartbeat.turn() for _ in range(3)] == [AGAIN_SECONDS, AGAIN_SECONDS, 3600]
    assert slack.methods == ["GET"] * 3, "no redirect is followed"
    outcome = "failed" if answer[0] == 404 else "retried"
    assert outbox.counts()["heartbeat", outcome] == 2
    assert caplog.text.count(f"answered {answer[0]}") == 1
    assert "s3cr3tpath" not in caplog.text


def test_nobody_listening_is_said_without_the_url(pump, pulse, outbox, caplog) -> None:
    pump.turns = 1
    heartbeat = HeartbeatSender("http://127.0.0.1:1/s3cr3tpath", 60, pulse, outbox)
    assert heartbeat.turn() == AGAIN_SECONDS
    assert "could not be reached" in caplog.text
    assert "s3cr3tpath" not in caplog.text + repr(heartbeat)


def test_a_date_that_no_clock_has_is_no_wish() -> None:
    headers = Headers()
    headers["Retry-After"] = "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"
    assert HttpAnswer(503, "", headers).retry_after is None


def test_a_turn_that_raises_does_not_end_the_thread(outbox, monkeypatch) -> None:
    """Otherwise one odd answer would end the heartbeat, and each alert at an Alertmanager."""
    monkeypatch.setattr(courier, "AGAIN_SECONDS", 0.01)
    turns, second = [0], threading.Event()

    class Odd(Sender):
        def turn(self) -> float:
            turns[0] += 1
            if turns[0] > 1:
                second.set()
            raise ZeroDivisionError("planted")

    odd = Odd("heartbeat", outbox)
    odd.start()
    assert second.wait(5.0)
    assert odd.stop(5.0)
