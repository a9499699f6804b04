"""The attempts of a run: what lies between two starts in one file.

A launch that failed and the next one in the same log are two attempts; so are a launcher's
restarts. Causes, steps and ends belong to an attempt.
"""

import re

from ldlm_monitor.base.records import Event, Record, Sample
from ldlm_monitor.judge.run.endings import VICTIM_SECONDS, is_fatal
from ldlm_monitor.judge.run.file_rows import LEAST_FALL, Fall, FileSteps
from ldlm_monitor.logs.parse.meanings import meaning_of

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")  # of an error: pids, ports and addresses differ


class Attempts:
    """Counts the attempts of the run whose files' steps are in `steps`; `number` is that of the
    present one, from 1.

    `counts_in_epoch`: steps begin again with each epoch, so that they show no place in the run.
    `epoch`: that of the last sample with a step. `failed_alike`: the last attempts in a row that
    failed with the same error before a step. `relaunched`: attempts that are no restart:
    a person's, or after an end that was reached.
    """

    def __init__(self, steps: FileSteps) -> None:
        self._steps = steps
        self.number = 1
        self.counts_in_epoch = False
        self._launched = 1
        self.epoch: float | None = None
        self._restarting = False
        self._attending: set[int] = set()
        self._died: set[int | None] = set()  # ranks with an uncaught exception of their own
        self._error = ""  # of the last attempt that failed before a step
        self.failed_alike = self.relaunched = 0

    @property
    def restarts(self) -> int:
        """Attempts after the first that are not `relaunched`."""
        return self.number - 1 - self.relaunched

    def is_new_failure(self, event: Event, seconds: float, state: str) -> bool:
        """Whether an error, `seconds` after a crash or kill (`state`), is of another launch.

        Ranks report the failure of another one much later; but none dies twice, and of a job that
        was killed from outside none is left.
        """
        if seconds <= VICTIM_SECONDS or not is_fatal(event):
            return False
        return event.rank is None or state == "killed" or event.rank in self._died

    def note_death(self, event: Event) -> None:
        """Note an event that may be the uncaught exception of a rank."""
        if is_fatal(event) and not event.fields.get("logged"):
            self._died.add(event.rank)

    def note_failure(self, error: str) -> None:
        """Note that the present attempt failed before a step, with this text."""
        error = _NUMBER.sub("#", error)
        self.failed_alike = self.failed_alike + 1 if error == self._error else 1
        self._error = error

    def note_step(self) -> None:
        """Note that the present attempt took a step."""
        self.failed_alike, self._error = 0, ""

    def is_relaunched_by(self, record: Record) -> bool:
        """Whether a record is of a later launch in the same log: a program's start or settings, or
        an epoch that falls back by a whole one. Less may be a resume after a hang, whose silence
        counts.
        """
        if isinstance(record, Event):
            lived = record.position.path in self._steps.lived
            return lived and "first words" in meaning_of(record).words
        epoch = record.epoch if isinstance(record, Sample) else None
        return epoch is not None and self.epoch is not None and self.epoch - epoch >= 1

    def begins_with(self, event: Event, *, ended: bool, late: bool) -> bool:
        """Whether an event begins another attempt; `ended`: the present one is over.

        `late`: the event is a failure that does not follow from that of the present one.

        Every node and rank of a job reports its start in a file of its own: one counts only after
        steps or an end in the same file. torchrun's `restart_count` is the same on all nodes, and
        begins at 0 again with each launch.
        """
        fields, words = event.fields, meaning_of(event).words
        lived = event.position.path in self._steps.lived
        if "restart" in words:
            count = fields.get("restart_count")
            if isinstance(count, int):
                return self._begin(self._launched + count)
            self._restarting = self._restarting or bool(fields.get("state"))
            if "global_ranks" not in fields or not (self._restarting or lived):
                return False
            return self._begin(self.number + 1, launched=not self._restarting)
        if late or ("start" in words and (lived or (ended and "first words" in words))):
            return self._begin(self.number + 1, launched=True)
        return False

    def begins_at(self, sample: Sample, last: int | None, *, over: bool, where: Fall) -> bool:
        """Whether a sample with a step begins another attempt.

        `last`: the last step of its file and rank. `over`: an end came since, or a stall.
        `where` it falls to.
        """
        before, self.epoch = self.epoch, sample.epoch
        fall = 0 if last is None or sample.step is None else last - sample.step
        back = fall > max(1, LEAST_FALL * (last or 0))
        rises = before is not None and sample.epoch is not None and sample.epoch > before
        if back and where == "anew":
            return self._begin(self.number + 1, launched=True)
        if not back or rises or not over:
            self.counts_in_epoch |= back and (rises or where != "back")
            return False
        if self.counts_in_epoch and sample.epoch is None:
            return False
        return self._begin(self.number + 1, launched=True)

    def begins_at_epoch(self, sample: Sample, *, over: bool) -> bool:
        """As `begins_at`, for a sample without a step in a log that has none: its epoch falls."""
        before, self.epoch = self.epoch, sample.epoch if sample.epoch is not None else self.epoch
        falls = before is not None and sample.epoch is not None and sample.epoch < before
        return falls and over and self._begin(self.number + 1, launched=True)

    def is_left_by_all(self, event: Event) -> bool:
        """Whether no rank trains on after a `run_started` or `run_finished` event.

        An event without a rank, such as a banner, applies to all ranks. Ranks are counted only
        by events of the callback, which reports both: its rows have `pid` or `status`.
        """
        if event.rank is None or {"pid", "status"}.isdisjoint(event.fields):
            return True
        if "start" in meaning_of(event).words:
            self._attending.add(event.rank)
        else:
            self._attending.discard(event.rank)
        return not self._attending

    def _begin(self, number: int, *, launched: bool = False) -> bool:
        self._restarting = False
        if number <= self.number:
            return False
        self.number = number
        self._launched = number if launched else self._launched
        self._steps.lived.clear()
        self._attending.clear()
        self._died.clear()
        self.epoch = None
        self.counts_in_epoch = False
        return True
