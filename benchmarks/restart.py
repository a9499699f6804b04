"""What a restart costs beside a first start: CPU until a folder of ranks is judged and followed.

The rows of all ranks were judged before in two ways: as the history of a first start, and live, a
step at a time. The first start and the restart have their turns, and the least of each counts.
"""

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import copytree

import side_by_side as bench
from fleet_nodes import row
from idle import cpu_seconds
from ready import answers

RANKS, STEPS, LIVE_STEPS = 64, 5_000, 1_000
APART_SECONDS = 0.5
"""Between two steps of a rank."""
BEGAN = 1_769_681_700.0
MOST = 1.0
"""The CPU of a restart, in that of a first start."""
NOISE = 0.05
"""By so much two least times of the same work differ on a busy machine."""


@contextmanager
def writing(folder: Path) -> Iterator[Callable[[int], float]]:
    """A function that writes one step of all ranks, and returns when (Unix seconds)."""
    files = [(folder / f"health_rank{rank}.jsonl").open("a") for rank in range(RANKS)]

    def write(step: int) -> float:
        at = BEGAN + step * APART_SECONDS
        for rank, file in enumerate(files):
            file.write(row(rank, step, at + 0.001 * rank))
            file.flush()
        return at

    try:
        yield write
    finally:
        for file in files:
            file.close()


class Polling:
    """Watches nothing: each turn looks at every file."""

    polling = True

    def watches(self, folder: Path) -> bool:
        return False

    def watch(self, folders: object) -> None:
        pass

    def ring(self, path: Path) -> None:
        pass


def follow(folder: Path, steps: int) -> None:
    """Judge steps as they are written, with the time as an argument; leaves the state."""
    from ldlm_monitor.service.config import Settings
    from ldlm_monitor.service.daemon.dispatcher import Dispatcher
    from ldlm_monitor.service.daemon.pump import Pump
    from ldlm_monitor.service.notify.outbox import Outbox
    from ldlm_monitor.service.state.state_store import StateStore

    settings = Settings(files=(str(folder / "*.jsonl"),), companions=False)
    state = folder / "state"
    state.mkdir(mode=0o700)
    outbox, store = Outbox(state / "outbox.sqlite"), StateStore(state / "ledger.sqlite")
    with writing(folder) as write, closing(outbox), closing(store):
        pump = Pump(settings, outbox, store, Dispatcher(outbox, [], prints=False), Polling())
        for step in range(steps):
            pump.turn(None, write(step) + 0.1)
        pump.close()


def start(command: str, folder: Path) -> float:
    """Seconds of CPU until all is judged."""
    with bench.running_daemon(command, folder, pattern="*.jsonl") as daemon:
        ready = daemon.metrics_url.removesuffix("/metrics") + "/-/ready"
        while not answers(ready):
            if daemon.ended_within(0.1):
                raise bench.MeasurementError(f"it ended with {daemon.process.returncode}")
        return cpu_seconds(daemon.process.pid)


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=3, help="the least of so many starts")


def compare(command: str, repeats: int, steps: int, *, live: bool) -> bench.Row:
    """A first start and a restart on the same files, in turn."""
    firsts, again = list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="restart-") as name:
        folder = Path(name) / "job"
        folder.mkdir()
        if live:
            follow(folder, steps)
        else:
            with writing(folder) as write:
                for step in range(steps):
                    write(step)
        for number in range(repeats):
            fresh = copytree(folder, Path(name) / f"{number}" / "job", ignore=lambda *_: ["state"])
            firsts.append(start(command, fresh))
            again.append(start(command, folder if live else fresh))
    share = min(again) / min(firsts)
    what = f"restart, {RANKS} ranks of {steps:,} steps judged {'live' if live else 'at a start'}"
    ours, theirs = f"{min(again):.1f} s of CPU", f"{min(firsts):.1f} s of CPU"
    met = share <= MOST + NOISE
    return bench.Row(
        f"{what}: the first start", f"<= {MOST:g} x", ours, theirs, f"{share:.2f} x", met
    )


def rows(args: Namespace) -> list[bench.Row]:
    by = 10 if args.quick else 1
    found = [(STEPS // by, False), (LIVE_STEPS // by, True)]
    return [compare(args.command, args.repeats, steps, live=live) for steps, live in found]


if __name__ == "__main__":
    flags = bench.arguments("What a restart costs beside a first start.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
