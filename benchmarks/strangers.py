"""What the monitor makes of logs it was not tuned to: python -m benchmarks.strangers LOGS LIST...

LIST says what a reader saw in logs of the folder LOGS: which failures, which alerts would rightly
name them, which lines give the training loss, and whether the training reached its end
(`tests/together/corpus/strangers.json`); some say which values stand there, and what one would do
at the end (`strangers_9.json`). Each log that is there with the listed hash is replayed
with the packaged rules and compared. An exception of the product is a finding and stops nothing.
"""

import hashlib
import json
import re
import sys
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.stranger_values import Counts, count_found, same, value_figures, word_of
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.records import Sample, SampleBlock
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.service.config import Settings

UNCLEAR = "UNCLEAR"  # a decision on which a reader would ask for more than the log
ENDED = "TrainingCrashed"
"""The alert that contradicts no failure: whatever ended a training may be named as its end."""
BLOCK = 3
"""Lines from the first line of a block to its loss. Trainers print a step on up to four lines.

A table of a name and a value in each row is a block of any height.
"""
ROW = re.compile(r"\s*\|.*\|\s*$")
NOT_TRAINING = re.compile(r"(?i)(?<![a-z])(?:val(?!ue)|valid|validation|test|eval)")
LOSS_WORD = re.compile(r"(?i)loss|cost")
NAMED = re.compile(
    r"(?i)(?P<name>\D*?)(?P<number>[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan\b|inf\b))"
)

Truth = dict[str, Any]
Losses = dict[int, list[float]]  # values of the loss by line (1-based)


@dataclass(slots=True)
class Judged:
    """One log: `found` of `failures` are named by an accepted alert, `ranked` of `ranks` rightly.

    `false`: serious alerts that the truth contradicts. `losses`: lines that give a loss (None: the
    log has none), `understood`: of these. `misnamed`: lines of samples with a loss that they do
    not give. `faults`: records that made the product raise. `confirmed`: titles of first causes
    that are called confirmed, `unproven`: those that the truth does not have. `error`: what ended
    the replay. `values`: by printed name, found and all. `decision`: the word on the last run,
    `decided`: whether it is right (None: the truth has none, or no clear one).
    """

    file: str
    completed: bool | None
    failures: int
    ranks: int
    losses: int | None
    found: int = 0
    ranked: int = 0
    missed: list[str] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    understood: int = 0
    misnamed: list[int] = field(default_factory=list)
    state: str = ""
    faults: int = 0
    confirmed: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    error: str = ""
    values: Counts = field(default_factory=dict)
    decision: str = ""
    decided: bool | None = None

    @property
    def share(self) -> float | None:
        """The fraction of loss lines that were understood; None for a log without losses."""
        return self.understood / self.losses if self.losses else None


def judge(truth: Truth, logs: Path) -> Judged:
    """One log against its truth. Never raises for what the product does with the log."""
    failures, losses = truth["failures"], truth["loss"]["lines"] if truth["loss"] else None
    ranks = sum(each["rank"] is not None for each in failures)
    judged = Judged(truth["file"], truth["completed"], len(failures), ranks, losses)
    counts = truth["values"]["counts"] if "values" in truth else {}
    judged.values = {name: (0, count) for name, count in counts.items()}
    judged.decided = None if truth.get("decision", UNCLEAR) == UNCLEAR else False
    try:
        play(judged, truth, logs / truth["file"])
    except Exception as error:  # noqa: BLE001 whatever the product raises is a finding
        judged.error = f"{type(error).__name__}: {error}"
    return judged


