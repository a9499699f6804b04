"""CPU of `--once` on rows and bars that the compiled part reads, or leaves to Python.

Each log has its turn with Python alone, with the compiled part, and with each command of `--than`.
"""

import random
import re
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import jsonl_catch_up
import side_by_side as bench

BARS, ROWS = 60_000, 1_000_000
FLAGS = ("--once", "--no-companions", "--fail-on", "never")


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--than", nargs="*", default=[], help="other commands, of older versions")
    parser.add_argument("--repeats", type=int, default=3, help="the least of so many counts")
    parser.add_argument("--only", nargs="*", help="the logs to read, by a part of their names")


def bare(step: int, steps: int) -> str:
    """A repaint of the bar without a loss."""
    return re.sub(r", Loss=.*", "]", bench.bar(step, steps))


def bars(count: int, draw: Callable[[int, int], str]) -> Callable[[Path], None]:
    def write(log: Path) -> None:
        log.write_text("".join(draw(step, count + 1) for step in range(1, count + 1)) + "\n")

    return write


def rows(count: int, nans: float) -> Callable[[Path], None]:
    def write(log: Path) -> None:
        jsonl_catch_up.generate(log, count)
        draw, lines = random.Random(2).random, log.read_text().splitlines(keepends=True)
        norm = re.compile(r'"latent_norm": [\d.]+')
        with log.open("w") as file:
            for line in lines:
                file.write(norm.sub('"latent_norm": NaN', line) if draw() < nans else line)

    return write


def main() -> None:
    args = bench.arguments(__doc__.partition("\n")[0], add_flags)
    smaller = 10 if args.quick else 1
    of_bars, of_rows = BARS // smaller, ROWS // smaller
    logs = {
        f"{of_bars:,} bars": bars(of_bars, bench.bar),
        f"{of_bars:,} bars, but for the first without a loss": bars(
            of_bars, lambda step, of: (bench.bar if step == 1 else bare)(step, of)
        ),
        f"{of_bars // 3:,} bars, every other without a loss": bars(
            of_bars // 3, lambda step, of: (bench.bar if step % 2 else bare)(step, of)
        ),
        f"{of_bars // 3:,} bars with `Loss=nan`": bars(
            of_bars // 3, lambda *at: re.sub(r"Loss=[\d.]+", "Loss=nan", bench.bar(*at))
        ),
        f"{of_rows:,} rows": rows(of_rows, 0.0),
        f"{of_rows // 5:,} rows, 1 % with a NaN": rows(of_rows // 5, 0.01),
    }
    ours = bench.monitor(args.command)
    programs = [*((each, "1") for each in args.than), (ours, "0"), (ours, "1")]
    print("| log |", *(f"{name} LDLM_NATIVE={native} |" for name, native in programs))
    print("| --- |" + " --- |" * len(programs))
    for name, write in logs.items():
        if args.only and not any(part in name for part in args.only):
            continue
        least = [sys.float_info.max] * len(programs)
        with tempfile.TemporaryDirectory(prefix="compiled-part-") as folder:
            is_rows = " rows" in name
            log = Path(folder, jsonl_catch_up.LOG if is_rows else "train_node0.log")
            write(log)
            for _ in range(args.repeats):
                for index, (command, native) in enumerate(programs):
                    argv = ["env", f"LDLM_NATIVE={native}", command, str(log), *FLAGS]
                    spent = bench.timed(argv, log.parent)
                    least[index] = min(least[index], spent.cpu)
        print(f"| {name} |", *(f"{each:.2f} |" for each in least), flush=True)


if __name__ == "__main__":
    main()
