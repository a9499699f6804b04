"""All benchmarks, one after the other, as one Markdown table: python benchmarks/run.py [--quick]"""

import sys
from argparse import ArgumentParser, Namespace
from types import ModuleType

import bars_catch_up
import callback_overhead
import false_alarms
import first_picture
import idle
import jsonl_catch_up
import kill_delivery
import nan_to_slack
import nccl_catch_up
import ready
import replay_speed
import restart
import rule_evaluation
import scan_speed
import side_by_side as bench
import start

BENCHMARKS: tuple[ModuleType, ...] = (
    nan_to_slack,
    nccl_catch_up,
    jsonl_catch_up,
    bars_catch_up,
    replay_speed,
    rule_evaluation,
    scan_speed,
    idle,
    start,
    ready,
    restart,
    kill_delivery,
    callback_overhead,
    false_alarms,
    first_picture,
)


def defaults(module: ModuleType, given: Namespace) -> Namespace:
    """A benchmark's own flags at their defaults, and those that were given to all."""
    parser = ArgumentParser()
    module.add_flags(parser)
    return Namespace(**{**vars(parser.parse_args([])), **vars(given)})


def main() -> int:
    names = {module.__name__: module for module in BENCHMARKS}
    given = bench.arguments(
        "All benchmarks as one table.",
        lambda parser: parser.add_argument("--only", nargs="+", choices=names, default=[*names]),
    )
    print(bench.HEAD, flush=True)
    kept = True
    for name in given.only:
        try:
            rows: list[bench.Row] = names[name].rows(defaults(names[name], given))
        except bench.MeasurementError as error:
            rows = [bench.Row(name, "", "not measured", met=False)]
            print(f"{name}: {error}", file=sys.stderr)
        for row in rows:
            print(row, flush=True)
            kept = kept and row.met is not False
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
