"""Coverage-guided fuzzing of splitting, framing and parsing: no exception, no hang, bounded memory.

    python tests/logs/fuzz/fuzz_parse.py [--seconds 600] [--corpus FOLDER]

It begins with the examples of every packaged definition, JSON rows, a CSV table, event files,
a metric of MLflow and logs of W&B. The first byte of an input chooses what the file is called,
the second how it comes in pieces. libFuzzer (through atheris) stops at the first exception, at
an input that takes more than 10 s, and at 1 GiB of memory, and keeps that input as `crash-*`,
`timeout-*` or `oom-*` in the folder that it was started from.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ldlm_monitor"]):
    from ldlm_monitor.base.chunk import Chunk, Origin
    from ldlm_monitor.logs.parse import Parser
    from ldlm_monitor.logs.parse.definitions import load, packaged_files
    from ldlm_monitor.logs.source.split import Splitter

EVENT_FILES = Path(__file__).resolve().parents[2] / "logs/event_files"
NAMES = (
    "train.log",
    "training_log.jsonl",
    "health_rank0.jsonl",
    "metrics.csv",
    "mlruns/0/0123456789abcdef0123456789abcdef/metrics/train/loss",
    "events.out.tfevents.1.host.1.0",
    "wandb/run-20261121_211546-x/run-x.wandb",
)
PIECES = (1 << 20, 4096, 61, 7, 1)
MAX_BYTES = 8192
RECORDS_A_BYTE = 2
PARSER = Parser()


def chunks(name: str, data: bytes, piece: int) -> Iterator[Chunk]:
    splitter = Splitter(name, (1, 1, 0))
    for at in range(0, len(data), piece):
        yield from splitter.feed(data[at : at + piece], 0.0)
        if splitter.peek_at() is not None:
            yield splitter.peek()
    yield splitter.finish()


def try_input(data: bytes) -> None:
    """Parse one input as a file of its own; what is promised of any file is asserted."""
    if len(data) < 2:
        return
    name, piece, content = NAMES[data[0] % len(NAMES)], PIECES[data[1] % len(PIECES)], data[2:]
    now, end, count = 0.0, 0, 0
    for chunk in chunks(name, content, piece):
        now += 0.5
        if not chunk.peek:
            assert chunk.offset >= end
            end = chunk.offset + len(chunk.data)
            passed = content[: chunk.offset]
            assert chunk.framed or chunk.line == passed.count(b"\n") + 1
        for record in PARSER.feed(chunk, Origin("run"), now) + PARSER.tick(now):
            count += 1
            assert 0 <= record.position.offset <= len(content)
            assert record.position.line >= 1
    PARSER.finish(name)
    assert end <= len(content)
    assert count <= 100 + RECORDS_A_BYTE * len(content)


def seeds() -> Iterator[bytes]:
    for path in packaged_files():
        loaded = load(path)
        for entries in (loaded.bars, loaded.lines, loaded.events):
            for entry in entries:
                yield from (b"\0\0" + each.line.encode() + b"\n" for each in entry.examples)
    yield b'\1\0{"epoch": 0, "step": 7, "loss": 2.5, "lr": NaN, "type": null}\n' * 3
    yield b'\2\0{"schema": "ldlm.health/1", "type": "run", "run": "r", "rank": 0, "config": {}}\n'
    yield b"\3\0epoch,step,train_loss,lr\n0,1,2.5,\n0,2,nan,1e-3\n"
    yield b"\4\x001700000000250 2.5 10\n1700000001250 nan 20 data 0f3a\n"
    for path in EVENT_FILES.glob("*.tfevents.*"):
        yield b"\5\0" + path.read_bytes()
    for path in EVENT_FILES.glob("*.wandb"):
        yield b"\6\0" + path.read_bytes()


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--seconds", type=int, default=600)
    flags.add_argument("--corpus", type=Path, help="keep what reached new code here")
    given = flags.parse_args()
    if given.corpus is None:
        # libFuzzer ends the process; somebody has to clear up after it.
        with tempfile.TemporaryDirectory() as own:
            again = [sys.executable, __file__, "--seconds", str(given.seconds), "--corpus", own]
            sys.exit(subprocess.run(again, check=False).returncode)
    given.corpus.mkdir(exist_ok=True)
    for number, seed in enumerate(seeds()):
        (given.corpus / f"seed-{number:04d}").write_bytes(seed)
    limits = [
        f"-max_total_time={given.seconds}",
        f"-max_len={MAX_BYTES}",
        "-timeout=10",
        "-rss_limit_mb=1024",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    atheris.Setup([sys.argv[0], *limits, str(given.corpus)], try_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
