"""How fast a big NCCL_DEBUG=INFO log is read to its end, beside mtail and `rg -c`.

The log is generated (seeded, 400 MB) and holds four lines that say what went wrong. mtail's
program has one pattern for each wording; ripgrep looks for the same wordings as literals.
"""

import random
import re
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import side_by_side as bench

MTAIL_TARGET = 20.0
RIPGREP_TARGET = 1 / 3
MEGABYTES = 400
BLOCK_LINES = 30_000
BLOCKS = 4
HOSTS = 8
GPUS = 8

WORDINGS = {
    "nccl_collective_timeout": "Watchdog caught collective operation timeout",
    "nccl_watchdog_terminated": "watchdog thread terminated with exception",
    "nccl_monitor_kill": "Terminating the process after attempting to dump debug info",
    "nccl_heartbeat_stuck": "watchdog got stuck for",
    "nccl_async_error": "raised the following async exception",
    "nccl_work_failure": "failure detected by watchdog at work sequence id",
    "nccl_peer_closed": "Connection closed by remote peer",
    "nccl_ib_completion": "Got completion from peer",
    "nccl_ib_async_fatal": "async fatal event",
    "nccl_cuda_failure": "Cuda failure",
    "cuda_oom": "CUDA out of memory",
    "ecc_error": "uncorrectable ECC error",
}
INTERESTING = (
    "node03:48213:48990 [3] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer "
    "10.0.3.11<41232> with status=12 opcode=0 len=0 vendor err 129 (Recv)\n"
    "node02:48210:48977 [2] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by "
    "remote peer node03<52144>\n"
    "node06:48216:49001 [6] transport/net_ib.cc:180 NCCL WARN NET/IB : mlx5_6:1 async fatal event "
    "on QP (0x7f2a3c0011f8): local work queue catastrophic error\n"
    "[rank5]:[E1121 07:15:08.715298746 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=88172, OpType=ALLREDUCE, NumelIn=16777216, "
    "NumelOut=16777216, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.\n"
).splitlines(keepends=True)


def info_line(rng: random.Random) -> str:
    """One line as NCCL prints it at level INFO: set-up of channels, and collectives."""
    host, gpu = rng.randrange(HOSTS), rng.randrange(GPUS)
    head = f"node{host:02d}:{48200 + gpu}:{48970 + gpu} [{gpu}] NCCL INFO "
    peer, channel = rng.randrange(GPUS), rng.randrange(16)
    comm = f"0x55d1c0{rng.randrange(16**6):06x}"
    kind = rng.randrange(100)
    if kind < 55:
        operation = rng.choice(("AllReduce", "AllGather", "ReduceScatter", "Broadcast"))
        return (
            f"{head}{operation}: opCount {rng.randrange(16**4):x} "
            f"sendbuff 0x7f{rng.randrange(16**10):010x} recvbuff 0x7f{rng.randrange(16**10):010x} "
            f"acc (nil) count {rng.randrange(1 << 26)} datatype 9 op 0 root 0 "
            f"comm {comm} [nranks=64] stream 0x55d1bf{rng.randrange(16**6):06x}\n"
        )
    if kind < 75:
        via = rng.choice(("P2P/CUMEM/read", "SHM/direct/direct", f"NET/IB/{gpu}/GDRDMA"))
        return f"{head}Channel {channel:02d}/0 : {gpu}[{gpu}] -> {peer}[{peer}] via {via}\n"
    if kind < 85:
        ring = " ".join(str((gpu + step) % GPUS) for step in range(GPUS))
        return f"{head}Channel {channel:02d}/16 : {ring}\n"
    if kind < 95:
        tree = " ".join(f"[{n}] {peer}/-1/-1->{gpu}->-1" for n in range(4))
        return f"{head}Trees {tree}\n"
    if kind < 98:
        return f"{head}Connected all rings, use ring PXN 0 GDR 1\n"
    return (
        f"{head}ncclCommInitRankConfig comm {comm} rank {host * GPUS + gpu} nranks 64 "
        f"cudaDev {gpu} nvmlDev {gpu} busId {gpu + 1:x}000 commId 0x245d75cdaf12704b - "
        "Init COMPLETE\n"
    )


