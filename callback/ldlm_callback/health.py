"""`HealthCallback`, whose methods a training loop calls; none of them makes it wait."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

from ldlm_callback.device import is_tensor, leave_uncompiled
from ldlm_callback.rank import Launch
from ldlm_callback.session import Options, Session
from ldlm_callback.steps import Steps

MAX_ERRORS = 10
"""Errors of its own after which the callback stops. A choice: a tenth rarely has a new cause."""
Given = ParamSpec("Given")
Hook = TypeVar("Hook", bound=Callable[..., Any])
_hooks: list[Callable[..., Any]] = []  # methods that `torch.compile` leaves alone


def harmless(method: Callable[Given, None]) -> Callable[Given, None]:
    """Make a method raise nothing; its object is a `HealthCallback`, or has it in `_health`."""

    @wraps(method)
    def guarded(*given: Given.args, **named: Given.kwargs) -> None:
        try:
            method(*given, **named)
        except Exception as error:  # noqa: BLE001 no error of the callback may stop the training
            health: Any = getattr(given[0], "_health", given[0])
            if health is not None:
                health._hurt(error)
            else:
                _say(f"{type(error).__name__}: {error}; training goes on")

    return guarded


def _not_compiled(hook: Hook) -> Hook:
    """Mark a method that `torch.compile` calls without tracing it.

    In a graph the callback's clock readings would be constants and its copies part of the graph.
    The mark is set here because `torch.compiler.disable` would import torch (torch/_dynamo, 2.13).
    """
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    _hooks.append(hook)
    return hook


def _harmless_hook(method: Callable[Given, None]) -> Callable[Given, None]:
    return _not_compiled(harmless(method))


class HealthCallback:
    """Reports one rank's training to the monitor, through files.

    Writes `health_rank{rank}.jsonl` (schema `ldlm.health/1`), `heartbeat_rank{rank}` and
    `stack_rank{rank}.txt` into `out`, by default `saved/{run}`. No method raises or does anything
    in a forked child; only the start and `close` wait for a disk, for seconds at most. As a context
    manager it reports how the block ended.

    `every`: a step gets a row if its number is a multiple of this, or if a loss or gradient norm
    in host memory is not finite; the heartbeat has every step.
    `run`: default to the name of `out`, or the launcher's job. `rank`, `world_size`: default to the
    process group's or the launcher's. `mesh`: a `DeviceMesh`, or this rank's coordinates by name
    (`{"dp": 0, "pp": 3}`), which the monitor shows with the rank. `config`: settings to show
    with the run. `framework`: the name of the training loop. `serve`: a port, or HOST:PORT, for
    metrics over HTTP. `sigterm`: finish the file when the process is terminated. `stack_signal`:
    the signal upon which the process writes its stacks, None for none. `flight_recorder`: open
    PyTorch's flight recorder to the monitor, on a Unix socket that its owner alone can reach.
    `gpu`: sample the GPU's driver.
    """

    def __init__(
        self,
        run: str | None = None,
        out: str | os.PathLike[str] | None = None,
        every: int = 1,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        mesh: Any = None,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        serve: int | str | None = None,
        sigterm: bool = True,
        stack_signal: int | None = getattr(signal, "SIGUSR2", None),
        flight_recorder: bool = False,
        gpu: bool = True,
    ) -> None:
        self._session: Session | None = None
        self._steps: Steps | None = None
        self._errors = 0
        try:
            options = Options(
                config or {}, framework, serve, sigterm, stack_signal, flight_recorder, gpu
            )
            leave_uncompiled(_hooks)
            launch = Launch.detect(run, out, rank, world_size, mesh)
            self._session = Session(launch, options, max(int(every), 1), _say)
            self._steps = self._session.steps
        except Exception as error:  # noqa: BLE001 no error of the callback may stop the training
            self._hurt(error)

    @_not_compiled
    def on_step(
        self,
        step: Any = None,
        loss: Any = None,
        *,
        grad_norm: Any = None,
        lr: Any = None,
        samples: Any = None,
        tokens: Any = None,
        batch: Any = None,
        epoch: Any = None,
        batch_ids: Any = None,
        **values: Any,
    ) -> None:
        """Report a step. Values may be numbers or tensors of one element, on a device too.

        `step`: None for the next one. `samples`, `tokens`: how many this rank processed since the
        last call. `batch`: the number of the batch in its epoch. `batch_ids`: names of its rows, in
        host memory; they are kept as they are, and written only where the loss spikes or is not
        finite. Other values keep their own name.
        """
        steps = self._steps
        if steps is None or not steps.is_live:
            return
        try:
            # Kept in the dict that the call made: another costs more than its four values. At the
            # sixth it would grow, which costs 1.5 µs.
            values["loss"], values["grad_norm"] = loss, grad_norm
            if epoch is not None:
                values["epoch"] = epoch
            if lr is not None:
                values["learning_rate"] = lr
            steps.step(step, values, samples, tokens, batch, ids=batch_ids)
        except Exception as error:  # noqa: BLE001 no error of the callback may stop the training
            self._hurt(error)

    @_harmless_hook
    def log(self, **values: Any) -> None:
        """Add values to the last step, such as `eval_loss`: numbers or tensors, as in `on_step`."""
        if steps := self._live():
            steps.add_values(values)

    @_not_compiled
    def should_stop(self, step: Any = None) -> bool:
        """Whether the loop is to save and end at this step, because the monitor asks for it.

        That is `ldlm-monitor run --on nan=stop`. Ask on every rank, after the same steps; the
        request names a step that is still to come, so all of them stop at the same one. `step`:
        None for the last one. It looks at a number in memory alone.
        """
        steps = self._steps
        if steps is None or not steps.is_live:
            return False
        try:
            return steps.should_stop(step)
        except Exception as error:  # noqa: BLE001 no error of the callback may stop the training
            self._hurt(error)
            return False

    @_not_compiled
    def phase(self, name: str) -> Phase:
        """A context manager: within it the rank is in this phase.

        `eval` and `checkpoint` also report events; longer pauses are normal in them;
        `data`, `forward`, `backward` and `optimizer` are parts of a step.
        """
        return Phase(self, str(name)[:32])  # characters: as many as the heartbeat has bytes

    @_harmless_hook
    def event(self, kind: str, message: str = "", severity: str = "info", **fields: Any) -> None:
        """Report an event to the monitor (severity: info, warning, error, critical)."""
        if steps := self._live():
            steps.event(kind, message or kind, severity, fields)

    @_harmless_hook
    def watch(
        self,
        parameters: Any,
        every: int = 100,
        *,
        optimizer: Any = None,
        check_replicas_every: int = 0,
    ) -> None:
        """Also report the gradients of each group of parameters, every `every` steps.

        Their norm, and the shares of zeros and of non-finite numbers. `parameters`: a module (its
        children are the groups), or parameters by name of group. They are also measured at the
        step after a non-finite value. Call `on_step` before the gradients are cleared. It costs
        device time, and no wait for it. `every` 0: never.
        `check_replicas_every`: also report a checksum of parameters and of the state of
        `optimizer` every so many steps, by which the monitor finds a rank that is no longer equal
        to its replicas; 0: none. It reads all of them once, on their device.
        """
        if steps := self._live():
            steps.watch(parameters, every, optimizer, check_replicas_every)

    @_harmless_hook
    def close(self, error: BaseException | str | None = None) -> None:
        """Report how the training ended (`error` None: without one); write all rows, in seconds."""
        session = self._session
        if session is None or self._live() is None:
            return
        if isinstance(error, BaseException):
            session.failed(error)
        else:
            session.end("finished" if error is None else "failed", error)
        session.close()

    def __enter__(self) -> HealthCallback:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        well = isinstance(error, SystemExit) and error.code in (0, None)
        self.close(None if well else error)

    def _live(self) -> Steps | None:
        """The steps; None after the end and in a forked child."""
        return self._steps if self._steps is not None and self._steps.is_live else None

    def _hurt(self, error: Exception) -> None:
        """Count an error of the callback's own; report the first, and stop at `MAX_ERRORS`."""
        self._errors += 1
        session = self._session
        if session is not None:
            session.errors = self._errors
        if self._errors == 1:
            _say(f"{type(error).__name__}: {error}; training goes on")
        if self._errors >= MAX_ERRORS and session is not None:
            self._session = self._steps = None
            try:
                session.close()
            except Exception:  # noqa: BLE001 its errors were reported, training goes on
                return


