"""Which alerts tell of which kind of event that a truth file names."""

from collections.abc import Mapping

_DIED = ("TrainingCrashed", "JobKilled", "RankLost")
DETECTED_BY: Mapping[str, tuple[str, ...]] = {
    "nan": ("NonFiniteLoss", "NonFiniteGradient"),
    "loss_spike": ("LossSpike", "LossDiverging"),
    "overflow_skip": ("StepsSkipped", "LossScaleCollapsed"),
    "slow": ("ThroughputDrop", "RankStraggling"),
    "oom_cuda": ("OutOfMemory",),
    "oom_host": ("OutOfMemory", "JobKilled"),
    "xid": ("GpuError",),
    "traceback": ("TrainingCrashed",),
    "process_failed": ("TrainingCrashed", "RankLost"),
    "child_failed": ("TrainingCrashed", "RankLost"),
    "segfault": _DIED,
    "sigkill": _DIED,
    "signal": _DIED,
    "job_time_limit": ("JobKilled",),
    "job_cancelled": ("JobKilled",),
}
"""By kind, the alerts of the default pack, present and to come, any of which detects it."""

_FATAL = frozenset(DETECTED_BY) - {"nan", "loss_spike", "overflow_skip", "slow"}
_FATAL_ALERTS = frozenset({"OutOfMemory", "GpuError", "NcclTimeout", "NcclError", "DiskFull"})
KNOWN_ALERTS = frozenset(alert for alerts in DETECTED_BY.values() for alert in alerts)


def detected_by(kind: str) -> tuple[str, ...]:
    """The alerts that detect a kind of event; a kind that is an alert's name means that alert."""
    return DETECTED_BY.get(kind, (kind,))


def follow_from(kind: str) -> frozenset[str]:
    """The alerts that are true after such an event without detecting it: the run died of it."""
    fatal = kind in _FATAL or kind in _FATAL_ALERTS
    return frozenset(_DIED) if fatal else frozenset()
