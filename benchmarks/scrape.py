"""What a scrape of many runs costs: python benchmarks/scrape.py [--runs 800] [--steps 300].

Prints the bytes of `/metrics` in each format, before and after gzip, the lines of each metric, and
the seconds to make it. Each run is a rank's JSON lines, as the callback writes them.
"""

import gzip
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path

from fleet_nodes import row
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.serve.metrics import OPENMETRICS, PROTOBUF, TEXT, exposition, families

BEGUN = 1_769_681_800.0  # Unix seconds of the first step


def snapshot(runs: int, steps: int) -> Snapshot:
    """The last snapshot of a replay of so many runs."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number in range(runs):
            run = Path(folder) / f"run{number:04d}"
            run.mkdir()
            head = (
                f'{{"schema":"ldlm.health/1","type":"run","run":"run{number:04d}","rank":0,'
                f'"world_size":8,"time":{BEGUN},"framework":"torch"}}\n'
            )
            rows = [row(0, step, BEGUN + step) for step in range(1, steps)]
            path = run / "health_rank0.jsonl"
            path.write_text(head + "".join(rows))
            paths.append(str(path))
        replay = Replay(Settings(files=tuple(paths)))
        for _ in replay.transitions():
            pass
        return replay.snapshot()


def main() -> int:
    """Print the table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=800)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--metrics", action="store_true", help="the bytes of each metric")
    given = parser.parse_args()
    shown = snapshot(given.runs, given.steps)
    for accept in (TEXT, OPENMETRICS, PROTOBUF):
        began = time.process_time()
        _, body = exposition(families(shown, notifications={}, behind=0), accept)
        spent = time.process_time() - began
        packed = len(gzip.compress(body, 1))
        print(f"{accept}: {len(body):,} bytes, {packed:,} by gzip, {spent:.2f} s")
        if given.metrics and accept != PROTOBUF:
            sizes: Counter[str] = Counter()
            for line in body.splitlines():
                sizes[line.split(b"{")[0].split(b" ")[0].decode()] += len(line) + 1
            print("\n".join(f"{size:>10,} {name}" for name, size in sizes.most_common(60)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
