"""Which tests run which lines: a plugin of pytest, which `sample.py` uses in two ways.

Under coverage, it names the test that runs as coverage's context; what a fixture of several tests
runs has none, as has what an import runs. Caches of ours are emptied before each test, so that a
test that would only read one runs what fills it. At the end the file `$MUTATION_TIMES` has each
test's seconds, and whether it started a process, of which coverage sees nothing.

With `$MUTATION_TESTS`, a file of names of tests, only these run, in the order of the file.
"""

import json
import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import pytest
from coverage import Coverage

OURS = ("ldlm_",)  # how the names of our packages begin
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
"""Audit events of a process that is started."""

T = TypeVar("T")


class Reach:
    """Names the context, and keeps what each test took."""

    def __init__(self, measured: Coverage, times: Path) -> None:
        self.measured = measured
        self.times = times
        self.running = ""
        self.starts = False
        self.found: dict[str, tuple[float, bool]] = {}
        sys.addaudithook(self.audit)

    def audit(self, event: str, _: object) -> None:
        self.starts |= event in STARTS

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, T, T]:
        empty_caches()
        began, self.starts, self.running = time.monotonic(), False, item.nodeid
        self.measured.switch_context(self.running)
        try:
            return (yield)
        finally:
            self.found[item.nodeid] = (time.monotonic() - began, self.starts)
            self.running = ""
            self.measured.switch_context("")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[T]) -> Generator[None, T, T]:
        if fixturedef.scope != "function":
            self.measured.switch_context("")
        try:
            return (yield)
        finally:
            self.measured.switch_context(self.running)

    def pytest_sessionfinish(self) -> None:
        self.times.write_text(json.dumps(self.found), "utf-8")


def empty_caches() -> None:
    for name, module in [*sys.modules.items()]:
        if name.startswith(OURS):
            for value in [*vars(module).values()]:
                function = getattr(value, "__wrapped__", None)
                if getattr(function, "__module__", None) == name and hasattr(value, "cache_clear"):
                    value.cache_clear()


def pytest_configure(config: pytest.Config) -> None:
    measured = Coverage.current()
    if measured and (times := os.environ.get("MUTATION_TIMES")):
        config.pluginmanager.register(Reach(measured, Path(times)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if chosen := os.environ.get("MUTATION_TESTS"):
        found = {item.nodeid: item for item in items}
        names = json.loads(Path(chosen).read_text("utf-8"))
        items[:] = [found[name] for name in names if name in found]