def pieces(size: int, seed: int) -> Iterator[bytes]:
    """Blocks of INFO lines, drawn again and again, and the interesting lines among them."""
    rng = random.Random(seed)
    blocks = ["".join(info_line(rng) for _ in range(BLOCK_LINES)).encode() for _ in range(BLOCKS)]
    places = [size * share // 10 for share in (1, 4, 7, 9)]
    done = written = 0
    while written < size:
        block = rng.choice(blocks)[: size - written]
        block = block[: block.rfind(b"\n") + 1] or b"node00:1:1 [0] NCCL INFO end\n"
        yield block
        written += len(block)
        while done < len(places) and written >= places[done]:
            yield INTERESTING[done].encode()
            done += 1


def generate(log: Path, size: int, seed: int = 1) -> int:
    """Write the log; the number of its lines."""
    lines = 0
    with log.open("wb") as file:
        for piece in pieces(size, seed):
            file.write(piece)
            lines += piece.count(b"\n")
    return lines


def mtail_program() -> str:
    parts = ["counter interesting by kind"]
    for kind, wording in WORDINGS.items():
        parts.append(f'/{re.escape(wording)}/ {{\n  interesting["{kind}"]++\n}}')
    return "\n".join(parts) + "\n"


def found_by_mtail(printed: str) -> int:
    counts = re.findall(r"^interesting\{.*\} (\d+)$", printed, re.MULTILINE)
    return sum(int(count) for count in counts)


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, help="size of the log")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many counts")


def rows(args: Namespace) -> list[bench.Row]:
    megabytes = args.megabytes // 10 if args.quick else args.megabytes
    program = bench.monitor(args.command)
    mtail = bench.debian("mtail", "mtail")
    ripgrep = bench.debian("rg", "ripgrep")
    literals = [word for wording in WORDINGS.values() for word in ("-e", wording)]
    with tempfile.TemporaryDirectory(prefix="nccl-catch-up-") as name:
        folder = Path(name)
        lines = generate(folder / "full.log", megabytes * 1_000_000)
        (folder / "empty.log").touch()
        (folder / "programs").mkdir()
        (folder / "programs" / "nccl.mtail").write_text(mtail_program())

        def by_us(log: str) -> bench.Spent:
            flags = ["--once", "--no-companions", "--fail-on", "never"]
            return bench.timed([program, log, *flags], folder)

        def by_mtail(log: str) -> bench.Spent:
            flags = ["-one_shot", "-one_shot_format", "prometheus", "-progs", "programs"]
            return bench.timed([mtail, *flags, "-logs", log], folder)

        def by_ripgrep(log: str) -> bench.Spent:
            flags = ["-c", "--include-zero", "-F", *literals]
            return bench.timed([ripgrep, *flags, log], folder, codes=(0, 1))

        ours, its_ripgrep, its_mtail = bench.catch_ups(
            [by_us, by_ripgrep, by_mtail],
            full="full.log",
            empty="empty.log",
            repeats=args.repeats,
        )
    _check(ours, lines, its_ripgrep, its_mtail)
    what = f"catch-up on {megabytes} MB of NCCL INFO, {lines:,} lines, {len(INTERESTING)} matter"
    shown = f"{ours}, {megabytes / ours.seconds:,.0f} MB/s"
    found = []
    for tool, theirs, least in (
        ("mtail", its_mtail, MTAIL_TARGET),
        ("rg -c", its_ripgrep, RIPGREP_TARGET),
    ):
        ratio = bench.times_faster(ours, theirs)
        cells = (f"{what}: {tool}", f">= {least:.3g} x", shown, str(theirs), f"{ratio:.3g} x")
        found.append(bench.Row(*cells, met=ratio >= least))
    return found


def _check(
    ours: bench.Backfill, lines: int, its_ripgrep: bench.Backfill, its_mtail: bench.Backfill
) -> None:
    """A quick answer that is wrong does not count."""
    if f"Read {lines:,} lines" not in ours.full.output:
        raise bench.MeasurementError(f"ours did not read {lines:,} lines: {ours.full.output}")
    found = {
        "rg": int(its_ripgrep.full.output.strip() or 0),
        "mtail": found_by_mtail(its_mtail.full.output),
    }
    for tool, count in found.items():
        if count != len(INTERESTING):
            raise bench.MeasurementError(f"{tool} found {count}, not {len(INTERESTING)}")


if __name__ == "__main__":
    flags = bench.arguments("Catch-up on a big NCCL log.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
