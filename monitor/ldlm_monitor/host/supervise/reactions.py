"""What `run` does about a failure where a person said so: `--on FAILURE=ACTION[,ACTION...]`.

The default is to watch alone. Everything here is a function of alerts, ends and time; `session.py`
carries the orders out.
"""

import signal
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.incident_view import DecisionView
from ldlm_monitor.base.names import RUN_PREFIX
from ldlm_monitor.base.snapshot import AlertView, RunView, Snapshot
from ldlm_monitor.base.text.format import duration
from ldlm_monitor.logs.parse.meanings import meaning_of_kind
from ldlm_promrules.durations import parse_duration

FAILURES: Final[Mapping[str, frozenset[str]]] = {
    "hang": frozenset({"TrainingStalled", "NcclTimeout"}),
    "nan": frozenset({"NonFiniteLoss"}),
    "crash": frozenset(),
}
"""Failures that `--on` may name, with the critical alerts that show them; a crash is the command's
end with a code other than 0, unless a person caused it."""
_ACTIONS = {"hang": ("kill", "stacks", "stop"), "nan": ("kill", "stop"), "crash": ("restart",)}
GRACE_SECONDS = 10.0
"""Seconds from SIGTERM to SIGKILL: `docker stop` waits as long. A rank that hangs in a collective
answers no SIGTERM, and the new steps of a hung training are to come within a minute."""
BACKOFF_SECONDS = 1.0
"""Seconds before the first restart, doubled for each further one in a row of failures. A choice:
ports and GPU memory of the old processes are free by then."""
LONGEST_BACKOFF_SECONDS = 300.0  # a choice: a node's reboot takes some minutes
FIRST_PAUSE = 300.0
"""Seconds before which a run is not killed whose processes compute: a first evaluation may come at
any step, by the clock, and a kill is worse than a page. Once a pause has ended by itself, the
learned limit allows for the next."""
END_LINE: Final = f"{RUN_PREFIX} the command "
"""How the line begins that the relay writes after all output of an attempt."""
MAX_EXCLUDED: Final = 4
"""Most nodes that one run leaves out. A choice: a fifth broken node is rarely the node's fault, and
each one left out is missing to other jobs."""


@dataclass(frozen=True, slots=True)
class Reactions:
    """The actions for each failure, and how many `restarts` follow a crash without a new step.

    At most `budget` restarts are made within any `budget_seconds`.
    """

    actions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    restarts: int = 0
    budget: int = 5
    budget_seconds: float = 86400.0

    @classmethod
    def read(cls, texts: Iterable[str], budget: str) -> "Reactions":
        """From the values of `--on`, such as `hang=stacks,kill` and `crash=restart:3`, and `5/24h`.

        Raises UsageError for an unknown failure or action, or one that does not fit the failure.
        """
        actions: dict[str, frozenset[str]] = {}
        restarts = 0
        for text in texts:
            failure, _, words = text.partition("=")
            for word in words.split(","):
                action, colon, count = word.partition(":")
                if action not in _ACTIONS.get(failure, ()) or bool(colon) != count.isdecimal():
                    known = "; ".join(f"{each}={','.join(of)}" for each, of in _ACTIONS.items())
                    remedy = f"there are {known}, restart:N"
                    raise UsageError("is not known", where=f"--on {text}", remedy=remedy)
                restarts = int(count or 1) if action == "restart" else restarts
                actions[failure] = actions.get(failure, frozenset()) | {action}
        most, _, seconds = budget.partition("/")
        try:
            return cls(actions, restarts, int(most), parse_duration(seconds))
        except ValueError as error:
            raise UsageError(
                "is no budget of restarts", where=f"--budget {budget}", remedy="write it as 5/24h"
            ) from error


