"""What happens to a run as a script: `run() >> bars(0, 100) >> silence(31) << "stalled"`.

`>>` lets something happen, `<<` says in which state the run is then.
"""

from collections.abc import Callable
from typing import Any, Self, TypeAlias

from ldlm_monitor.base.records import Event, Position, Sample
from ldlm_monitor.judge.run.lifecycle import Lifecycle
from ldlm_monitor.judge.run.stall import Stall

LOG = Position("train.log", 1, 0)


class Script:
    """A run and the time (seconds since its first line)."""

    def __init__(self) -> None:
        self.life = Lifecycle(0.0, Stall(), LOG)
        self.now = 0.0

    def __rshift__(self, happens: "Happening") -> Self:
        happens(self)
        return self

    def __lshift__(self, state: str) -> Self:
        assert self.life.state == state, f"{self.life.state}, not {state}, at {self.now:g} s"
        return self

    def wait(self, seconds: float) -> None:
        """Let time pass; timers run when they are due."""
        end = self.now + seconds
        while (due := self.life.due()) is not None and due < end:
            self.life.tick(due + 0.01)  # a stall is later than its limit
        self.life.tick(end)
        self.now = end


Happening: TypeAlias = Callable[[Script], None]


def run() -> Script:
    """A run of which nothing is known but that its log begins."""
    return Script()


def bars(first: int, stop: int, *, every: float = 1.0, total: int | None = None) -> Happening:
    """The steps from `first` up to, not including, `stop`, one each `every` seconds."""

    def happens(script: Script) -> None:
        values = {} if total is None else {"total_steps": float(total)}
        for step in range(first, stop):
            script.wait(every)
            sample = Sample(run="r", step=step, values=values, position=LOG)
            script.life.observe([script.life.steps.rows(sample, (script.now,), timed=True)])

    return happens


def epochs(first: int, stop: int, *, of: int) -> Happening:
    """A row for each epoch, a hundred steps and ten seconds after the one before; `of` in all."""

    def happens(script: Script) -> None:
        for epoch in range(first, stop):
            script.wait(10.0)
            values = {"loss": 2.5, "total_epochs": float(of)}
            step = 100 * (epoch + 1)
            sample = Sample(run="r", step=step, epoch=float(epoch), values=values, position=LOG)
            script.life.observe([script.life.steps.rows(sample, (script.now,), timed=True)])

    return happens


def silence(seconds: float) -> Happening:
    """Nothing is logged for so long."""
    return lambda script: script.wait(seconds)


def says(kind: str, severity: Any = "info", *, rank: int | None = None, **fields: Any) -> Happening:
    """The log has an event of this kind."""

    def happens(script: Script) -> None:
        event = Event(
            kind=kind,
            severity=severity,
            run="r",
            rank=rank,
            message=kind,
            fields=fields,
            position=LOG,
        )
        script.life.observe_event(event, script.now)

    return happens


def evaluation_bar() -> Happening:
    """A bar of an evaluation moves."""

    def happens(script: Script) -> None:
        sample = Sample(run="r", step=None, values={"eval_progress": 0.5}, position=LOG)
        script.life.observe([script.life.steps.rows(sample, (script.now,), timed=True)])

    return happens


def end_of_input() -> Happening:
    """No further line will come."""
    return lambda script: script.life.finish(script.now)


def gone(**look: Any) -> Happening:
    """A look at the host finds that nobody writes the log; `look`: what is known of the last."""
    processes = [{"pid": 7, "state": "gone", **look}]
    return says("exit_without_error", alive=0, processes=processes, probe=True)


def uncaught_exception() -> Happening:
    """Python prints a traceback."""
    return says("python_exception", "error", role="root", traceback="Traceback ...")
