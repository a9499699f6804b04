"""Every public name, in one place (contract sections 2 to 4)."""

from dataclasses import dataclass
from typing import Literal

SEVERITIES = ("info", "warning", "error", "critical")
"""In rising order; the index is `ldlm_run_health`."""

RUN_STATES = (
    "starting",
    "running",
    "evaluating",
    "checkpointing",
    "stalled",
    "finished",
    "crashed",
    "killed",
)
ENDED_STATES = frozenset({"finished", "crashed", "killed"})

REASONS = (
    "condition holds",
    "condition held for its duration",
    "condition no longer holds",
    "run ended",
    "no data",
)

CANONICAL_VALUES = frozenset(
    {
        "loss",
        "accuracy",
        "learning_rate",
        "grad_norm",
        "step_seconds",
        "data_seconds",
        "samples_per_second",
        "tokens_per_second",
        "tokens_per_second_per_device",
        "steps_per_second",
        "flops_per_second_per_device",
        "mfu",
        "samples_total",
        "tokens_total",
        "memory_allocated_bytes",
        "memory_reserved_bytes",
        "loss_scale",
        "skipped_steps",
        "eval_loss",
        "progress",
        "total_steps",
    }
)
CANONICAL_PREFIXES = ("loss_", "accuracy_")
"""`loss_<component>` and `accuracy_<component>`."""

LIFECYCLE_KINDS = (
    "run_started",
    "run_resumed",
    "run_finished",
    "eval_started",
    "eval_finished",
    "checkpoint_started",
    "checkpoint_saved",
    "checkpoint_failed",
    "skipped_step",
    "config",
    "warning",
    "error",
)

FAMILIES = {
    "A": "nccl_torch",
    "B": "nccl",
    "C": "elastic",
    "D": "store",
    "E": "collective",
    "F": "cuda",
    "G": "host",
    "H": "process",
    "I": "dataloader",
    "J": "numerics",
    "K": "scheduler",
    "L": "resilience",
    "M": "progress",
}
ROLES = ("root", "evidence", "victim", "death", "context", "progress")


