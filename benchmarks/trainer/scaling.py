"""From one process to eight: python benchmarks/trainer/scaling.py [--processes 1 2 4 8]

The same training (of the same samples a step and rank) on each number of processes, then what
`ldlm-monitor compare` says of them, and the efficiency: the share of a perfect multiple that is
reached. The exit code is 1 where that is less than `--least`, or where the GPUs were busy less
than `--busy`, by the median of what their driver gave the callback of each rank, or there is none
and `--busy 0` was not given.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from improvements import make_data

WARM_UP = 20
BUSY = "gpu_utilization_ratio"


def train(processes: int, steps: int, folder: Path, settings: list[str]) -> Path:
    """The folder of a finished training; raises `CalledProcessError`."""
    name = f"on_{processes}"
    given = [
        f"data.folder={folder / 'shards'}", f"run.save_dir={folder / 'saved'}", f"run.name={name}",
        f"schedule.steps={WARM_UP + steps}", "schedule.warmup=5", "run.eval_every=0",
        "run.save_every=0", "run.resume=never", "model.width=96", "model.depth=4", *settings,
    ]  # fmt: skip
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(processes), "-m", "ldlm_trainer", "train", *given]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return folder / "saved" / name


def rate(run: Path) -> float:
    """Samples a second of all ranks: of the median step after the warm-up."""
    rows = [json.loads(line) for line in (run / "training_log.jsonl").read_text().splitlines()]
    return statistics.median(row["samples_per_sec"] for row in rows[WARM_UP:])


def busy(run: Path) -> float | None:
    """How busy the least busy GPU was (median of a rank's samples); None without GPUs."""
    found = []
    for path in run.glob("health_rank*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if shares := [row[BUSY] for row in rows if BUSY in row]:
            found.append(statistics.median(shares))
    return min(found, default=None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--steps", type=int, default=60, help="timed steps of each")
    parser.add_argument("--least", type=float, default=0.0, help="efficiency, as 0.8")
    parser.add_argument("--busy", type=float, default=0.85, help="least share of time of a GPU")
    parser.add_argument("settings", nargs="*", help="section.key=value of the trainer")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder, 64)
        runs = {n: train(n, given.steps, folder, given.settings) for n in given.processes}
        first = given.processes[0]
        print("| processes | samples/s | times the first | efficiency | GPU busy |")
        print("| --- | --- | --- | --- | --- |")
        reached, idle = [], False
        for processes, run in runs.items():
            times = rate(run) / rate(runs[first])
            reached.append(times * first / processes)
            share = busy(run)
            idle |= share is None or share < given.busy
            seen = [f"{rate(run):.0f}", f"{times:.2f}", f"{reached[-1]:.0%}"]
            seen.append("no GPU" if share is None else f"{share:.0%}")
            print(f"| {processes} | {' | '.join(seen)} |", flush=True)
        compare = [sys.executable, "-m", "ldlm_monitor", "compare", "--target", "none"]
        subprocess.run([*compare, *map(str, runs.values())], check=True)
    return 1 if (idle and given.busy) or min(reached) < given.least else 0


if __name__ == "__main__":
    sys.exit(main())
