"""What the training callback costs a step: in the loop's thread, in its own, in device waits.

Values come after a real step: forward, backward, clipping and AdamW of a small transformer,
sized to take 50 ms here; numbers were asked of its tensors before. After a sleep of 50 ms they
are printed too, but not judged: nothing is as cold as a processor that had nothing to do, on a
virtual machine above all, and no step is a sleep.

After each step `on_step` is called with four values, a learning rate, a batch index and two
counts; after every fifth, drawn by lot, an empty method that takes the same instead. What is
judged is the whole time of the call (also its mean, so that waits for the interpreter's lock
are in it), not the difference with the empty method: a loop without the callback would not call
that either. It is printed beside: it is what any call costs in that place. Calls in which
the kernel gave the processor to another program (`ru_nivcsw`) are left out, and counted.
"""

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
"""Microseconds in the loop's thread: call after call, and the median within training."""
TAIL_TARGET = 200.0
"""Microseconds of the slowest call in a thousand within training."""
SHARE_TARGET = 0.1
"""Percent of a step of 50 ms."""
WARM_UP = 20
TOGETHER = 400
ROUNDS = 5

PROGRAM = """
import json, random, resource, statistics, sys, time
kind, after, out = sys.argv[1:4]
steps, warm_up, together, rounds = map(int, sys.argv[4:8])
seconds = float(sys.argv[8])

class Control:
    def on_step(
        self, step=None, loss=None, *, grad_norm=None, lr=None, samples=None, tokens=None,
        batch=None, epoch=None, **values
    ):
        pass

def sleeping(values):
    def take():
        time.sleep(seconds)
        return values
    return take

def training(device):
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randn(4, 32, 64, device=device)
    def take(passes):
        for _ in range(passes):
            hidden = model(data)
            text, latent = hidden[:2].square().mean(), hidden[2:].square().mean()
            loss = text + latent
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss, norm, text, latent
    take(2)
    taken = []
    for passes in (2, 2, 2, 10, 10, 10):
        began = time.perf_counter()
        take(passes)
        taken.append(time.perf_counter() - began)
    few, many = min(taken[:3]), min(taken[3:])
    passes = max(1, round(2 + (seconds - few) / ((many - few) / 8)))
    return lambda: take(passes)

made = (2.5, 0.5, 1.5, 1.0)
if kind != "numbers" or after == "training":
    import torch
    torch.set_num_threads(1)
if after == "sleep":
    work = sleeping(made if kind == "numbers" else tuple(map(torch.tensor, made)))
else:
    step = training(torch.device("cuda" if kind == "cuda" else "cpu"))
    work = (lambda: tuple(map(float, step()))) if kind == "numbers" else step
from ldlm_callback import HealthCallback

callback, control = HealthCallback(run="benchmark", out=out, rank=0), Control()
steps_done = 0

def call(who, values):
    global steps_done
    steps_done += who is callback
    loss, norm, text, latent = values
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    began = time.perf_counter()
    who.on_step(
        steps_done, loss=loss, grad_norm=norm, lr=1e-4, samples=8, tokens=4096, batch=steps_done,
        loss_text=text, loss_latent=latent,
    )
    took = time.perf_counter() - began
    disturbed = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw > before
    return None if disturbed else took

values = work()
for _ in range(warm_up):
    call(callback, values), call(control, values)
if kind == "cuda":
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
order = [callback] * steps + [control] * max(steps // 4, 2)
random.Random(1).shuffle(order)
spent = {callback: [], control: []}
left_out = 0
cpu, thread, began = time.process_time(), time.thread_time(), time.perf_counter()
for who in order:
    took = call(who, work())
    if took is None:
        left_out += who is callback
    else:
        spent[who].append(took)
step_seconds = (time.perf_counter() - began) / len(order)
others = (time.process_time() - cpu) - (time.thread_time() - thread)
warm = []
for _ in range(rounds):
    taken = [call(callback, values) for _ in range(together)]
    warm.append(statistics.median(took for took in taken if took is not None))
errors = callback._errors
callback.close()
print(json.dumps({
    "median": statistics.median(spent[callback]) * 1e6,
    "p99": statistics.quantiles(spent[callback], n=100)[98] * 1e6,
    "p999": statistics.quantiles(spent[callback], n=1000, method="inclusive")[998] * 1e6,
    "mean": statistics.fmean(spent[callback]) * 1e6,
    "empty": statistics.fmean(spent[control]) * 1e6,
    "left_out": left_out,
    "step": step_seconds,
    "own_cpu": others / steps * 1e6,
    "together": min(warm) * 1e6,
    "errors": errors,
    "rows": sum('"type":"step"' in line for line in open(out + "/health_rank0.jsonl")),
}))
"""


