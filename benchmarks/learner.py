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
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Sample
from ldlm_monitor.logs.parse import Parser, definitions, load_formats, triggers
from ldlm_monitor.logs.parse.coverage import CoverageReader

MADE_LINES = 60
"""Lines of a log made of one example: enough that a few lines before acceptance weigh little."""
SHOWN = 3  # lines shown of a log with --format
HEADERS = {
    ("ultralytics", "detection epoch"): (
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
    ),
    ("deepspeed", "chat perplexity"): ("***** Evaluating perplexity, Epoch 2/3 *****",),
    ("deepspeed", "chat preference"): ("***** Evaluating rewards, Epoch 2/3 *****",),
}
"""Lines that precede each of an example in every log of the trainer."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\d:]*:)")
_NONFINITE = re.compile(r"(?i)(?<![\w.])[-+]?(?:nan|inf(?:inity)?)(?!\w)")
_TRUTHS = ("loss", "eval_loss")


Odd: TypeAlias = tuple[str, Sample, list[Sample]]
"""What is wrong with a sample, the sample, and what was found at its place."""


@dataclass
class Log:
    """A log, and its samples with the format that gave each, by all definitions."""

    name: str
    text: bytes
    truth: list[tuple[str, Sample]]


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
                found.append((reader._reader or reader._home(each), each))
        count(records)

    reader._count = noted
    reader.feed(chunk, Origin("run"), 0.0)
    reader.finish()
    return found


def judge(truth: Iterable[Sample], learned: Iterable[Sample]) -> tuple[Found, list[Odd]]:
    """Compare by place in the log; also returns what is missing or wrong."""
    found, odd = Found(), []
    by_offset: dict[int, list[Sample]] = {}
    for each in learned:
        by_offset.setdefault(each.position.offset, []).append(each)
    for sample in truth:
        others = by_offset.get(sample.position.offset, [])
        stepped = any(each.step == sample.step for each in others)
        had = [any(_has(each, *loss) for each in others) for loss in _losses(sample)]
        wrong = any(_wrong(each, sample) for each in others)
        found.steps += sample.step is not None
        found.steps_found += sample.step is not None and stepped
        found.losses += len(had)
        found.losses_found += sum(had)
        found.wrong += wrong
        if wrong or not all(had) or (sample.step is not None and not stepped):
            odd.append(("WRONG" if wrong else "missed", sample, others))
    odd.sort(key=lambda each: each[0])
    return found, odd


def _losses(sample: Sample) -> Iterator[tuple[str, float]]:
    for name, value in sample.values.items():
        if name in _TRUTHS or (name.startswith("loss_") and name != "loss_scale"):
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
    """Whether a step or a loss contradicts the definition.

    A loss does if the definition has another number under its name, its number under the other
    name, or no loss at all. One of two losses of a line that only the learner reads does not.
    """
    if None not in (learned.step, truth.step) and learned.step != truth.step:
        return True
    known = dict(_losses(truth))
    for name, other in (_TRUTHS, _TRUTHS[::-1]):
        value = learned.values.get(name)
        if value is None:
            continue
        if name in known and not any(_same(value, each) for each in known.values()):
            return True
        if name not in known and (not known or (other in known and _same(known[other], value))):
            return True
    return False


def made_logs(name: str) -> Iterator[bytes]:
    """A log for each example of a definition's lines and bars."""
    path = next(path for path in definitions.packaged_files() if path.stem == name)
    loaded = load_formats(path)
    for entry in (*loaded.lines, *loaded.bars):
        for example in entry.examples:
            header = HEADERS.get((name, entry.name), ())
            lines = [each for at in range(MADE_LINES) for each in (*header, _moved(example, at))]
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


def measured(name: str, logs: Sequence[Log], every: Parser) -> tuple[Found, list[str]]:
    """The figures of one format over whole logs, and the lines that were not found or are wrong."""
    without = parser_without((name, "generic"))
    made = [
        Log(f"made/{name}-{number}.log", text, samples(every, text, f"made/{name}-{number}.log"))
        for number, text in enumerate(made_logs(name))
    ]
    total, lines = Found(), []
    for log in (*logs, *made):
        truth = [each for home, each in log.truth if home == name]
        if not truth:
            continue
        learned = [each for _, each in samples(without, log.text, log.name)]
        part, odd = judge(truth, learned)
        total.add(part)
        split = log.text.split(b"\n")
        for title, each, got in odd[:SHOWN]:
            text = split[each.position.line - 1][:200]
            lines.append(f"{title} {log.name}:{each.position.line}: {text!r}")
            lines += [f"    {one.step} {one.epoch} {one.values}" for one in (each, *got)]
    return total, lines


def logs_of(folders: Iterable[Path], every: Parser) -> list[Log]:
    """The text logs in folders."""
    paths = (path for folder in folders for path in sorted(folder.rglob("*")))
    texts = ((str(path), path.read_bytes()) for path in paths if path.suffix in (".log", ".out"))
    return [Log(name, text, samples(every, text, name)) for name, text in texts]


def main() -> int:
    flags = ArgumentParser(description=__doc__)
    flags.add_argument("corpora", nargs="*", type=Path, help="folders of logs")
    flags.add_argument("--format", help="only this format, with lines that are missed or wrong")
    args = flags.parse_args()
    every = parser_without(())
    logs = logs_of(args.corpora, every)
    names = [path.stem for path in definitions.packaged_files() if path.parent.name == "formats"]
    halves: dict[str, list[Found]] = {"even": [], "odd": []}
    print("| format | steps | found | losses | found | wrong |\n" + "| --- " * 6 + "|")
    for place, name in enumerate(names, start=1):
        if name == "generic" or args.format not in (None, name):
            continue
        found, odd = measured(name, logs, every)
        halves["odd" if place % 2 else "even"].append(found)
        cells = (found.steps, found.steps_found, found.losses, found.losses_found, found.wrong)
        print(f"| {name} | {' | '.join(map(str, cells))} |", flush=True)
        if args.format:
            print(*odd, sep="\n")
    for half, parts in halves.items():
        if parts:
            print(f"{half} places: {_summary(parts)}")
    print(f"all: {_summary([*halves['even'], *halves['odd']])}")
    return 0


def _summary(parts: Sequence[Found]) -> str:
    whole = Found()
    for part in parts:
        whole.add(part)
    mean = sum(part.share for part in parts) / len(parts)
    return f"{whole.share:.1%} found (mean of formats {mean:.1%}), {whole.wrong} wrong"


if __name__ == "__main__":
    sys.exit(main())
