"""How fast a long training_log.jsonl is read to its end, beside mtail with the same five gauges.

The rows have the keys that MM-LDLM's trainer writes. Ours feeds series, the run's lifecycle and
every alert rule with them; mtail keeps the last value of each key. Then the same with a `time`
in every row, at which ours judges it, and rows with the eight values that detectors read.
"""

import random
import re
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

import side_by_side as bench

TARGET = 3.0
LOG = "training_log.jsonl"
ROWS = 1_000_000
STEPS_AN_EPOCH = 50_000
START = 1_769_681_800
STEPS_A_SECOND = 16
EIGHT = 200_000  # rows with eight values
EIGHT_A_SECOND = 4
NUMBER = r"[-+0-9.eE]+"
GAUGES = {
    "step": "train_step",
    "loss": "train_loss",
    "lr": "train_learning_rate",
    "text_loss": "train_text_loss",
    "text_accuracy": "train_text_accuracy",
}


def generate(log: Path, count: int, seed: int = 1, *, timed: bool = False) -> None:
    """A loss that falls, an accuracy that rises, warm-up of the learning rate; no NaN."""
    draw = random.Random(seed).random
    with log.open("w") as file:
        for step in range(count):
            loss = 2 + 8 / (1 + step / 5000) + draw() * 0.1
            more = ', "active_params_ratio": 0.9732340494101483' if step % 100 == 0 else ""
            more += f', "time": {START + step / STEPS_A_SECOND!r}' if timed else ""
            file.write(
                f'{{"epoch": {step // STEPS_AN_EPOCH}, "step": {step}, '
                f'"batch_in_epoch": {step % STEPS_AN_EPOCH}, "loss": {loss!r}, '
                f'"lr": {5e-4 * min(1, step / 1000)!r}, "text_loss": {loss!r}, '
                f'"latent_loss": 0.0, "text_accuracy": {0.5 - loss / 25 + draw() * 0.05!r}, '
                f'"latent_norm": {5.9 + draw() * 0.1!r}{more}}}\n'
            )


def generate_eight(log: Path, count: int, seed: int = 1, *, timed: bool = False) -> None:
    """A loss, a gradient norm, rates, memory: each with noise about a course that is well."""
    draw = random.Random(seed).random
    with log.open("w") as file:
        for step in range(count):
            time = f', "time": {START + step / EIGHT_A_SECOND!r}' if timed else ""
            file.write(
                f'{{"step": {step}, "loss": {2 + 8 / (1 + step / 5000) + draw() * 0.1!r}, '
                f'"grad_norm": {0.5 + draw() * 0.2!r}, '
                f'"learning_rate": {5e-4 * min(1, step / 1000)!r}, '
                f'"tokens_per_second": {100_000 + draw() * 1000!r}, '
                f'"samples_per_second": {100 + draw()!r}, '
                f'"step_seconds": {0.25 + draw() * 0.005!r}, '
                f'"memory_allocated_bytes": {70_000_000_000 + int(draw() * 1e8)}, '
                f'"accuracy": {0.1 + draw() * 0.05!r}{time}}}\n'
            )


def mtail_program() -> str:
    parts = [f"gauge {gauge}" for gauge in GAUGES.values()]
    for key, gauge in GAUGES.items():
        number = r"\d+" if key == "step" else NUMBER
        parts.append(f'/"{key}": (?P<{key}>{number})/ {{\n  {gauge} = ${key}\n}}')
    return "\n".join(parts) + "\n"


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=ROWS, help="how many steps")
    parser.add_argument("--eight", type=int, default=EIGHT, help="how many with eight values")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many counts")


def rows(args: Namespace) -> list[bench.Row]:
    smaller = 10 if args.quick else 1
    count, eight = args.rows // smaller, args.eight // smaller
    program = bench.monitor(args.command)
    mtail = bench.debian("mtail", "mtail")
    with tempfile.TemporaryDirectory(prefix="jsonl-catch-up-") as name:
        folder = Path(name)
        for part in ("full", "timed", "eight", "eight-timed", "empty", "programs"):
            (folder / part).mkdir()
        generate(folder / "full" / LOG, count)
        generate(folder / "timed" / LOG, count, timed=True)
        generate_eight(folder / "eight" / LOG, eight)
        generate_eight(folder / "eight-timed" / LOG, eight, timed=True)
        (folder / "empty" / LOG).touch()
        (folder / "programs" / "train.mtail").write_text(mtail_program())

        def by_us(log: str) -> bench.Spent:
            flags = ["--once", "--no-companions", "--fail-on", "never"]
            return bench.timed([program, f"{log}/{LOG}", *flags], folder)

        def by_mtail(log: str) -> bench.Spent:
            flags = ["-one_shot", "-one_shot_format", "prometheus", "-progs", "programs"]
            return bench.timed([mtail, *flags, "-logs", f"{log}/{LOG}"], folder)

        found = []
        for full, what, number, target in (
            ("full", "rows", count, TARGET),
            ("timed", f"rows with times, {STEPS_A_SECOND} a second", count, None),
            ("eight", "rows of eight values", eight, None),
            ("eight-timed", f"the same with times, {EIGHT_A_SECOND} a second", eight, None),
        ):
            ours, theirs = bench.catch_ups(
                [by_us, by_mtail], full=full, empty="empty", repeats=args.repeats
            )
            _check(ours, theirs, number)
            found.append(_row(f"{number:,} {what}", number, ours, theirs, target))
    return found


def _row(
    what: str, count: int, ours: bench.Backfill, theirs: bench.Backfill, target: float | None
) -> bench.Row:
    ratio = bench.times_faster(ours, theirs)
    return bench.Row(
        f"catch-up on training_log.jsonl, {what}: mtail",
        "" if target is None else f">= {target:g} x",
        f"{ours}, {count / ours.seconds:,.0f} rows/s",
        f"{theirs}, {count / theirs.seconds:,.0f} rows/s",
        f"{ratio:.2f} x",
        None if target is None else ratio >= target,
    )


def _check(ours: bench.Backfill, theirs: bench.Backfill, count: int) -> None:
    """A quick answer that is wrong does not count."""
    if not re.search(rf"Read {count:,} lines .*\b{count:,} records", ours.full.output, re.DOTALL):
        raise bench.MeasurementError(f"ours did not read {count:,} rows: {ours.full.output}")
    step = re.search(r"^train_step\{.*\} (\d+)$", theirs.full.output, re.MULTILINE)
    if step is None or int(step[1]) != count - 1:
        raise bench.MeasurementError(f"mtail did not read to the end: {theirs.full.output}")


if __name__ == "__main__":
    flags = bench.arguments("Catch-up on a long training_log.jsonl.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
