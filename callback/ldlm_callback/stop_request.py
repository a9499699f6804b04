"""Reads the file by which the monitor asks all ranks of a launch to stop before the same step.

`stop_request.json`, beside the rows: `schema`, `launch` (as in the rows' header), `step` (the
first at which to stop), `reason`, `time` (Unix seconds). `ldlm-monitor run --on nan=stop` writes
it: `supervise/stopping.py` of the monitor.
"""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

NAME = "stop_request.json"
SCHEMA = "ldlm.stop/1"  # the number counts layouts
MAX_BYTES = 4096  # a request has some 200: a choice, so that no other file is read
MAX_REASON = 200  # characters. A choice: an alert's name and a flag fit


class StopRequest(NamedTuple):
    """All ranks are to stop at `step`, or at the first that they ask about after it."""

    step: int
    reason: str


@dataclass(eq=False)
class Stopping:
    """Where one rank's loop is to stop. `is_asked`: the loop asks for it, so a request is heeded.

    `request`: what the writer's thread has read.
    """

    is_asked: bool = False
    request: StopRequest | None = None
    _went_on: int = -1  # the last step at which it was not to stop
    _is_said: bool = False

    def is_due(self, step: int) -> bool:
        """Whether to stop at this step; called by the loop alone."""
        self.is_asked = True
        if self.request is not None and step >= self.request.step:
            return True
        self._went_on = step
        return False

    def news(self, step: int) -> str:
        """What to report of the stop at `step`, once; otherwise "".

        Where the request came too late, other ranks may wait for the steps of this one.
        """
        if self._is_said or self.request is None:
            return ""
        self._is_said, (due, reason) = True, self.request
        said = f"stops at step {step} as ldlm-monitor run asked: {reason}"
        late = self._went_on >= due
        return f"{said} (other ranks stop at step {due}: it was read too late)" if late else said


def read_request(folder: Path, launch: str) -> StopRequest | None:
    """What the file in `folder` asks of this launch; None without a file, or if it is not for us.

    Who may write into the folder may have put anything there: no link is followed, and the file
    must be a regular one of this process's user.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        fd = os.open(folder / NAME, flags)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        data = os.read(fd, MAX_BYTES) if is_ours and found.st_size <= MAX_BYTES else b""
    except OSError:
        return None
    finally:
        os.close(fd)
    return _request(data, launch)


def _request(data: bytes, launch: str) -> StopRequest | None:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("schema") != SCHEMA or said.get("launch") != launch:
        return None
    step = said.get("step")
    if type(step) is not int:
        return None
    return StopRequest(step, str(said.get("reason", ""))[:MAX_REASON])
