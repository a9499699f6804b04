"""What `HealthCallback.watch` costs a step: checksums of replicas, windows of gradients.

A model of 19 million weights (six transformer layers 512 wide) with AdamW's state, on one
core. After a real step, once each: the check of parameters and optimizer state, the window of
gradients, and for comparison a sum of the same memory, which a check needs at least. The median
of `--rounds`, of processor time on a CPU.
"""

import statistics
import sys
import time
from argparse import ArgumentParser, Namespace

import side_by_side as bench

NO_GPU = "no GPU here: not measured"


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda on a machine that has it")


def rows(args: Namespace) -> list[bench.Row]:
    import torch

    from ldlm_callback.checksums import Checked
    from ldlm_callback.gradients import gradient_window, parameter_groups

    if args.device != "cpu" and not torch.cuda.is_available():
        return [bench.Row("callback, checks and windows on the GPU", "", NO_GPU)]
    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(1, 8, 512, device=args.device)
    parameters = [*model.parameters()]
    checked = Checked(parameters, optimizer, 1)
    groups = parameter_groups(model.layers)

    clock = time.process_time if args.device == "cpu" else time.perf_counter

    def wait() -> None:
        if args.device != "cpu":
            torch.cuda.synchronize()

    def step() -> None:
        model(data).square().mean().backward()
        optimizer.step()

    step()
    state = [part for kept in optimizer.state.values() for part in kept.values() if part.ndim]
    tensors = [*parameters, *state]
    taken: dict[str, list[float]] = {}
    for _ in range(3 if args.quick else args.rounds):
        step()
        for name, work in {
            "check": checked.sums,
            "window": lambda: gradient_window(torch, groups),
            "sum": lambda: [each.view(torch.int32).sum(dtype=torch.int64) for each in tensors],
        }.items():
            wait()
            began = clock()
            work()
            wait()
            taken.setdefault(name, []).append((clock() - began) * 1000)
        optimizer.zero_grad()
    found = {name: statistics.median(each) for name, each in taken.items()}
    weights = sum(each.numel() for each in parameters)
    size = sum(each.nbytes for each in tensors)
    what = f"{weights / 1e6:.0f} M weights with AdamW on {_name(args.device)}"
    rate = size / found["check"] / 1e6
    return [
        bench.Row(
            f"check of replicas, {what}",
            "< 2 sums of the memory",
            f"{found['check']:.1f} ms for {len(tensors)} tensors, {size / 1e6:.0f} MB "
            f"({rate:.0f} GB/s); a sum {found['sum']:.1f} ms",
            met=found["check"] < 2 * found["sum"],
        ),
        bench.Row(
            f"window of gradients in {len(groups)} groups, {what}", "",
            f"{found['window']:.1f} ms",
        ),
    ]  # fmt: skip


def _name(device: str) -> str:
    import torch

    return "one core" if device == "cpu" else torch.cuda.get_device_name()


if __name__ == "__main__":
    flags = bench.arguments("Cost of checks and windows of the callback.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
