"""Builds the monitor that the settings describe."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from ldlm_monitor.base.points import RETENTION
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.core.packaged_rules import packaged_set
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_promrules.alerting import Context, RuleSet, load_rules
from ldlm_promrules.promql import Expression, parse


class MonitorSettings(Protocol):
    """The settings of a monitor, as the documentation of the configuration describes each."""

    rules: tuple[Path, ...]
    promql_experimental: bool
    formats: tuple[Path, ...]
    run: str | None
    evaluation_interval: float
    end_series_after_seconds: float
    stall: Stall
    external_labels: dict[str, str]
    external_url: str | None


def assemble(
    settings: MonitorSettings,
    stopwatch: Callable[[], float] | None = None,
    parser: Parser | None = None,
    retention: float = RETENTION,
) -> Monitor:
    """A new monitor with the settings' rules, formats and limits.

    `stopwatch`: a clock (seconds) that times evaluations. `parser`: used instead of a new one of
    the settings' formats. `retention`: seconds for which samples are kept. Raises `RuleError` or
    `FormatError` for a file that cannot be used.
    """
    return Monitor(
        rules=rules_of(settings),
        parser=parser or Parser(settings.formats),
        names=RunNames(settings.run),
        evaluation_interval=settings.evaluation_interval,
        end_series_after=settings.end_series_after_seconds,
        retention=retention,
        stall=settings.stall,
        stopwatch=stopwatch,
        context=Context(
            external_labels=settings.external_labels, external_url=settings.external_url or ""
        ),
    )


def rules_of(settings: MonitorSettings) -> RuleSet[Expression]:
    """The rules that the settings name, otherwise the packaged ones. Raises `RuleError`."""
    if not settings.rules:
        return packaged_set()
    return load_rules(settings.rules, partial(parse, experimental=settings.promql_experimental))