def play(judged: Judged, truth: Truth, path: Path) -> None:
    """Replay the log on its own, and note what came of it."""
    parser = Parser()
    parser.kept = []
    replay = Replay(Settings(files=(str(path),), companions=False), parser=parser)
    fired = [each for each in replay.transitions() if each.state == "firing"]
    runs = replay.snapshot().runs
    for incident in replay.snapshot().incidents:
        if incident.confidence == "confirmed":
            judged.confirmed.append(incident.title)
            judged.unproven += [] if is_true(incident, truth) else [incident.title]
    if runs:
        judged.state, judged.decision = runs[-1].state, word_of(runs[-1])
    if judged.decided is not None:
        judged.decided = judged.decision in (truth["decision"], *truth.get("decision_also", ()))
    judged.faults = parser.counters.faults
    content, samples = path.read_bytes(), [*samples_of(parser.kept)]
    wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = content.decode("utf-16" if wide else "utf-8", "replace")
    judge_losses(judged, truth["loss"] or {}, text.split("\n"), samples)
    if judged.values:
        judged.values = count_found(truth["values"]["patterns"], text, samples)
    ranks: dict[str, set[str | None]] = defaultdict(set)
    for each in fired:
        ranks[each.alert].add(each.labels.get("rank"))
    judged.alerts = sorted(ranks)
    accepted = {*truth.get("also", ()), *([ENDED] if truth["failures"] else ())}
    for failure in truth["failures"]:
        accepted.update(failure["alerts"])
        named = set().union(*(ranks.get(name, ()) for name in failure["alerts"]))
        judged.found += bool(named)
        judged.missed += [] if named else [failure["kind"]]
        judged.ranked += failure["rank"] is not None and str(failure["rank"]) in named
    serious = {each.alert for each in fired if each.labels.get("severity") in ("error", "critical")}
    judged.false = sorted(serious - accepted)


def is_true(incident: IncidentView, truth: Truth) -> bool:
    """Whether the truth has a failure of the first cause's kind, or of its alerts, on its rank.

    A truth without a rank accepts any rank, but for a rank beside which another one is true.
    """
    root, alerts = incident.root, {*incident.alerts}
    near = [
        each
        for each in truth["failures"]
        if each["kind"] == root.kind or alerts & {*each["alerts"], *truth.get("also", ())}
    ]
    return any(each["rank"] in (None, root.rank) for each in near)


def samples_of(records: Iterable[Any]) -> Iterator[Sample]:
    for record in records:
        for each in record.samples() if isinstance(record, SampleBlock) else (record,):
            if isinstance(each, Sample):
                yield each


def judge_losses(
    judged: Judged, truth: Truth, lines: Sequence[str], samples: Iterable[Sample]
) -> None:
    """A sample counts for its line, and for a loss at most `BLOCK` lines below."""
    expected, found = expected_losses(truth, lines), losses_of(samples, "ambiguous" in truth)
    for line, values in expected.items():
        first = line - BLOCK
        while ROW.match(lines[first + BLOCK - 1]) and first > 0:
            first -= 1
        near = [value for at in range(first, line + 1) for value in found.get(at, ())]
        judged.understood += any(same(one, other) for one in values for other in near)
    for line, values in () if "ambiguous" in truth else found.items():
        last = line
        while last < len(lines) and ROW.match(lines[last]):
            last += 1
        last = max(last, line + BLOCK)
        right = [value for at in range(line, last + 1) for value in expected.get(at, ())]
        wrong = [each for each in values if not any(same(each, one) for one in right)]
        text = "".join(lines[line - 1 : line])
        if wrong and (line in expected or not may_be_loss(text, truth, wrong)):
            judged.misnamed.append(line)


def may_be_loss(text: str, truth: Truth, values: Sequence[float]) -> bool:
    """Whether a line outside the truth's pattern may give training losses, as an average does.

    `values`: what was named a loss. Of a line that reports an evaluation too, the words before
    each number count: those after the number before it.
    """
    if "not" in truth and re.search(truth["not"], text):
        return False
    if "also" in truth and re.search(truth["also"], text):
        return True
    if not NOT_TRAINING.search(text):
        return LOSS_WORD.search(text) is not None
    named = [
        float(each["number"])
        for each in NAMED.finditer(text)
        if LOSS_WORD.search(each["name"]) and not NOT_TRAINING.search(each["name"])
    ]
    return all(any(same(value, one) for one in named) for value in values)


def expected_losses(truth: Truth, lines: Sequence[str]) -> Losses:
    """The losses by the truth's pattern. A line gives several where bars have no newlines."""
    found: Losses = {}
    for at, text in enumerate(lines if truth else (), 1):
        for part in text.split("\r"):
            for each in re.finditer(truth["pattern"], part):
                found.setdefault(at, []).append(float(each["loss"].replace(",", "")))
    return found


