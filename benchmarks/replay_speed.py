"""How long a replay of three days takes, of which one run logs a row every second.

A log of progress bars, and the same as JSON rows with times; and a short log that was silent
for three days before its last line: what such silence costs is the difference to the same log
without it.
"""

import os
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import side_by_side as bench
from healthy_training import START, Step, Training, steps_of

TARGET_SECONDS = 120.0
TARGET_SILENCE = 0.2
"""Seconds: less than what two runs of the same program differ by."""
DAYS = 3
DAY_SECONDS = 86_400
SHORT = 600
LOG = "train_20260129_101500_node0.log"


def bars(log: Path, steps: int, *, pause: int = 0) -> None:
    """A bar a second; before the last one there is a pause, in seconds."""
    with log.open("w", newline="") as file:
        file.write("* World size: 8\n")
        for step in _steps(steps):
            elapsed = step.number + 1 + (pause if step.number == steps - 1 else 0)
            clock = f"{elapsed // 3600}:{elapsed // 60 % 60:02d}:{elapsed % 60:02d}"
            file.write(
                f"\rTraining:  {100 * step.number // steps}%|▎| {step.number + 1}/{steps} "
                f"[{clock}<9:00:00,  1.00it/s, Epoch=0/1, Progress=50.0%, "
                f"Loss={step.loss:.4f}, Text={step.loss:.4f}]"
            )
    os.utime(log, (START + steps + pause, START + steps + pause))


def timed_rows(log: Path, steps: int) -> None:
    """A row a second, with the values of a usual trainer."""
    with log.open("w") as file:
        for step in _steps(steps):
            file.write(
                f'{{"step": {step.number}, "time": {START + step.number!r}, "loss": {step.loss!r}, '
                f'"lr": {step.rate!r}, "grad_norm": {step.grad_norm!r}, '
                f'"tokens_per_second": {5e5 / step.seconds!r}}}\n'
            )


def _steps(steps: int) -> Iterator[Step]:
    return steps_of(Training("replay", "rows", steps, seed=1))


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--days", type=float, default=DAYS, help="how long the run goes")
    parser.add_argument("--repeats", type=int, default=3, help="of the silence: the best counts")


def rows(args: Namespace) -> list[bench.Row]:
    steps = int(args.days * DAY_SECONDS / (10 if args.quick else 1))
    program = bench.monitor(args.command)
    with tempfile.TemporaryDirectory(prefix="replay-speed-") as name:
        folder = Path(name)
        for part in ("bars", "rows", "short", "silent"):
            (folder / part).mkdir()
        bars(folder / "bars" / LOG, steps)
        timed_rows(folder / "rows" / "metrics.jsonl", steps)
        bars(folder / "short" / LOG, SHORT)
        bars(folder / "silent" / LOG, SHORT, pause=int(args.days * DAY_SECONDS))

        def replay(part: str) -> bench.Spent:
            flags = ["--no-companions", "--fail-on", "never"]
            return bench.timed([program, "replay", part, *flags], folder)

        found = [
            _row(f"replay of {steps:,} {what}, one a second", steps, replay(part))
            for part, what in (("bars", "progress bars"), ("rows", "JSON rows with times"))
        ]
        short, silent = (
            min(replay(part).cpu for _ in range(args.repeats)) for part in ("short", "silent")
        )
        if "TrainingStalled" not in replay("silent").output:
            raise bench.MeasurementError("the silence was not noticed")
        found.append(
            bench.Row(
                f"replay of {args.days:g} silent days after {SHORT} bars",
                f"< {TARGET_SILENCE:g} s more",
                f"{silent:.2f} s of CPU time, {silent - short:+.2f} s to the same without silence",
                met=silent - short < TARGET_SILENCE,
            )
        )
        return found


def _row(what: str, steps: int, spent: bench.Spent) -> bench.Row:
    # Sizes divided by ten have a tenth of the time.
    target = TARGET_SECONDS * steps / (DAYS * DAY_SECONDS)
    return bench.Row(
        what,
        f"< {target:g} s",
        f"{spent.wall:.1f} s, {spent.cpu:.1f} s of CPU time, {steps / spent.wall:,.0f} lines/s",
        met=spent.wall < target,
    )


if __name__ == "__main__":
    flags = bench.arguments("A replay of three days.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
