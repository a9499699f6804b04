"""What a replay is asked for, without the settings of a service."""

from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.judge.run.stall import Stall


@dataclass
class Asked:
    """Of a monitor and the files that it judges: what a user gets who sets nothing."""

    files: tuple[str, ...] = ()
    companions: bool = False
    join: bool = True
    run: str | None = None
    rules: tuple[Path, ...] = ()
    formats: tuple[Path, ...] = ()
    promql_experimental: bool = False
    stall: Stall = field(default_factory=Stall)
    evaluation_interval: float = 5.0
    end_series_after_seconds: float = 900.0
    external_labels: dict[str, str] = field(default_factory=dict)
    external_url: str | None = None


def asked(*paths: Path) -> Asked:
    return Asked(files=tuple(map(str, paths)))