def measure(kind: str, after: str, steps: int) -> dict[str, float]:
    """Microseconds of a call, and of processor time in the callback's own threads for each."""
    counts = (steps, WARM_UP, TOGETHER, ROUNDS)
    with TemporaryDirectory(prefix="callback-") as folder:
        given = (kind, after, folder, *counts, STEP_SECONDS)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *map(str, given)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    if done.returncode:
        raise bench.MeasurementError(f"{kind}: {done.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout)
    if measured["errors"] or measured["rows"] != steps + WARM_UP + ROUNDS * TOGETHER:
        raise bench.MeasurementError(f"{kind}: {measured}")
    return measured


def cases() -> list[tuple[str, str]]:
    """Values and what comes before them, as far as they can be had here."""
    found = [("numbers", "sleep")]
    if importlib.util.find_spec("torch") is not None:
        import torch

        found = [(kind, after) for kind in ("numbers", "cpu") for after in ("training", "sleep")]
        if torch.cuda.is_available():
            found.append(("cuda", "training"))
    return found


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=400, help="steps of 50 ms")


def rows(args: Namespace) -> list[bench.Row]:
    steps = args.steps // 10 if args.quick else args.steps
    names = {"numbers": "numbers", "cpu": "tensors on the CPU", "cuda": "tensors on the GPU"}
    found = []
    seen: set[str] = set()
    for kind, after in cases():
        measured = measure(kind, after, steps)
        what = f"callback, 4 values as {names[kind]}"
        if kind not in seen:
            seen.add(kind)
            waits = ", no device wait" if kind == "cuda" else ""
            ours = f"median {measured['together']:.1f} µs{waits}"
            met = measured["together"] < CALL_TARGET
            target = f"< {CALL_TARGET:g} µs"
            found.append(bench.Row(f"{what}, call after call", target, ours, met=met))
        share = measured["mean"] / (STEP_SECONDS * 1e6) * 100
        ours = (
            f"{share:.3f} %: mean {measured['mean']:.0f} µs, median {measured['median']:.0f}, "
            f"p99 {measured['p99']:.0f}, p99.9 {measured['p999']:.0f}; "
            f"an empty method {measured['empty']:.0f}; "
            f"{measured['left_out']:.0f} of {steps} calls left out"
        )
        if kind != "cuda":  # where PyTorch has threads of its own
            ours += f"; {measured['own_cpu']:.0f} µs of processor time in its threads"
        what = f"{what}, after {measured['step'] * 1000:.0f} ms of {after}"
        if after == "sleep":
            found.append(bench.Row(what, "", ours))
        else:
            target = (
                f"< {SHARE_TARGET:g} % of 50 ms, median < {CALL_TARGET:g} µs, "
                f"p99.9 < {TAIL_TARGET:g} µs"
            )
            short = measured["median"] < CALL_TARGET and measured["p999"] < TAIL_TARGET
            found.append(bench.Row(what, target, ours, met=share < SHARE_TARGET and short))
    if not any(kind == "cuda" for kind, _ in cases()):
        found.append(bench.Row("callback, tensors on the GPU", "", "no GPU here: not measured"))
    return found


if __name__ == "__main__":
    flags = bench.arguments("Cost of the training callback.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
