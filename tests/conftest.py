"""What every test gets: Hypothesis profiles, and a check that no thread outlives its test."""

import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import settings

JOIN_SECONDS = 5.0

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("long", deadline=None, max_examples=10_000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "here")
)


@pytest.fixture(autouse=True)
def no_thread_outlives_the_test() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(JOIN_SECONDS)
    alive = [thread.name for thread in left if thread.is_alive()]
    assert not alive, f"threads that the test left running: {alive}"