@dataclass(slots=True)
class Phase:
    """A phase of the training, entered and left by `with`; see `HealthCallback.phase`."""

    _health: HealthCallback
    _name: str

    @_harmless_hook
    def __enter__(self) -> None:
        if steps := self._health._live():
            steps.enter(self._name)

    @_harmless_hook
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if steps := self._health._live():
            steps.leave(error)


class Adapter:
    """Common part of the adapters for trainers: options, the callback, its phase, sums of losses.

    Trainers call one hook where a phase begins and another where it ends, so `with` cannot be used.
    """

    _defaults: ClassVar[Mapping[str, Any]] = {}
    _health: HealthCallback | None = None
    _phase: Phase | None = None

    def __init__(self, run: str | None = None, out: str | None = None, **options: Any) -> None:
        super().__init__()
        self._options = {"run": run, "out": out, **self._defaults, **options}
        self._sums: dict[str, Any] = {}
        self._parts = 0

    def _add(self, values: Mapping[str, Any]) -> None:
        self._parts += 1
        for name, value in values.items():
            if is_tensor(value) and value.numel() == 1:
                part = value.detach()
                self._sums[name] = part if name not in self._sums else self._sums[name] + part

    def _summed(self, scale: float) -> dict[str, Any]:
        sums, self._sums, self._parts = self._sums, {}, 0
        return {name: total * scale for name, total in sums.items()}

    def _enter(self, name: str) -> None:
        self._leave()
        if self._health is not None:
            self._phase = self._health.phase(name)
            self._phase.__enter__()

    def _leave(self, *given: Any, **named: Any) -> None:
        """Leave the phase; adapters use this as a hook too, so it accepts any arguments."""
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.__exit__(None, None, None)

    def _end(self) -> None:
        self._leave()
        if self._health is not None:
            self._health.close()
        self._health = None


def _say(text: str) -> None:
    """Write a line to stderr by a system call: the lock of `sys.stderr` may be held in a fork."""
    try:
        os.write(2, f"ldlm-monitor callback: {text}\n".encode("utf-8", "replace"))
    except OSError:
        return
