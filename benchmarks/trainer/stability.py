"""A long training without an incident: python benchmarks/trainer/stability.py [--steps 10000]

Trains, then plays what was written to the monitor (`ldlm-monitor replay`). The exit code is 1
where the training ended otherwise than well, a step was skipped, an alert of severity warning or
above fired, or memory grew: of the GPUs by the callback's rows, of the ranks (largest resident
size of a child, getrusage(2)) by a second training of a tenth of the steps.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from improvements import make_data
from scaling import train

GROWTH = 1.1
"""Memory of the whole training over that of its first tenth. A choice: allocators keep some."""


def alerts_of(run: Path) -> set[str]:
    """Alerts of severity warning and above that fire when the run's files are played."""
    command = [sys.executable, "-m", "ldlm_monitor", "replay", "--format", "json"]
    done = subprocess.run(
        [*command, "--fail-on", "never", str(run)], check=True, stdout=subprocess.PIPE, text=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    serious = ("warning", "error", "critical")
    return {
        row["alert"]
        for row in rows
        if row["state"] == "firing" and row["labels"]["severity"] in serious
    }


def reserved(run: Path) -> tuple[float, float]:
    """Bytes that PyTorch's allocator held in the first tenth at most, and in all; 0 on a CPU."""
    rows = [json.loads(line) for line in (run / "training_log.jsonl").read_text().splitlines()]
    held = [float(row.get("memory_reserved_bytes", 0.0)) for row in rows]
    return max(held[: len(held) // 10 + 1]), max(held)


def resident() -> int:
    """KiB of the largest process that this one has waited for."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("settings", nargs="*", help="section.key=value of the trainer")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder, 32)
        train(given.processes, given.steps // 10, folder, given.settings)
        short = resident()  # never falls, so the longer training comes second
        run = train(given.processes, given.steps, folder, ["run.name=long", *given.settings])
        run = run.with_name("long")
        rows = [json.loads(line) for line in (run / "training_log.jsonl").read_text().splitlines()]
        alerts, (first, last) = alerts_of(run), reserved(run)
    grown = max(resident() / short, last / first if first else 1.0)
    print(
        f"{len(rows)} steps, {rows[-1]['skipped']} skipped, loss {rows[0]['loss']:.3f} to "
        f"{rows[-1]['loss']:.3f}, memory times {grown:.2f}, alerts: {sorted(alerts) or 'none'}"
    )
    return 1 if alerts or rows[-1]["skipped"] or grown > GROWTH else 0


if __name__ == "__main__":
    sys.exit(main())
