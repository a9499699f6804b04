"""Appends lines to many logs at a steady rate: growing_logs.py LINES_PER_SECOND LOG...

Writes until its standard input ends. Nine lines of ten are repaints of a progress bar, one is a
line that NCCL prints. Each log gets its lines one by one, spread over the second.
"""

import heapq
import select
import sys
import time
from pathlib import Path

from side_by_side import BARS, STEPS, bar

NCCL_LINE = "\nnode01:4711:4753 [0] NCCL INFO Connected all trees\n"


def line(number: int) -> str:
    if number % 10 == 9:
        return NCCL_LINE
    return bar((BARS + 1 + number) % STEPS or 1) + "\r"


def grow(logs: list[Path], rate: float) -> None:
    started = time.monotonic()
    pitch = 1 / rate
    due = [(started + pitch * index / len(logs), index, 0) for index in range(len(logs))]
    files = [log.open("ab", buffering=0) for log in logs]
    try:
        while True:
            when, index, number = due[0]
            wait = when - time.monotonic()
            if wait > 0 and select.select([sys.stdin], [], [], wait)[0]:
                return
            files[index].write(line(number).encode())
            heapq.heapreplace(due, (when + pitch, index, number + 1))
    finally:
        for file in files:
            file.close()


if __name__ == "__main__":
    grow([Path(name) for name in sys.argv[2:]], float(sys.argv[1]))
