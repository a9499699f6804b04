"""Where a value of a run comes from: of several files that tell it, the best one counts."""

from enum import IntEnum

from ldlm_monitor.model.records import Sample


class Source(IntEnum):
    """Where a value comes from, the best first (contract: "One value, one source")."""

    CALLBACK = 0
    JSONL = 1
    TRACKER = 2
    TEXT = 3
    BAR = 4


EVENT_FILE = ".tfevents."
"""In the names of TensorBoard's files."""
_TRANSACTIONS = ".wandb"
"""Ends the names of W&B's."""


def source_of(sample: Sample, *, rows: bool) -> Source:
    """`rows`: the file is JSON lines. A progress bar is known by its `progress`."""
    name = sample.position.path.rsplit("/", 1)[-1]
    if rows:
        return Source.CALLBACK if name.startswith("health_rank") else Source.JSONL
    if EVENT_FILE in name or name.endswith(_TRANSACTIONS):
        return Source.TRACKER
    return Source.BAR if "progress" in sample.values else Source.TEXT


def is_of_its_rank(quantity: str, source: Source) -> bool:
    """Whether each rank tells a rate of its own, so that the run's is their sum.

    The callback is given what its rank processed; a trainer's log tells of all ranks.
    """
    return source is Source.CALLBACK and quantity in ("samples_per_second", "tokens_per_second")
