"""What all definitions cost on lines that no pattern wants, but for four of a million.

The same NCCL INFO lines go through the parser with every packaged definition and with those of
MM-LDLM's trainer alone, in turn; the best round of each counts. CPU time, in one process.
"""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import nccl_catch_up
import side_by_side as bench
from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.logs.parse import Parser, definitions, triggers

TARGET_SHARE = 0.8
CHUNK_BYTES = 256 * 1024
OURS = "mmldlm"


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--megabytes", type=int, default=64, help="how much is scanned")
    parser.add_argument("--repeats", type=int, default=5, help="rounds, of which the best counts")


def chunks(size: int) -> list[Chunk]:
    """Lines of which but four mean anything, in chunks of whole lines."""
    found: list[Chunk] = []
    offset, line, rest = 0, 1, b""
    for piece in nccl_catch_up.pieces(size, seed=1):
        rest += piece
        while len(rest) >= CHUNK_BYTES:
            end = rest.rfind(b"\n", 0, CHUNK_BYTES) + 1
            found.append(Chunk("nccl.log", (1, 1, 0), offset, line, rest[:end]))
            offset, line, rest = offset + end, line + rest[:end].count(b"\n"), rest[end:]
    return found


def parser_of(files: Sequence[Path]) -> Parser:
    """A parser that knows these packaged files alone."""
    packaged = definitions.packaged_files
    triggers._compiled.cache_clear()
    try:
        definitions.packaged_files = lambda: tuple(files)
        return Parser()
    finally:
        definitions.packaged_files = packaged
        triggers._compiled.cache_clear()


def spent(parser: Parser, log: Sequence[Chunk]) -> float:
    origin = Origin("run")
    started = time.process_time()
    found = sum(len(parser.feed(chunk, origin, 0.0)) for chunk in log)
    took = time.process_time() - started
    if found > len(nccl_catch_up.INTERESTING):
        raise bench.MeasurementError(f"{found} records in lines that mean nothing")
    return took


def rows(args: Namespace) -> list[bench.Row]:
    megabytes = max(args.megabytes // 10, 8) if args.quick else args.megabytes
    log = chunks(megabytes * 1_000_000)
    every = definitions.packaged_files()
    own = [path for path in every if path.stem == OURS]
    parsers = {"all": parser_of(every), "own": parser_of(own)}
    best = dict.fromkeys(parsers, float("inf"))
    for _ in range(args.repeats):
        for name, parser in parsers.items():
            best[name] = min(best[name], spent(parser, log))
    share = best["own"] / best["all"]
    speeds = {name: megabytes / seconds for name, seconds in best.items()}
    return [
        bench.Row(
            f"scan of {megabytes} MB that mean nothing: {len(every)} files of definitions, "
            f"against MM-LDLM's {len(own)}",
            f">= {TARGET_SHARE:g} of the speed",
            f"{speeds['all']:.0f} MB/s",
            f"{speeds['own']:.0f} MB/s",
            f"{share:.2f} x",
            met=share >= TARGET_SHARE,
        )
    ]


if __name__ == "__main__":
    flags = bench.arguments("The scan with all definitions and with few.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
