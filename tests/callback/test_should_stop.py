"""A loop that asks whether to stop: where the file says, and by nothing that is not for it."""

import json
import os
from pathlib import Path

import pytest

from ldlm_callback.stop_request import MAX_BYTES, NAME, SCHEMA, StopRequest, read_request

LAUNCH = "train_20260129_101500"


def request(folder: Path, **changes) -> Path:
    said = {"schema": SCHEMA, "launch": LAUNCH, "step": 57, "reason": "NonFiniteLoss", "time": 1.0}
    path = folder / NAME
    path.write_text(json.dumps({**said, **changes}))
    return path


@pytest.fixture
def launched(monkeypatch) -> None:
    monkeypatch.setenv("LDLM_RUN", LAUNCH)


def test_a_request_has_the_step_and_the_reason(tmp_path) -> None:
    assert read_request(tmp_path, LAUNCH) is None
    request(tmp_path)
    assert read_request(tmp_path, LAUNCH) == StopRequest(57, "NonFiniteLoss")


@pytest.mark.parametrize(
    "changes",
    [
        {"launch": "train_20260128_000000"},
        {"schema": "ldlm.stop/2"},
        {"step": "57"},
        {"step": True},
        {"more": "x" * MAX_BYTES},
    ],
)
def test_a_request_of_another_launch_or_form_is_none(tmp_path, changes) -> None:
    request(tmp_path, **changes)
    assert read_request(tmp_path, LAUNCH) is None


@pytest.mark.parametrize("text", ["", "[", "[1]", "null", "[" * 4000, '{"step": 57}', "\x00\xff"])
def test_what_is_no_request_is_none(tmp_path, text) -> None:
    (tmp_path / NAME).write_text(text)
    assert read_request(tmp_path, LAUNCH) is None


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_is_no_regular_file_is_not_read_and_waits_for_nobody(tmp_path, what) -> None:
    if what == "link":
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / NAME).symlink_to(request(tmp_path / "elsewhere"))
    elif what == "pipe":
        os.mkfifo(tmp_path / NAME)
    else:
        (tmp_path / NAME).mkdir()
    before = len(os.listdir("/proc/self/fd"))
    assert read_request(tmp_path, LAUNCH) is None
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's file takes root")
def test_the_file_of_another_user_is_not_read(tmp_path) -> None:
    os.chown(request(tmp_path), 65533, -1)
    assert read_request(tmp_path, LAUNCH) is None


@pytest.mark.usefixtures("launched")
def test_the_loop_stops_at_the_step_of_the_request_and_says_so_once(
    tmp_path, health, reported, until
) -> None:
    callback = health()
    assert not callback.should_stop(1)
    request(tmp_path)
    until(lambda: callback._session.steps.stopping.request is not None)
    callback.on_step(56, loss=1.0)
    assert not callback.should_stop(56)
    callback.on_step(57, loss=1.0)
    assert [callback.should_stop(57), callback.should_stop(), callback.should_stop(58)] == [
        True
    ] * 3
    callback.close()
    assert not callback.should_stop(59)
    (event,) = reported("event")
    assert (event["kind"], event["step"]) == ("run_action", 57)
    assert event["message"] == "stops at step 57 as ldlm-monitor run asked: NonFiniteLoss"


@pytest.mark.usefixtures("launched")
def test_a_request_that_is_read_too_late_ends_the_next_step_and_is_said_to_be(
    tmp_path, health, reported, until
) -> None:
    callback = health()
    assert not callback.should_stop(60)
    request(tmp_path)
    until(lambda: callback._session.steps.stopping.request is not None)
    assert callback.should_stop(61)
    callback.close()
    (event,) = reported("event")
    assert event["message"].startswith("stops at step 61 as")
    assert "other ranks stop at step 57: it was read too late" in event["message"]


@pytest.mark.usefixtures("launched")
def test_a_loop_that_asks_at_each_tenth_step_is_not_late(tmp_path, health, reported, until) -> None:
    callback = health()
    assert not callback.should_stop(50)
    request(tmp_path)
    until(lambda: callback._session.steps.stopping.request is not None)
    assert callback.should_stop(60)
    callback.close()
    (event,) = reported("event")
    assert "late" not in event["message"]


def test_without_a_launch_of_the_monitors_no_file_is_looked_for(
    tmp_path, health, monkeypatch, until
) -> None:
    monkeypatch.delenv("LDLM_RUN", raising=False)
    request(tmp_path)
    callback = health()
    assert not callback.should_stop(100)
    looks = callback._session._look_at
    callback._session._idle()
    assert (callback._session._look_at, callback.should_stop(101)) == (looks, False)


@pytest.mark.usefixtures("launched")
def test_no_value_of_a_step_makes_it_raise(health) -> None:
    callback = health()
    for step in (None, 1.5, "7", [1], object(), 2**70):
        assert callback.should_stop(step) is False
    assert callback._errors == 0


ASKS = """
    os.environ["LDLM_RUN"] = "launch"
    health = HealthCallback(run="run_a", out=sys.argv[1], gpu=False)
    import threading
    main, seen = threading.get_ident(), []
    sys.addaudithook(lambda name, given: threading.get_ident() == main and seen.append(name))
    stops = [health.should_stop(step) for step in range(1000)]
    found = sorted(set(seen))
    assert not any(stops) and not found, found
    child = os.fork()
    if child == 0:
        health._session.steps.stopping.request = (0, "forked")
        os._exit(health.should_stop(5))
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_step_asks_no_file_and_a_forked_child_never_stops(train) -> None:
    code, errors = train(ASKS).end()
    assert code == 0, errors