def losses_of(samples: Iterable[Sample], ambiguous: bool) -> Losses:
    """The values named `loss` of all samples; where it is ambiguous, those of every loss."""
    found: Losses = {}
    for each in samples:
        for name, value in each.values.items():
            if name == "loss" or (ambiguous and "loss" in name):
                found.setdefault(each.position.line, []).append(value)
    return found


def judge_present(truths: Iterable[Truth], logs: Path, jobs: int = 2) -> list[Judged]:
    """Judge the logs that are in the folder with the hash that their truth has."""
    files = (path for path in logs.iterdir() if path.is_file())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    here = [each for each in truths if found.get(each["file"]) == each["sha256"]]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(partial(judge, logs=logs), here))


def totals(logs: Sequence[Judged]) -> dict[str, str]:
    """The figures over all logs."""
    shares = [each.share for each in logs if each.share is not None]
    calm = sum(len(each.false) for each in logs if not each.failures)
    decided = [each.decided for each in logs if each.decided is not None]
    ended = [[each.state for each in logs if each.completed is word] for word in (True, False)]
    figures: dict[str, tuple[float, ...]] = {
        "failures found": (sum(e.found for e in logs), sum(e.failures for e in logs)),
        "rank right": (sum(e.ranked for e in logs), sum(e.ranks for e in logs)),
        "false alerts on logs without a failure, of all": (calm, sum(len(e.false) for e in logs)),
        "logs with a false alert": (sum(bool(e.false) for e in logs), len(logs)),
        "loss lines understood on average, in %": (round(100 * fmean(shares or [0]), 1), 100),
        "loss lines understood, of all": (
            sum(e.understood for e in logs),
            sum(e.losses or 0 for e in logs),
        ),
        "logs of which no loss is understood": (shares.count(0.0), len(shares)),
        "lines of misnamed losses": (sum(len(e.misnamed) for e in logs),),
        "logs with a misnamed loss": (sum(bool(e.misnamed) for e in logs), len(logs)),
        "finished, of completed": (ended[0].count("finished"), len(ended[0])),
        "finished, of not completed": (ended[1].count("finished"), len(ended[1])),
        "logs with an exception": (sum(bool(e.error) for e in logs), len(logs)),
        "records that made the product raise": (sum(e.faults for e in logs),),
        "right, of confirmed causes": (
            sum(len(e.confirmed) - len(e.unproven) for e in logs),
            sum(len(e.confirmed) for e in logs),
        ),
        **value_figures(each.values for each in logs),
        "decisions right": (sum(decided), len(decided)),
    }
    return {name: " of ".join(map(str, figure)) for name, figure in figures.items()}


def table(logs: Sequence[Judged]) -> str:
    """A row for each log, then one for each figure."""
    head = "| log | found | ranks | loss lines | misnamed | completed | state | wrong |"
    rows = [head, "| --- " * 8 + "|"]
    for each in logs:
        share = "-" if each.share is None else f"{100 * each.share:.0f} %"
        wrong = [f"missed {name}" for name in each.missed]
        wrong += [f"false {name}" for name in each.false]
        wrong += [f"not confirmed by its truth: {title}" for title in each.unproven]
        wrong += [f"decision {each.decision or 'none'}"] if each.decided is False else []
        cells = (each.file, f"{each.found}/{each.failures}", f"{each.ranked}/{each.ranks}", share)
        more = (len(each.misnamed), each.completed, each.state, "; ".join([*wrong, each.error]))
        rows.append("| " + " | ".join(map(str, (*cells, *more))) + " |")
    rows += ["", "| figure | value |", "| --- | --- |"]
    return "\n".join(rows + [f"| {name} | {value} |" for name, value in totals(logs).items()])


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("logs", type=Path)
    parser.add_argument("lists", type=Path, nargs="+", metavar="LIST")
    parser.add_argument("--json", action="store_true", help="one object with logs and totals")
    parser.add_argument("--half", help='only entries of this half, for example "held out"')
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    args = parser.parse_args()
    truths = [each for path in args.lists for each in json.loads(path.read_text("utf-8"))]
    truths = [each for each in truths if args.half in (None, each.get("half"))]
    found = judge_present(truths, args.logs, args.jobs)
    as_json = json.dumps({"logs": [asdict(each) for each in found], "totals": totals(found)})
    print(as_json if args.json else f"{len(found)} of {len(truths)} logs\n\n{table(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