@dataclass(frozen=True, slots=True)
class Metric:
    """An exported metric: `labels` beside `run` (and `rank` where a rank reported it)."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...] = ()


_TRAIN = (
    Metric("ldlm_train_loss", "gauge", "Training loss, the last value reported."),
    Metric(
        "ldlm_train_component_loss",
        "gauge",
        "Loss of one component, the last value reported.",
        ("component",),
    ),
    Metric("ldlm_eval_loss", "gauge", "Evaluation loss, the last value reported."),
    Metric("ldlm_train_grad_norm", "gauge", "Global gradient norm before clipping."),
    Metric("ldlm_train_learning_rate", "gauge", "Learning rate."),
    Metric("ldlm_train_accuracy_ratio", "gauge", "Accuracy, 0 to 1.", ("component",)),
    Metric("ldlm_train_loss_scale", "gauge", "Loss scale of mixed-precision training."),
    Metric("ldlm_train_step", "gauge", "Step, as the best source counts it."),
    Metric("ldlm_train_epoch", "gauge", "Epoch."),
    Metric("ldlm_train_progress_ratio", "gauge", "Share of all steps that is done, 0 to 1."),
    Metric("ldlm_train_eta_seconds", "gauge", "Time to the last step at the present pace."),
    Metric("ldlm_train_samples_total", "counter", "Samples trained on."),
    Metric("ldlm_train_tokens_total", "counter", "Tokens trained on."),
    Metric(
        "ldlm_train_samples_per_second",
        "gauge",
        "Samples a second: of all ranks, or of the rank that is named.",
    ),
    Metric(
        "ldlm_train_tokens_per_second",
        "gauge",
        "Tokens a second: of all ranks, or of the rank that is named.",
    ),
    Metric("ldlm_train_step_seconds", "gauge", "Duration of a step."),
    Metric("ldlm_train_mfu_ratio", "gauge", "Model FLOPs utilisation, 0 to 1."),
    Metric("ldlm_train_memory_allocated_bytes", "gauge", "Accelerator memory allocated."),
    Metric("ldlm_train_memory_reserved_bytes", "gauge", "Accelerator memory reserved."),
    Metric("ldlm_train_metric", "gauge", "Every other numeric key of the log.", ("name",)),
    Metric("ldlm_train_nonfinite_total", "counter", "NaN and infinite values seen.", ("quantity",)),
    Metric("ldlm_train_skipped_steps_total", "counter", "Optimizer steps skipped."),
    Metric(
        "ldlm_train_last_progress_timestamp_seconds",
        "gauge",
        "When the step last advanced, in Unix time.",
    ),
    Metric(
        "ldlm_train_stall_limit_seconds",
        "gauge",
        "How long a pause is still normal for this run in its present phase.",
    ),
    Metric("ldlm_events_total", "counter", "Typed events.", ("kind", "severity")),
    Metric("ldlm_run_state", "gauge", "1 for the state that the run is in.", ("state",)),
    Metric("ldlm_run_info", "gauge", "One row a run.", ("framework", "world_size")),
    Metric("ldlm_run_health", "gauge", "0 healthy, 1 warning, 2 unhealthy, 3 critical."),
    Metric(
        "ldlm_alerts",
        "gauge",
        "Pending and firing alerts.",
        ("alertname", "alertstate", "severity"),
    ),
)
_MONITOR = (
    Metric("ldlm_monitor_records_total", "counter", "Records parsed.", ("record",)),
    Metric("ldlm_monitor_lines_total", "counter", "Lines read."),
    Metric("ldlm_monitor_bytes_total", "counter", "Bytes read."),
    Metric("ldlm_monitor_parse_errors_total", "counter", "Lines that could not be decoded."),
    Metric("ldlm_monitor_evaluations_total", "counter", "Evaluations of all rules."),
    Metric(
        "ldlm_monitor_notifications_total",
        "counter",
        "Notifications by receiver and outcome.",
        ("receiver", "outcome"),
    ),
    Metric("ldlm_monitor_dropped_total", "counter", "What was dropped, and why.", ("reason",)),
    Metric("ldlm_monitor_behind_bytes", "gauge", "Bytes written to the logs and not read yet."),
    Metric("ldlm_monitor_state_free_bytes", "gauge", "Free bytes of the disk of the state."),
    Metric("ldlm_monitor_evaluation_seconds", "gauge", "Duration of the last evaluation."),
)
DETECT_PREFIX = "ldlm_detect_"
_DETECT = tuple(
    Metric(DETECT_PREFIX + name, "gauge", meaning)
    for name, meaning in (
        ("loss_zscore", "The last loss above the median of those before, in robust deviations."),
        ("loss_spike_ratio", "A loss high twice in a row, over the highest of those before."),
        ("loss_peak_ratio", "The highest recent loss over the highest before it."),
        ("loss_rise_ratio", "The recent level of the loss over its lowest level."),
        ("loss_rise_zscore", "The same rise in robust deviations of single losses."),
        ("loss_trend_ratio", "Mean loss of the last 25 logged steps over that of the 25 before."),
        ("loss_trend_zscore", "Mann-Kendall Z of the last 1000 logged losses."),
        ("loss_slope_ratio", "Theil-Sen change of the loss over the last 1000 logged steps."),
        ("loss_constant_ratio", "Equal losses in a row over how many are no coincidence."),
        ("grad_norm_zscore", "The last gradient norm in robust deviations of its logarithm."),
        ("grad_norm_ratio", "The recent gradient norm over its own median."),
        ("grad_norm_overflow_steps", "Non-finite norms that a loss scale being tried explains."),
        ("throughput_ratio", "The present pace over the usual one."),
        ("throughput_variation_ratio", "Deviation over mean of the last 50 step times."),
        ("step_time_change_ratio", "The step time after the last lasting change over before."),
        ("rank_lag_steps", "Steps that a rank is behind the furthest."),
        ("rank_slowdown_ratio", "A rank's own step time over that of the median rank."),
        ("memory_growth_ratio", "The least growth of memory from one quarter to the next."),
        ("loss_scale_ratio", "The loss scale over its own median."),
        ("skipped_steps_ratio", "Skipped steps among the last 100."),
        ("checkpoint_age_ratio", "Steps since the last checkpoint over the longest interval."),
    )
)
"""Formulas and sources stand with the detectors."""
METRICS = {metric.name: metric for metric in (*_TRAIN, *_DETECT, *_MONITOR)}

_SEEN_IN = (
    ("loss_scale_", "ldlm_train_loss_scale"),
    ("loss_", "ldlm_train_loss"),
    ("grad_norm_", "ldlm_train_grad_norm"),
    ("memory_", "ldlm_train_memory_allocated_bytes"),
    ("skipped_", "ldlm_train_skipped_steps_total"),
    ("", "ldlm_train_last_progress_timestamp_seconds"),
)


def seen_in(metric: str) -> str:
    """The metric whose lines explain a detector's gauge; any other explains itself."""
    if not metric.startswith(DETECT_PREFIX):
        return metric
    detected = metric.removeprefix(DETECT_PREFIX)
    return next(shown for begin, shown in _SEEN_IN if detected.startswith(begin))


DETECTED_IN = {
    shown: tuple(metric.name for metric in _DETECT if seen_in(metric.name) == shown)
    for _, shown in _SEEN_IN
}
"""By metric, the detectors' gauges that its lines show."""

ALERTS = {
    "NonFiniteLoss": "critical",
    "NonFiniteGradient": "critical",
    "TrainingStalled": "critical",
    "TrainingCrashed": "critical",
    "NcclTimeout": "critical",
    "NcclError": "error",
    "OutOfMemory": "critical",
    "GpuError": "critical",
    "RankLost": "critical",
    "CollectiveMismatch": "critical",
    "JobKilled": "critical",
    "DataLoaderFailed": "critical",
    "DiskFull": "critical",
    "RestartStorm": "critical",
    "LossDiverging": "error",
    "LossSpike": "warning",
    "LossPlateau": "info",
    "LossConstant": "warning",
    "GradientNormHigh": "warning",
    "LossScaleCollapsed": "error",
    "StepsSkipped": "warning",
    "ThroughputDrop": "warning",
    "ThroughputUnstable": "info",
    "RankStraggling": "warning",
    "MemoryGrowing": "warning",
    "CheckpointStale": "warning",
    "MonitorBehind": "warning",
    "MonitorParseErrors": "warning",
    "MonitorCannotRead": "warning",
    "MonitorCannotDeliver": "error",
    "MonitorDiskFilling": "warning",
    "Watchdog": "none",
}
"""The default pack, with severities."""
