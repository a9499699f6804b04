"""The public names: users' rules and dashboards rely on them, so a rename breaks theirs."""

from typing import Literal, NamedTuple, TypeAlias, get_args

Severity: TypeAlias = Literal["info", "warning", "error", "critical"]  # rising
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Severities, rising. A run's `ldlm_run_health` is the index of the worst of its reasons."""

_ENDED = ("finished", "crashed", "killed", "ended")  # states of a run that is over
RUN_STATES = ("starting", "running", "evaluating", "checkpointing", "stalled", *_ENDED)
"""Values of the label `state` of `ldlm_run_state`. `ended`: nobody writes its log any more, and how
it ended is not known."""
ENDED_STATES = frozenset(_ENDED)  # a run in one of these states is over

EndReason: TypeAlias = Literal[
    "total", "epochs", "words", "exit_code", "exception", "signal", "writer_gone"
]
"""What shows that a run is over: all its steps or epochs, words of its log, its process's exit
code, an exception or signal, or that nobody writes its log any more."""

STALL_ALERT, RUN_FINISHED = "TrainingStalled", "RunFinished"
"""Names of the alerts that a run takes no step, and that it has finished, which is no trouble."""

RUN_PREFIX = "ldlm-monitor run:"
"""Follows the time in each line of `ldlm-monitor run` itself in the log that it keeps, the first
line among them; `parse/data/events/relay.yml` reads these lines."""

CANONICAL_VALUES = frozenset(
    {
        "loss", "accuracy", "learning_rate", "grad_norm", "step_seconds", "data_seconds",
        "samples_per_second", "tokens_per_second", "tokens_per_second_per_device",
        "steps_per_second", "flops_per_second_per_device", "mfu", "samples_total", "tokens_total",
        "memory_allocated_bytes", "memory_reserved_bytes", "loss_scale", "skipped_steps",
        "eval_loss", "progress", "total_steps",
    }
)  # fmt: skip
"""Names of quantities (contract, section 2), to which `parse/` translates trainers' own keys."""
CANONICAL_PREFIXES = ("loss_", "accuracy_")
"""Beginnings of the names that end in a component: `loss_<component>`, `accuracy_<component>`."""
RATES = ("tokens_per_second", "samples_per_second", "steps_per_second")
"""Quantities of throughput; the first that a run has is shown. The order is a choice: tokens
measure the work whatever the batch size, steps are what most logs have."""


def severity_rank(severity: str) -> int:
    """A severity's place in `SEVERITIES`: the worst has the highest; -1 for an unknown one."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else -1


class Metric(NamedTuple):
    """An exported metric; `labels` come besides `run` of a run's series and `rank` of a rank's."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["gauge", "counter", "histogram"]:
        """The metric's type, by Prometheus' naming guidelines: a counter's name ends in _total."""
        if self.name.endswith("_duration_seconds"):
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


LAST_EVENT = "ldlm_last_event_timestamp_seconds"
LAST_NONFINITE = "ldlm_train_last_nonfinite_timestamp_seconds"
RUN_START = "ldlm_run_start_timestamp_seconds"
PAST_TIMES = frozenset({LAST_EVENT, LAST_NONFINITE, RUN_START})
"""Gauges of when something happened last: no sample of theirs is later than its own time."""
EXPECTED_VALUE = "ldlm_run_expected_value"
RESTARTS = "ldlm_run_restarts_total"
FAILED_STARTS = "ldlm_detect_failed_starts"
METRIC_SILENCE = "ldlm_detect_metric_silence_records"
METRIC_LAPSE = "ldlm_detect_metric_nonfinite_records"
STEP_DURATION = "ldlm_train_step_duration_seconds"
EVALUATION_DURATION = "ldlm_monitor_evaluation_duration_seconds"
DELIVERY_DURATION = "ldlm_monitor_delivery_duration_seconds"

