"""What the learner of unknown formats finds where a format's definition is left out.

For each format, the records of its logs with all definitions are the truth; the same logs are
then parsed without the format's file and without `generic.yml`. A step is found if the line has
it. A loss is found if its number is given as `loss` (or a component, `loss_*`), an evaluation's
as `eval_loss`. Wrong is a number under a canonical name which the definition gives to another.

Logs are those of the corpora; for each line of a definition that no corpus has, a log of 60
lines is made from its examples, in which counters grow and other numbers move.
"""

import math
import re
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ldlm_monitor.model.chunk import Chunk, Origin
from ldlm_monitor.model.records import Sample
from ldlm_monitor.parse import Parser, definitions, load_formats, triggers
from ldlm_monitor.parse.coverage import CoverageReader

MADE_LINES = 60
"""Lines of a log made of one example: enough that a few lines before acceptance weigh little."""
MIN_CORPUS = 10
"""Samples of a line below which a log of its example is made: fewer are an excerpt."""
HEADERS = {
    ("ultralytics", "detection epoch"): (
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
    )
}
"""Lines that precede those of an example in every log of the trainer."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\d:]*:)")
_NONFINITE = re.compile(r"(?i)(?<![\w.])[-+]?(?:nan|inf(?:inity)?)(?!\w)")
_TRUTHS = ("loss", "eval_loss")


@dataclass
class Found:
    steps: int = 0
    steps_found: int = 0
    losses: int = 0
    losses_found: int = 0
    wrong: int = 0

    @property
    def share(self) -> float:
        whole = self.steps + self.losses
        return (self.steps_found + self.losses_found) / whole if whole else 1.0

    def add(self, other: "Found") -> None:
        for name in ("steps", "steps_found", "losses", "losses_found", "wrong"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("corpora", nargs="*", type=Path, help="folders of logs")
    parser.add_argument("--format", help="only this format, with the lines not found")


def parser_without(left_out: Sequence[str]) -> Parser:
    """A parser that lacks these packaged formats."""
    every = definitions.packaged_files
    lacking = {definitions.PACKAGED / "formats" / f"{name}.yml" for name in left_out}
    kept = tuple(path for path in every() if path not in lacking)
    triggers._compiled.cache_clear()
    try:
        definitions.packaged_files = lambda: kept
        return Parser()
    finally:
        definitions.packaged_files = every
        triggers._compiled.cache_clear()


def samples(parser: Parser, text: bytes, name: str) -> list[tuple[str, Sample]]:
    """Each sample of a text with the format that gave it."""
    reader = CoverageReader(parser, name)
    chunk = Chunk(name, (1, 1, 0), 0, 1, text, final=True)
    found: list[tuple[str, Sample]] = []
    count = reader._count

    def noted(records: Iterable[object]) -> None:
        records = list(records)
        for each in records:
            if isinstance(each, Sample):
                found.append((reader._reader or reader._home(each.position.offset), each))
        count(records)

    reader._count = noted
    reader.feed(chunk, Origin("run"), 0.0)
    reader.finish()
    return found


def judge(truth: Iterable[Sample], learned: Iterable[Sample]) -> tuple[Found, list[Sample]]:
    """Compare by line and place in it."""
    found, missed = Found(), []
    by_offset: dict[int, list[Sample]] = {}
    for each in learned:
        by_offset.setdefault(each.position.offset, []).append(each)
    for sample in truth:
        others = by_offset.get(sample.position.offset, [])
        before = found.steps + found.losses - found.steps_found - found.losses_found
        if sample.step is not None:
            found.steps += 1
            found.steps_found += any(each.step == sample.step for each in others)
        for name, value in _losses(sample):
            found.losses += 1
            found.losses_found += any(_has(each, name, value) for each in others)
        found.wrong += any(_wrong(each, sample) for each in others)
        after = found.steps + found.losses - found.steps_found - found.losses_found
        if after > before:
            missed.append(sample)
    return found, missed


def _losses(sample: Sample) -> Iterator[tuple[str, float]]:
    for name, value in sample.values.items():
        if name in _TRUTHS or name.startswith("loss_") and name != "loss_scale":
            yield name, value


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other)


def _has(learned: Sample, name: str, value: float) -> bool:
    names = (
        [name]
        if name == "eval_loss"
        else ["loss", *(each for each in learned.values if each.startswith("loss_"))]
    )
    return any(each in learned.values and _same(learned.values[each], value) for each in names)


def _wrong(learned: Sample, truth: Sample) -> bool:
    """Whether a loss is one that the definition calls otherwise, or a step is another number."""
    if None not in (learned.step, truth.step) and learned.step != truth.step:
        return True
    known = {value for _, value in _losses(truth)}
    for name in _TRUTHS:
        value = learned.values.get(name)
        if value is None or name in truth.values:
            continue
        if not any(_same(value, each) for each in known) or (name == "eval_loss"):
            return True
        if name == "loss" and "eval_loss" in truth.values:
            return True
    return False


def made_logs(name: str) -> Iterator[bytes]:
    """A log for each example of a definition's lines and bars."""
    path = next(path for path in definitions.packaged_files() if path.stem == name)
    loaded = load_formats(path)
    for entry in (*loaded.lines, *loaded.bars):
        for example in entry.examples:
            lines = [_moved(example, index) for index in range(MADE_LINES)]
            lines[:0] = HEADERS.get((name, entry.name), ())
            yield "\n".join(lines).encode() + b"\n"


