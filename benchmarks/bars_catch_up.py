"""How fast the repaints of progress bars are read, beside mtail with the same gauge.

mtail reads lines, so it gets each repaint as a line of its own; ours splits them itself.
"""

import re
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

import side_by_side as bench

LOG = "train_20260101_000000_node0.log"
BARS = 60_000
PROGRAM = r"""gauge train_step
gauge train_loss
/\| (?P<step>\d+)\/\d+ \[.*Loss=(?P<loss>[-+0-9.eE]+)/ {
  train_step = $step
  train_loss = $loss
}
"""


def repaints(count: int) -> str:
    return "".join(bench.bar(step, count + 1) for step in range(1, count + 1))


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--bars", type=int, default=BARS, help="how many repaints")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many counts")


def rows(args: Namespace) -> list[bench.Row]:
    count = args.bars // (10 if args.quick else 1)
    program = bench.monitor(args.command)
    mtail = bench.debian("mtail", "mtail")
    with tempfile.TemporaryDirectory(prefix="bars-catch-up-") as name:
        folder = Path(name)
        for part in ("full", "empty", "full-lines", "empty-lines", "programs"):
            (folder / part).mkdir()
        text = repaints(count)
        (folder / "full" / LOG).write_text(text + "\n")
        (folder / "full-lines" / LOG).write_text(text.replace("\r", "\n") + "\n")
        for part in ("empty", "empty-lines"):
            (folder / part / LOG).touch()
        (folder / "programs" / "train.mtail").write_text(PROGRAM)

        def by_us(log: str) -> bench.Spent:
            flags = ["--once", "--no-companions", "--fail-on", "never"]
            return bench.timed([program, f"{log}/{LOG}", *flags], folder)

        def by_mtail(log: str) -> bench.Spent:
            flags = ["-one_shot", "-one_shot_format", "prometheus", "-progs", "programs"]
            return bench.timed([mtail, *flags, "-logs", f"{log}-lines/{LOG}"], folder)

        ours, theirs = bench.catch_ups(
            [by_us, by_mtail], full="full", empty="empty", repeats=args.repeats
        )
    if f"step {count:,} of" not in ours.full.output.replace(
        f"step {count} of", f"step {count:,} of"
    ):
        raise bench.MeasurementError(f"ours did not read {count} bars: {ours.full.output}")
    step = re.search(r"^train_step\{.*\} (\d+)$", theirs.full.output, re.MULTILINE)
    if step is None or int(step[1]) != count:
        raise bench.MeasurementError(f"mtail did not read to the end: {theirs.full.output}")
    size = len(text) / 1e6
    return [
        bench.Row(
            f"{count:,} repaints of a bar ({size:.1f} MB): mtail, a line each",
            "",
            f"{ours}, {1e6 * ours.seconds / count:.0f} µs each",
            f"{theirs}",
            f"{bench.times_faster(ours, theirs):.2f} x",
        )
    ]


if __name__ == "__main__":
    flags = bench.arguments("Catch-up on the repaints of progress bars.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
