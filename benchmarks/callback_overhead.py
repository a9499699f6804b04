"""What the training callback costs a step: in the loop's thread, in its own, in device waits."""

import importlib.util
import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from tempfile import TemporaryDirectory

import side_by_side as bench

STEP_SECONDS = 0.05
CALL_TARGET = 20.0
"""Microseconds in the loop's thread."""
SHARE_TARGET = 0.1
"""Percent of a step of 50 ms."""

PROGRAM = """
import json, os, statistics, sys, time
kind, out, steps, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
if kind != "numbers":
    import torch
    torch.set_num_threads(1)
    device = torch.device("cuda" if kind == "cuda" else "cpu")
    values = [torch.tensor(2.5, device=device) for _ in range(4)]
else:
    values = [2.5, 0.5, 1.5, 1.0]
from ldlm_monitor.callback import HealthCallback

callback = HealthCallback(run="benchmark", out=out, rank=0)
loss, norm, text, latent = values

def run(steps, first, pause):
    spent = []
    for step in range(first, first + steps):
        if pause:
            time.sleep(pause)
        began = time.perf_counter()
        callback.on_step(
            step, loss=loss, grad_norm=norm, lr=1e-4, samples=8, tokens=4096, batch=step,
            loss_text=text, loss_latent=latent,
        )
        spent.append(time.perf_counter() - began)
    return spent

run(20, 0, 0)
if kind == "cuda":
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
cpu, thread = time.process_time(), time.thread_time()
spent = run(steps, 20, pause)
own = (time.process_time() - cpu) - (time.thread_time() - thread)
together = [statistics.median(run(400, 0, 0)) for _ in range(5)]
errors = callback._errors
callback.close()
print(json.dumps({
    "median": statistics.median(spent) * 1e6,
    "p99": statistics.quantiles(spent, n=100)[98] * 1e6,
    "mean": statistics.fmean(spent) * 1e6,
    "own_cpu": own / steps * 1e6,
    "together": min(together) * 1e6,
    "errors": errors,
    "rows": sum('"type":"step"' in line for line in open(out + "/health_rank0.jsonl")),
}))
"""


def measure(kind: str, steps: int) -> dict[str, float]:
    """Microseconds of a call, and of processor time in the callback's own threads for each."""
    with TemporaryDirectory(prefix="callback-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, kind, folder, str(steps), str(STEP_SECONDS)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    if done.returncode:
        raise bench.MeasurementError(f"{kind}: {done.stderr[-2000:]}")
    told: dict[str, float] = json.loads(done.stdout)
    if told["errors"] or told["rows"] != steps + 20 + 5 * 400:
        raise bench.MeasurementError(f"{kind}: {told}")
    return told


def kinds() -> list[str]:
    """What can be measured here."""
    if importlib.util.find_spec("torch") is None:
        return ["numbers"]
    import torch

    return ["numbers", "cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=400, help="steps of 50 ms")


def rows(args: Namespace) -> list[bench.Row]:
    steps = args.steps // 10 if args.quick else args.steps
    names = {"numbers": "numbers", "cpu": "tensors on the CPU", "cuda": "tensors on the GPU"}
    found = []
    for kind in kinds():
        told = measure(kind, steps)
        share = told["mean"] / (STEP_SECONDS * 1e6) * 100
        waits = ", no device wait" if kind == "cuda" else ""
        what = f"callback, 4 values as {names[kind]}"
        target = f"< {CALL_TARGET:g} µs"
        ours = f"median {told['together']:.1f} µs{waits}"
        met = told["together"] < CALL_TARGET
        found.append(bench.Row(f"{what}, steps back to back", target, ours, met=met))
        target = f"< {SHARE_TARGET:g} %"
        ours = (
            f"{share:.3f} % (median {told['median']:.0f} µs, p99 {told['p99']:.0f} µs); "
            f"{told['own_cpu']:.0f} µs in its own threads"
        )
        met = share < SHARE_TARGET
        found.append(bench.Row(f"{what}, steps of 50 ms", target, ours, met=met))
    if "cuda" not in kinds():
        found.append(bench.Row("callback, tensors on the GPU", "", "no GPU here: not measured"))
    return found


if __name__ == "__main__":
    flags = bench.arguments("Cost of the training callback.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