@dataclass(frozen=True, slots=True)
class Order:
    """One thing to do, of which the log gets `note`.

    `number`: a signal for the command. `evidence`: keep the incident of this alert and the stacks
    first. `asks`: where the training stops by itself, ask for that in place of the signal, for this
    reason; "": do not.
    `start_at`: start the command again at this time (Unix seconds) with `environment`; after an
    end, None: the run is over.
    """

    note: str = ""
    number: int | None = None
    evidence: AlertView | None = None
    asks: str = ""
    start_at: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class Supervisor:
    """Decides what to do about one run, which has `name` in snapshots.

    `attempt` counts the command's starts. `now`: the time of the first, in Unix seconds.
    """

    def __init__(self, reactions: Reactions, name: str, now: float) -> None:
        self._reactions = reactions
        self._name = name
        self._started_at = now
        self._runs = True
        self._restarts: deque[float] = deque()
        self._in_a_row = 0
        self._furthest = -1  # the last step of all attempts
        self._kill_at: float | None = None
        self._stop_by: float | None = None  # when the training was to have stopped by itself
        self._acted = ""  # the alert that was acted on in this attempt
        self._over = self._ended_by_us = False
        self._decided: DecisionView | None = None  # when a NaN was acted on
        self._excluded: dict[str, None] = {}  # nodes that failed, in their order
        self.attempt = 1

    def interrupted(self) -> None:
        """Note that a person sent a signal: the end that follows is wanted."""
        self._over = True

    def wait_for_stop(self, until: float) -> None:
        """Note that it was asked to stop by itself; at `until` (Unix seconds) a signal follows."""
        self._stop_by, self._kill_at = until, None

    @property
    def kills(self) -> bool:
        """Whether SIGKILL is to follow for what has not ended by SIGTERM."""
        return self._kill_at is not None

    def has_read_end(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot is of the whole log of the attempt that has ended."""
        return any(
            each.run == self._name
            and each.message.startswith(END_LINE)
            and (each.time or 0.0) >= self._started_at
            for each in snapshot.events
        )

    def begin(self, now: float) -> None:
        """Note that the command starts again at `now` (Unix seconds)."""
        self._started_at, self._runs, self._kill_at = now, True, None

    def observe(self, snapshot: Snapshot, now: float) -> Iterator[Order]:
        """What to do about the alerts that fire at `now` (Unix seconds)."""
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            who = "the command" if self._runs else "a process that it left"
            yield Order(f"{who} did not end: SIGKILL", signal.SIGKILL)
        if self._stop_by is not None and now >= self._stop_by:
            self._stop_by, self._kill_at = None, now + GRACE_SECONDS
            yield Order("the command did not stop: SIGTERM", signal.SIGTERM)
        run = self._run(snapshot)
        if run is None:
            return
        if run.step is not None and run.step > self._furthest:
            # The last steps of an attempt may be read after its end, which is then counted.
            self._furthest, self._in_a_row = run.step, 0 if self._runs else 1
        if not self._runs:
            return
        for failure, actions in self._reactions.actions.items():
            alert = next(self._firing(snapshot, run, failure, now), None)
            if self._acted or alert is None or _may_evaluate(alert, run, now):
                continue
            self._acted = alert.name
            self._over = self._over or "stop" in actions
            ends = bool(actions & {"kill", "stop"})
            self._kill_at = now + GRACE_SECONDS if ends else None
            self._ended_by_us = True
            self._decided = run.decision if failure == "nan" else None
            said = f"{alert.name}, --on {failure}={','.join(sorted(actions))}"
            yield Order(
                f"{said}: SIGTERM" if ends else said,
                signal.SIGTERM if ends else None,
                evidence=alert,
                asks=said if failure == "nan" and "stop" in actions else "",  # a hang asks nobody
            )

    def ended(self, code: int, now: float) -> Order:
        """What to do after the command ended with `code` (below 0: a signal) at `now`.

        Processes that it left still get the SIGKILL that is to follow a SIGTERM.
        """
        acted, self._acted, self._runs, self._stop_by = self._acted, "", False, None
        most, budget = self._reactions.restarts, self._reactions.budget
        seconds = self._reactions.budget_seconds
        if self._over or (code == 0 and not acted) or not most:
            return Order()
        while self._restarts and self._restarts[0] <= now - seconds:
            self._restarts.popleft()
        if self._in_a_row >= most:
            return Order(f"no restart: {self._in_a_row} made no new step")
        if len(self._restarts) >= budget:
            return Order(f"no restart: the budget of {budget} is used up")
        pause = min(BACKOFF_SECONDS * 2**self._in_a_row, LONGEST_BACKOFF_SECONDS)
        self._in_a_row += 1
        self._restarts.append(now)
        self.attempt += 1
        why = acted or (f"exit code {code}" if code >= 0 else f"signal {-code}")
        place = f" at step {self._furthest}" if self._furthest >= 0 else ""  # or not read yet
        used = f"{len(self._restarts)} of {budget} in {duration(seconds)}"
        note = f"restart {used}: {why}{place}, after {pause:g} s"
        found = {"LDLM_ATTEMPT": str(self.attempt)}
        if self._excluded:
            found["LDLM_EXCLUDE_NODES"] = ",".join(self._excluded)
        return Order(note, start_at=now + pause, environment=found)

    def reconsidered(self, order: Order, snapshot: Snapshot) -> Order:
        """A restart that is due, in the light of the whole log: with the decision's variables.

        Where the decision is STOP, the run is over. What a process that was killed here printed is
        no failure of its own.
        """
        run, by_us, self._ended_by_us = self._run(snapshot), self._ended_by_us, False
        decision = self._decided if by_us or run is None else run.decision
        if decision is None:
            return order
        if decision.decision == "STOP":
            return Order(f"no restart: {decision.phrase}")
        note, found = order.note, dict(order.environment)
        if decision.node is not None:
            self._excluded[decision.node] = None
            found["LDLM_EXCLUDE_NODES"] = ",".join(self._excluded)
        if len(self._excluded) > MAX_EXCLUDED:
            return Order(f"no restart: {len(self._excluded)} nodes failed")
        if decision.rollback_step is not None:
            found["LDLM_RESUME_STEP"] = str(decision.rollback_step)
            note += f", from step {decision.rollback_step}"
        if decision.skip_steps is not None:
            found["LDLM_SKIP_STEPS"] = "{}-{}".format(*decision.skip_steps)
        return replace(order, environment=found, note=f"{note}; decided: {decision.phrase}")

    def _run(self, snapshot: Snapshot) -> RunView | None:
        return next((each for each in snapshot.runs if each.name == self._name), None)

    def _firing(
        self, snapshot: Snapshot, run: RunView, failure: str, now: float
    ) -> Iterator[AlertView]:
        """The critical alerts of this attempt that show the failure.

        One that has fired since an earlier attempt counts once this attempt has stood still for
        longer than the run's stall limit.
        """
        limit = run.stall_limit_seconds
        since = max(self._started_at, run.last_progress_at or 0.0)
        again = failure == "hang" and limit is not None and now - since > limit
        for alert in snapshot.alerts:
            is_new = alert.fired_at is not None and alert.fired_at >= self._started_at
            if (
                alert.name in FAILURES[failure]
                and alert.labels.get("run") == self._name
                and alert.labels.get("severity") == "critical"
                and (is_new or (again and alert.state == "firing"))
            ):
                yield alert


def _may_evaluate(alert: AlertView, run: RunView, now: float) -> bool:
    """Whether this may be a first evaluation, in a run whose log announces none.

    Where its processes are seen, one of them computes in it.
    """
    announced = any(meaning_of_kind(kind).begins_evaluation for kind in run.event_counts)
    if alert.name != "TrainingStalled" or run.step is None or announced:
        return False
    may_compute = run.verdict is None or run.verdict.computes
    return may_compute and now - (run.last_progress_at or now) < FIRST_PAUSE
