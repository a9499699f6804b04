"""Reads NVIDIA's GPUs by nvidia-ml-py (extra `gpu`) in a child process, `nvml`.

A driver may not return from a call, and nothing ends a thread in such a call; a child is killed.
It starts once and answers a line for each line that it gets, as starting NVML takes a second.
"""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from ldlm_monitor.base.snapshot import GpuView

SECONDS = 2.0
"""Seconds for one answer: a choice. The first, with Python's and NVML's start, takes one."""
AGAIN_SECONDS = 600.0
"""Seconds after a failure until the driver is asked again: a choice, as a package or driver seldom
comes back sooner, and a stuck driver holds the look at stalled runs up for `SECONDS`."""
_MOST_BYTES = 1_000_000  # of an answer: sixteen GPUs with thousands of processes need less


class GpuReader:
    """All GPUs of this host. Not safe for several threads. `clock`: seconds of any one clock.

    `problem`: why the last `look` gave none, or "".
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._child: subprocess.Popen[bytes] | None = None
        self._again_at = -float("inf")
        self.problem = ""
        self.processes: list[dict[int, int | None]] = []

    def look(self) -> tuple[GpuView, ...]:
        """The GPUs by number; empty if there are none, or if none can be read.

        `processes` are those of each: their bytes by pid, None if the driver does not say.
        """
        if self._clock() < self._again_at:
            return ()
        answer = self._ask()
        if isinstance(answer, str):
            self.problem, self.processes = answer, []
            self._again_at = self._clock() + AGAIN_SECONDS
            self.close()
            return ()
        self.problem = ""
        self.processes = [{int(pid): used for pid, used in each[2].items()} for each in answer]
        return tuple(
            GpuView(gpu=str(number), name=name, values=values)
            for number, (name, values, _) in enumerate(answer)
        )

    def of(self, pids: Collection[int], gpus: Sequence[GpuView]) -> tuple[GpuView, ...]:
        """Those of `gpus` on which these processes compute; all if the driver lists none of them.

        In a container the driver has other process numbers.
        """
        used = [gpu for gpu, on in zip(gpus, self.processes, strict=False) if on.keys() & pids]
        return tuple(used or gpus)

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            for pipe in filter(None, (self._child.stdin, self._child.stdout)):
                with suppress(OSError):  # what was not sent
                    pipe.close()
            with suppress(subprocess.TimeoutExpired):  # a process within a driver's call stays
                self._child.wait(1.0)
            self._child = None

    def _ask(self) -> Any:
        """The child's answer, or a text that says why there is none."""
        try:
            if self._child is None:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", "ldlm_monitor.host.probe.nvml"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            return self._answer(self._child)
        except (OSError, ValueError):
            return "the process that asks the driver of the GPUs cannot run"

    def _answer(self, child: subprocess.Popen[bytes]) -> Any:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        until, answer = time.monotonic() + SECONDS, b""
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while not answer.endswith(b"\n") and len(answer) < _MOST_BYTES:
                if not selector.select(until - time.monotonic()):
                    return f"the driver of the GPUs did not answer within {SECONDS:g} s"
                part = os.read(child.stdout.fileno(), _MOST_BYTES)
                if not part:
                    break
                answer += part
        return json.loads(answer)