# Each metric's name, HELP text, and labels beside `run` and `rank` (contract, section 3).
_TRAIN = (
    ("ldlm_train_loss", "Training loss, the last value reported."),
    ("ldlm_train_component_loss", "Loss of one component, the last value reported.", "component"),
    ("ldlm_eval_loss", "Evaluation loss, the last value reported."),
    ("ldlm_detect_eval_loss_lowest_step", "Step of the lowest evaluation loss of the training."),
    ("ldlm_train_grad_norm", "Global gradient norm before clipping."),
    ("ldlm_train_learning_rate", "Learning rate."),
    ("ldlm_train_accuracy_ratio", "Accuracy, 0 to 1.", "component"),
    ("ldlm_train_loss_scale", "Loss scale of mixed-precision training."),
    ("ldlm_train_step", "Step: from the callback, else JSONL, log lines, progress bar."),
    ("ldlm_train_epoch", "Epoch."),
    ("ldlm_train_progress_ratio", "Share of all steps that is done, 0 to 1."),
    ("ldlm_train_eta_seconds", "Time to the last step at the present pace."),
    ("ldlm_train_samples_total", "Samples trained on."),
    ("ldlm_train_tokens_total", "Tokens trained on."),
    (
        "ldlm_train_samples_per_second",
        "Samples a second: of all ranks together, or of one rank if labelled with a rank.",
    ),
    (
        "ldlm_train_tokens_per_second",
        "Tokens a second: of all ranks together, or of one rank if labelled with a rank.",
    ),
    ("ldlm_train_step_seconds", "Duration of a step."),
    (STEP_DURATION, "Durations of steps: as logged or by their times; untimed: a mean each 5 s."),
    ("ldlm_train_mfu_ratio", "Model FLOPs utilisation, 0 to 1."),
    ("ldlm_train_memory_allocated_bytes", "Accelerator memory allocated."),
    ("ldlm_train_memory_reserved_bytes", "Accelerator memory reserved."),
    ("ldlm_train_metric", "Every other numeric key of the log.", "name"),
    (
        METRIC_SILENCE,
        "Records in a row without a value that came regularly, if not explained by its rhythm.",
        "name",
    ),
    (
        METRIC_LAPSE,
        "Records in a row in which a value that was a number is NaN or infinite.",
        "name",
    ),
    ("ldlm_train_nonfinite_total", "NaN and infinite values seen.", "quantity"),
    (LAST_NONFINITE, "When a value was NaN or infinite last, in Unix time.", "quantity"),
    ("ldlm_train_skipped_steps_total", "Optimizer steps skipped."),
    ("ldlm_train_last_progress_timestamp_seconds", "When the step last advanced, in Unix time."),
    (
        "ldlm_train_stall_limit_seconds",
        "Longest pause between steps that is normal for the run in its present phase.",
    ),
    (
        "ldlm_train_hang_limit_seconds",
        "Longest pause that may be the first of its kind; elsewhere the stall limit.",
    ),
    ("ldlm_events_total", "Typed events.", "kind", "severity"),
    (
        LAST_EVENT,
        "When the last event of warning or worse, or an expected one, came, in Unix time.",
        "kind",
        "severity",
    ),
    (
        EXPECTED_VALUE,
        "The number in the last line of an expectation; NaN where it has none.",
        "kind",
    ),
    (RUN_START, "When the run, or its present attempt, began, in Unix time."),
    (
        RESTARTS,
        "Attempts of the run after its first, but for those that a person began, or after its end.",
    ),
    (FAILED_STARTS, "Last attempts in a row that failed with the same error before a step."),
    ("ldlm_run_state", "1 for the state that the run is in.", "state"),
    ("ldlm_run_info", "Always 1; the labels describe the run.", "framework", "world_size"),
    ("ldlm_run_mesh_info", "Always 1; the labels are a rank's coordinates.", "dp", "tp", "pp"),
    ("ldlm_run_world_size", "Ranks of the run, where its log has the number."),
    ("ldlm_run_health", "0 healthy, 1 warning, 2 unhealthy, 3 critical."),
    ("ldlm_alerts", "Pending and firing alerts.", "alertname", "alertstate", "severity"),
)
_GOODPUT = (  # of a run's time up to its last step, or its end; a resume moves seconds of its parts
    ("ldlm_goodput_seconds", "Wall time by what it went into; the parts add up.", "part"),
    ("ldlm_goodput_ratio", "Share of the time that went into steps that were kept, 0 to 1."),
    ("ldlm_goodput_ettr_ratio", "Share of the time that failures and starts left, 0 to 1."),
    ("ldlm_goodput_failures", "Restarts, and a failed end."),
    ("ldlm_goodput_mttf_seconds", "Time up per failure, where there was one."),
)
_GPU = (  # of the run's GPUs, in the form of `_TRAIN`
    ("ldlm_gpu_utilization_ratio", "Share of time in which the GPU ran a kernel, 0 to 1.", "gpu"),
    ("ldlm_gpu_memory_used_bytes", "GPU memory in use, by all processes.", "gpu"),
    ("ldlm_gpu_power_watts", "Power that the GPU draws.", "gpu"),
    ("ldlm_gpu_temperature_celsius", "Temperature of the GPU.", "gpu"),
    ("ldlm_gpu_throttled", "1 while the clock is held down for this reason.", "gpu", "reason"),
    ("ldlm_gpu_ecc_errors_total", "Memory errors that could not be corrected.", "gpu"),
)
_MONITOR = (  # of the monitor itself, in the form of `_TRAIN`
    ("ldlm_monitor_records_total", "Records parsed.", "record"),
    ("ldlm_monitor_lines_total", "Lines read."),
    ("ldlm_monitor_bytes_total", "Bytes read."),
    ("ldlm_monitor_parse_errors_total", "Lines that could not be decoded."),
    ("ldlm_monitor_evaluations_total", "Evaluations of all rules."),
    (
        "ldlm_monitor_notifications_total",
        "Notifications by receiver and outcome.",
        "receiver",
        "outcome",
    ),
    ("ldlm_monitor_dropped_total", "What was dropped, and why.", "reason"),
    ("ldlm_monitor_behind_bytes", "Bytes written to the logs and not read yet."),
    ("ldlm_monitor_state_free_bytes", "Free bytes on the disk of the state folder."),
    ("ldlm_monitor_evaluation_seconds", "Duration of the last evaluation."),
    (EVALUATION_DURATION, "Durations of evaluations of all rules."),
    (DELIVERY_DURATION, "Durations of attempts to deliver a message.", "receiver"),
    (
        "ldlm_build_info",
        "Always 1; the labels say the version, and whether the compiled part is in use (1 or 0).",
        "native",
        "version",
    ),
)


def created(counter: str) -> str:
    """The series of when a counter began, as OpenMetrics names it."""
    return f"{counter.removesuffix('_total')}_created"


DETECT_PREFIX = "ldlm_detect_"  # of the detectors' gauges, which `judge.detect` declares
BASE_METRICS = {  # by name, all exported metrics but the detectors' gauges
    name: Metric(name, meaning, tuple(labels))
    for name, meaning, *labels in (*_TRAIN, *_GOODPUT, *_GPU, *_MONITOR)
}
