"""What a start costs: CPU of `--once` on a small log, beside Python with usual modules.

The yardstick imports a web framework's worth of the standard library, in turn with ours.
"""

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from statistics import median

import side_by_side as bench

TARGET = 0.4
"""Seconds of CPU of `--once` on a log of fifty lines."""
YARDSTICK = "import asyncio, email.message, http.server, json, logging, sqlite3, ssl, typing"
LINES = 50


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=10, help="the median of so many starts")


def rows(args: Namespace) -> list[bench.Row]:
    repeats = max(args.repeats // (3 if args.quick else 1), 1)
    program = bench.monitor(args.command)
    with tempfile.TemporaryDirectory(prefix="start-") as name:
        folder = Path(name)
        lines = (f"step {step} loss {2 + step % 7 / 10} lr 1e-4\n" for step in range(LINES))
        (folder / "train.log").write_text("".join(lines))
        commands = {
            "--once": [program, "--once", "--no-companions", "--fail-on", "never", "train.log"],
            "--help": [program, "--help"],
            "--version": [program, "--version"],
            "": [sys.executable, "-c", YARDSTICK],
        }
        spent: dict[str, list[bench.Spent]] = {name: [] for name in commands}
        for command in commands.values():
            bench.timed(command, folder)  # compiles and caches what a second start finds
        for _ in range(repeats):
            for what, command in commands.items():
                spent[what].append(bench.timed(command, folder))
    cpu = {what: median(one.cpu for one in each) for what, each in spent.items()}
    wall = {what: median(one.wall for one in each) for what, each in spent.items()}
    theirs = f"{cpu['']:.3f} s of CPU"
    return [
        bench.Row(
            f"start of `ldlm-monitor {what}`: Python with some of its library",
            f"<= {TARGET:g} s of CPU" if what == "--once" else "",
            f"{cpu[what]:.3f} s of CPU, {wall[what]:.3f} s",
            theirs,
            f"{cpu[what] / cpu['']:.1f} x",
            cpu[what] <= TARGET if what == "--once" else None,
        )
        for what in commands
        if what
    ]


if __name__ == "__main__":
    flags = bench.arguments("What a start costs.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