def _moved(example: definitions.SampleExample, index: int) -> str:
    """The example's text as its `index`-th line: counters grow, numbers with a fraction move."""
    wave = 1 + 0.1 * math.sin(index) - 0.004 * index

    def moved(match: re.Match[str]) -> str:
        text = match[0]
        if example.step is not None and text.isdigit() and int(text) == example.step:
            return str(example.step + index).zfill(len(text) if text[0] == "0" else 0)
        if example.epoch is not None and text.isdigit() and int(text) == example.epoch:
            return str(int(example.epoch) + (index if example.step is None else 0))
        mantissa, mark, exponent = text.partition("e")
        if "." in mantissa:
            digits = len(mantissa.partition(".")[2])
            return f"{float(mantissa) * wave:.{digits}f}{mark}{exponent}"
        return text

    return _NUMBER.sub(moved, _NONFINITE.sub("1.500", example.line))


def measured(name: str, logs: Sequence[tuple[Path, bytes]]) -> tuple[Found, list[str]]:
    """The figures of one format over whole logs, and the lines that were not found."""
    every, without = parser_without(()), parser_without((name, "generic"))
    total, lines = Found(), []
    used = 0
    texts: list[tuple[str, bytes]] = [(str(path), text) for path, text in logs]
    for number, text in enumerate([*texts, *((f"made/{i}.log", t) for i, t in enumerate(made_logs(name)))]):
        place, data = text
        if place.startswith("made/") and used >= 3:
            pass
        truth = [each for home, each in samples(every, data, f"{place}-{number}") if home == name]
        if not truth:
            continue
        learned = [each for _, each in samples(without, data, f"{place}-{number}")]
        part, missed = judge(truth, learned)
        total.add(part)
        used += 1
        split = data.split(b"\n")
        for each in missed[:3]:
            got = [s for s in learned if s.position.offset == each.position.offset]
            lines.append(f"{place}:{each.position.line}: {split[each.position.line - 1][:200]!r} "
                         f"step {each.step} {dict(list(_losses(each))[:4])} got {[(s.step, s.values) for s in got][:2]}")
        wrong = [each for each in truth if any(_wrong(s, each) for s in learned if s.position.offset == each.position.offset)]
        for each in wrong[:2]:
            got = [s for s in learned if s.position.offset == each.position.offset]
            lines.append(f"WRONG {place}:{each.position.line}: {split[each.position.line - 1][:200]!r} truth {each.step} {each.values} got {[(s.step, s.values) for s in got]}")
    return total, lines


def logs_of(folders: Iterable[Path]) -> list[tuple[Path, bytes]]:
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".log", ".out", ".txt") and path.is_file():
                found.append((path, path.read_bytes()))
    return found


def main() -> int:
    flags = ArgumentParser(description="What the learner finds without a format's definition.")
    add_flags(flags)
    args = flags.parse_args()
    logs = logs_of(args.corpora)
    names = [path.stem for path in definitions.packaged_files() if path.parent.name == "formats"]
    halves = {0: Found(), 1: Found()}
    shares: dict[int, list[float]] = {0: [], 1: []}
    print("| format | steps | found without | losses | found without | wrong |")
    print("| --- | --- | --- | --- | --- | --- |")
    for place, name in enumerate(names, start=1):
        if name == "generic" or (args.format and name != args.format and args.format != "dev"):
            continue
        if args.format == "dev" and place % 2:
            continue
        found, missed = measured(name, logs)
        halves[place % 2].add(found)
        shares[place % 2].append(found.share)
        print(f"| {name} | {found.steps} | {found.steps_found} | {found.losses} | {found.losses_found} | {found.wrong} |", flush=True)
        if args.format:
            print(*missed, sep="\n")
    for half, found in halves.items():
        if shares[half]:
            mean = sum(shares[half]) / len(shares[half])
            print(f"{'odd' if half else 'even'} places: steps {found.steps_found} of {found.steps}, losses {found.losses_found} of {found.losses}, {found.share:.1%} of both (mean of formats {mean:.1%}), {found.wrong} wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
