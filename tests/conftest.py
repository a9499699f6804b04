"""What every test gets: Hypothesis profiles, and a check that no thread outlives its test."""

import gc
import logging
import os
import signal
import tempfile
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Until the tests are collected nothing is garbage, and what was collected never becomes it; yet it
# would be searched for garbage: that took half of the CPU of collecting.
gc.disable()

JOIN_SECONDS = 5.0
SHARED = Path(__file__).resolve().parents[1] / "../shared"
"""Other people's logs, Prometheus' test scripts, the design: beside the repository, if anywhere."""

# Tests run side by side. Threads of torch that wait for each other spin, which on a busy machine
# made a training of ten seconds one of ten minutes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell ignores SIGINT in its background, and nohup SIGHUP: so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Compiled definitions are kept here, not in the home of who runs the tests, and once for all of
# pytest's processes.
if "PYTEST_XDIST_WORKER" not in os.environ:
    CACHE = tempfile.TemporaryDirectory(prefix="ldlm-monitor-cache-")
    os.environ["XDG_CACHE_HOME"] = CACHE.name

# Every run tries a few examples of each property, since the runs are many; `just nightly` tries
# enough to find what comes once in a hundred times.
settings.register_profile("quick", deadline=None, max_examples=10)
settings.register_profile("ci", settings.get_profile("quick"), derandomize=True, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=300)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick")
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "shared: needs what lies beside the repository, in ../shared"
    )


@pytest.hookimpl(wrapper=True)  # around the one that takes out what is not asked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    mark_long_cases(items)
    result = yield
    put_in_order(items)
    return result


def mark_long_cases(items: list[pytest.Item]) -> None:
    """Of each test marked `slice(n)` leave n cases, evenly spread, and mark the rest `long`."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slice"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for each in cases.values():
        (wanted,) = next(each[0].iter_markers("slice")).args
        for number, item in enumerate(each):
            if number * wanted % len(each) >= wanted:
                item.add_marker("long")


def put_in_order(items: list[pytest.Item]) -> None:
    """Put tests that mostly wait first in every second part of the list.

    `--dist worksteal` starts each process at such a part, and ends a part from its end where
    another has none. So half of the processes wait while half compute, and what takes longest
    is not left for the end.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    pairs, part = processes // 2, len(items) // processes
    if not pairs:
        return
    waiting: list[pytest.Item] = []
    computing: list[pytest.Item] = []
    for item in items:
        waits = any(map(item.get_closest_marker, ("live", "trainer")))
        (waiting if waits else computing).append(item)
    ordered: list[pytest.Item] = []
    for pair in range(pairs):
        among = waiting[pair * len(waiting) // pairs : (pair + 1) * len(waiting) // pairs]
        rest = max(part - len(among), 0)
        ordered += [*computing[:part], *among, *computing[part : part + rest]]
        del computing[: part + rest]
    items[:] = [*ordered, *computing]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Leave all that was collected out of the search for garbage.

    Not when the collection ends, as xdist's controller collects nothing.
    """
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip from one place, so that pytest's summary is one line with their number."""
    if item.get_closest_marker("shared") and not SHARED.is_dir():
        pytest.skip("other people's logs, Prometheus' scripts or the design are not in ../shared")


@pytest.fixture(autouse=True)
def no_thread_outlives_the_test() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(JOIN_SECONDS)
    alive = [thread.name for thread in left if thread.is_alive()]
    assert not alive, f"threads that the test left running: {alive}"


@pytest.fixture(autouse=True)
def _own_messages() -> Iterator[None]:
    """Leave the program's messages as they were: a daemon in a test's process sends them to the
    stderr of that test, which is closed afterwards."""
    logger = logging.getLogger("ldlm_monitor")
    before = logger.handlers, logger.level, logger.propagate
    yield
    logger.handlers, logger.level, logger.propagate = before[0], before[1], before[2]
