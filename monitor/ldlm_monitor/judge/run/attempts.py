"""The attempts of a run: what lies between two starts in one file.

A launch that failed and the next one in the same log are two attempts; so are a launcher's
restarts. Causes, steps and ends belong to an attempt.
"""

from ldlm_monitor.base.records import Event, Record, Sample
from ldlm_monitor.judge.run.endings import VICTIM_SECONDS, is_fatal
from ldlm_monitor.judge.run.file_rows import FileSteps
from ldlm_monitor.logs.parse.meanings import meaning_of

LEAST_FALL = 0.01
"""A step that falls by this share of the last one, and by more than 1, falls back. A choice: bars
and lines of one file count from 1 and from 0, and ranks print at slightly different steps."""


def is_new_failure(event: Event, seconds: float) -> bool:
    """Whether an error, `seconds` after a crash or kill, is of another launch in the same log.

    Only in a log of a single process: ranks report the failure of another one much later.
    """
    return event.rank is None and seconds > VICTIM_SECONDS and is_fatal(event)


class Attempts:
    """Counts the attempts of the run whose files' steps are in `steps`; `number` is that of the
    present one, from 1.

    `counts_in_epoch`: steps begin again with each epoch, so that they show no place in the run.
    `epoch`: that of the last sample with a step.
    """

    def __init__(self, steps: FileSteps) -> None:
        self._steps = steps
        self.number = 1
        self.counts_in_epoch = False
        self._launched = 1
        self.epoch: float | None = None
        self._restarting = False
        self._attending: set[int] = set()

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

    def begins_at(self, sample: Sample, last: int | None, *, over: bool) -> bool:
        """Whether a sample with a step begins another attempt.

        `last`: the last step of its file and rank. `over`: an end came since.
        """
        before, self.epoch = self.epoch, sample.epoch
        fall = 0 if last is None or sample.step is None else last - sample.step
        back = fall > max(1, LEAST_FALL * (last or 0))
        rises = before is not None and sample.epoch is not None and sample.epoch > before
        if not back or rises or not over:
            self.counts_in_epoch = self.counts_in_epoch or back
            return False
        if self.counts_in_epoch and sample.epoch is None:
            return False
        return self._begin(self.number + 1, launched=True)

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
        self.epoch = None
        self.counts_in_epoch = False
        return True
