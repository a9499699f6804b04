"""The four boards: the fleet, one run, its ranks, and the monitor itself."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from .parts import RANK, RUN, SCRAPED, bands, board, graph, listing, number, query, stripes

_HEALTH_STEPS = (("green", None), ("yellow", 1.0), ("orange", 2.0), ("red", 3.0))
_RATIO_STEPS = (("red", None), ("yellow", 0.7), ("green", 0.9))


def boards() -> list[models.Dashboard]:
    """All of them, in the order in which one goes from the whole to the part."""
    return [fleet(), run_health(), ranks(), monitor()]


def fleet() -> models.Dashboard:
    """All runs at once."""
    age = f"time() - max by (run) (ldlm_train_last_progress_timestamp_seconds{{{SCRAPED}}})"
    return board(
        "ldlm-fleet",
        "Every training at once: who is ill, who stands still, what fires.",
        ("cluster", "job", "instance"),
        {
            "Now": [
                number(
                    "Runs that go on",
                    "Runs that are neither finished, crashed nor killed.",
                    "short",
                    f"count(ldlm_run_state{{{SCRAPED},"
                    'state!~"finished|crashed|killed"} == 1) or vector(0)',
                    legend="runs",
                ),
                number(
                    "Stalled runs",
                    "Runs whose step has not advanced for longer than is normal for them.",
                    "short",
                    f'count(ldlm_run_state{{{SCRAPED},state="stalled"}} == 1) or vector(0)',
                    ("green", None),
                    ("red", 1.0),
                    legend="stalled",
                ),
                number(
                    "Critical runs",
                    "Runs with a critical alert that fires.",
                    "short",
                    f"count(ldlm_run_health{{{SCRAPED}}} == 3) or vector(0)",
                    ("green", None),
                    ("red", 1.0),
                    legend="critical",
                ),
                number(
                    "Straggling ranks",
                    "Ranks whose own step takes at least a tenth longer than the median rank's.",
                    "short",
                    f"count(ldlm_detect_rank_slowdown_ratio{{{SCRAPED}}} > 1.1) or vector(0)",
                    ("green", None),
                    ("yellow", 1.0),
                    legend="straggling",
                ),
                number(
                    "Samples a second",
                    "Over all runs.",
                    "short",
                    f"sum(max by (run) (ldlm_train_samples_per_second{{{SCRAPED}}})) or vector(0)",
                    legend="samples/s",
                ),
                number(
                    "Hours lost to stalls",
                    "Hours of runs that stood still beyond their limit in the time shown.",
                    "h",
                    f'sum(sum_over_time(ldlm_run_state{{{SCRAPED},state="stalled"}}'
                    "[$__range:1m])) / 60 or vector(0)",
                    ("green", None),
                    ("orange", 1.0),
                    legend="hours",
                ),
            ],
            "Health": [
                stripes(
                    "Health of each run",
                    "The worst severity that fires for it, over time.",
                    f"max by (run) (ldlm_run_health{{{SCRAPED}}})",
                    "{{run}}",
                ),
                listing(
                    "Runs",
                    "How each run stands: health, step, seconds since the step last advanced, "
                    "loss and time left.",
                    "short",
                    query(f"max by (run) (ldlm_run_health{{{SCRAPED}}})", instant=True),
                    query(f"max by (run) (ldlm_train_step{{{SCRAPED}}})", instant=True),
                    query(age, instant=True),
                    query(f"avg by (run) (ldlm_train_loss{{{SCRAPED}}})", instant=True),
                    query(f"max by (run) (ldlm_train_eta_seconds{{{SCRAPED}}})", instant=True),
                    width=14,
                ),
                listing(
                    "Firing alerts",
                    "What fires now, by run and rank.",
                    "short",
                    query(
                        "max by (severity, alertname, run, rank) (ldlm_alerts"
                        f'{{{SCRAPED},alertstate="firing",severity!="none"}})',
                        instant=True,
                    ),
                    width=10,
                ),
            ],
            "Progress": [
                graph(
                    "Seconds since progress",
                    "How long ago the step of each run last advanced.",
                    "s",
                    query(age, "{{run}}"),
                    width=12,
                ),
                graph(
                    "Throughput against its own baseline",
                    "1 is the pace that the run usually has.",
                    "percentunit",
                    query(f"min by (run) (ldlm_detect_throughput_ratio{{{SCRAPED}}})", "{{run}}"),
                    width=12,
                ),
            ],
        },
    )


def run_health() -> models.Dashboard:
    """One run, or some side by side."""
    progress = f"ldlm_train_last_progress_timestamp_seconds{{{RUN}}}"
    return board(
        "ldlm-run-health",
        "One training: whether it learns, how fast, and what happened to it.",
        ("cluster", "job", "instance", "run"),
        {
            "Now": [
                number(
                    "Health",
                    "The worst severity that fires for the run.",
                    "short",
                    f"max by (run) (ldlm_run_health{{{RUN}}})",
                    *_HEALTH_STEPS,
                    words=True,
                ),
                number(
                    "State",
                    "What the run is doing: each state that it is in.",
                    "short",
                    f"max by (run, state) (ldlm_run_state{{{RUN}}} == 1)",
                    legend="{{state}}",
                ),
                number(
                    "Step",
                    "The last step that was told.",
                    "short",
                    f"max by (run) (ldlm_train_step{{{RUN}}})",
                ),
                number(
                    "Done",
                    "Share of all steps that is done.",
                    "percentunit",
                    f"max by (run) (ldlm_train_progress_ratio{{{RUN}}})",
                ),
                number(
                    "Time left",
                    "To the last step, at the present pace.",
                    "s",
                    f"max by (run) (ldlm_train_eta_seconds{{{RUN}}})",
                ),
                number(
                    "Of the stall limit",
                    "Seconds since progress over how many are normal in this phase; a stall from "
                    "1 on.",
                    "percentunit",
                    f"(time() - max by (run) ({progress})) / "
                    f"max by (run) (ldlm_train_stall_limit_seconds{{{RUN}}})",
                    ("green", None),
                    ("yellow", 0.5),
                    ("red", 1.0),
                ),
            ],
            "Learning": [
                graph(
                    "Loss",
                    "As each rank tells it. A gap is NaN or infinite; see the alerts on the axis.",
                    "short",
                    query(f"ldlm_train_loss{{{RUN}}}", "{{run}} {{rank}}"),
                    query(f"ldlm_eval_loss{{{RUN}}}", "{{run}} evaluation"),
                    width=12,
                ),
                graph(
                    "Components of the loss",
                    "Each part that the trainer tells by name.",
                    "short",
                    query(f"ldlm_train_component_loss{{{RUN}}}", "{{component}} {{rank}}"),
                    width=12,
                ),
                graph(
                    "Gradient norm",
                    "Before clipping, on a logarithmic axis.",
                    "short",
                    query(f"ldlm_train_grad_norm{{{RUN}}}", "{{run}} {{rank}}"),
                    log=True,
                ),
                graph(
                    "Learning rate",
                    "As the trainer tells it.",
                    "sci",
                    query(f"ldlm_train_learning_rate{{{RUN}}}", "{{run}}"),
                ),
                graph(
                    "NaN, Inf and skipped steps",
                    "Values that were not finite, by quantity, and steps that were skipped.",
                    "short",
                    query(
                        "sum by (quantity) (increase(ldlm_train_nonfinite_total"
                        f"{{{RUN}}}[$__rate_interval]))",
                        "{{quantity}}",
                    ),
                    query(
                        "sum by (run) (increase(ldlm_train_skipped_steps_total"
                        f"{{{RUN}}}[$__rate_interval]))",
                        "skipped",
                    ),
                ),
            ],
            "Speed and memory": [
                graph(
                    "Throughput",
                    "Samples and tokens a second, as told.",
                    "short",
                    query(f"ldlm_train_samples_per_second{{{RUN}}}", "samples {{rank}}"),
                    query(f"ldlm_train_tokens_per_second{{{RUN}}}", "tokens {{rank}}"),
                ),
                graph(
                    "Against its own baseline",
                    "The present pace over the usual one.",
                    "percentunit",
                    query(f"ldlm_detect_throughput_ratio{{{RUN}}}", "{{run}}"),
                ),
                graph(
                    "Step time",
                    "Seconds a step.",
                    "s",
                    query(f"ldlm_train_step_seconds{{{RUN}}}", "{{run}} {{rank}}"),
                ),
                graph(
                    "Memory",
                    "Of the accelerator, allocated and reserved.",
                    "bytes",
                    query(f"ldlm_train_memory_allocated_bytes{{{RUN}}}", "allocated {{rank}}"),
                    query(f"ldlm_train_memory_reserved_bytes{{{RUN}}}", "reserved {{rank}}"),
                    width=12,
                ),
                graph(
                    "Progress against the stall limit",
                    "Seconds since the step last advanced, and how many are normal.",
                    "s",
                    query(f"time() - max by (run) ({progress})", "since progress {{run}}"),
                    query(f"ldlm_train_stall_limit_seconds{{{RUN}}}", "limit {{run}}"),
                    width=12,
                ),
            ],
            "Events and alerts": [
                graph(
                    "Events",
                    "Typed events of the logs, by kind.",
                    "short",
                    query(
                        f"sum by (kind) (increase(ldlm_events_total{{{RUN}}}[$__rate_interval]))",
                        "{{kind}}",
                    ),
                    width=12,
                ),
                listing(
                    "Alerts",
                    "What is pending and what fires.",
                    "short",
                    query(
                        "max by (alertstate, severity, alertname, run, rank) "
                        f'(ldlm_alerts{{{RUN},severity!="none"}})',
                        instant=True,
                    ),
                    width=12,
                ),
            ],
        },
    )


def ranks() -> models.Dashboard:
    """Which rank is behind, slow, or failed first."""
    return board(
        "ldlm-ranks",
        "The ranks of a run: who is behind, who is slow, who failed and with what.",
        ("cluster", "job", "instance", "run", "rank"),
        {
            "Pace": [
                bands(
                    "Steps behind",
                    "Steps that each rank is behind the furthest.",
                    "short",
                    f"ldlm_detect_rank_lag_steps{{{RANK}}}",
                    ("green", None),
                    ("yellow", 1.0),
                    ("red", 5.0),
                ),
                bands(
                    "Own step time against the median rank",
                    "1 is as quick as the others.",
                    "percentunit",
                    f"ldlm_detect_rank_slowdown_ratio{{{RANK}}}",
                    ("green", None),
                    ("yellow", 1.1),
                    ("red", 1.3),
                ),
                graph(
                    "Slowest and median step",
                    "Seconds a step, over the ranks.",
                    "s",
                    query(f"max by (run) (ldlm_train_step_seconds{{{RANK}}})", "slowest {{run}}"),
                    query(
                        f"quantile by (run) (0.5, ldlm_train_step_seconds{{{RANK}}})",
                        "median {{run}}",
                    ),
                    width=12,
                ),
                listing(
                    "Furthest behind",
                    "The ten ranks that are furthest behind, or slowest.",
                    "short",
                    query(f"topk(10, ldlm_detect_rank_lag_steps{{{RANK}}})", instant=True),
                    query(f"topk(10, ldlm_detect_rank_slowdown_ratio{{{RANK}}})", instant=True),
                    width=12,
                ),
            ],
            "Events": [
                graph(
                    "Events by kind",
                    "Failures of NCCL, CUDA, the host, processes and data loaders.",
                    "short",
                    query(
                        "sum by (kind) (increase(ldlm_events_total"
                        f'{{{RANK},severity=~"error|critical"}}[$__rate_interval]))',
                        "{{kind}}",
                    ),
                    width=12,
                ),
                graph(
                    "Events by rank",
                    "The rank whose line rises first failed first.",
                    "short",
                    query(
                        "sum by (run, rank) (increase(ldlm_events_total"
                        f'{{{RANK},severity=~"error|critical"}}[$__rate_interval]))',
                        "{{run}} rank {{rank}}",
                    ),
                    width=12,
                ),
                listing(
                    "What failed",
                    "Errors of each rank in the time shown, by kind.",
                    "short",
                    query(
                        "sum by (run, rank, kind, severity) (increase(ldlm_events_total"
                        f'{{{RANK},severity=~"error|critical"}}[$__range])) > 0',
                        instant=True,
                    ),
                ),
            ],
            "Memory and losses": [
                graph(
                    "Memory of each rank",
                    "Allocated on the accelerator.",
                    "bytes",
                    query(f"ldlm_train_memory_allocated_bytes{{{RANK}}}", "{{run}} rank {{rank}}"),
                    width=12,
                ),
                graph(
                    "Loss of each rank",
                    "Ranks see different batches; one that leaves the others is worth a look.",
                    "short",
                    query(f"ldlm_train_loss{{{RANK}}}", "{{run}} rank {{rank}}"),
                    width=12,
                ),
            ],
        },
    )


def monitor() -> models.Dashboard:
    """Whether the monitor itself is well."""

    def rate(metric: str, by: str, more: str = "") -> str:
        return f"sum by ({by}) (rate({metric}{{{SCRAPED}{more}}}[$__rate_interval]))"

    return board(
        "ldlm-monitor",
        "The monitor itself: whether it reads, judges and delivers.",
        ("cluster", "job", "instance"),
        {
            "Reading": [
                graph(
                    "Behind",
                    "Bytes of the followed files that are not read yet.",
                    "bytes",
                    query(f"ldlm_monitor_behind_bytes{{{SCRAPED}}}", "{{instance}}"),
                ),
                graph(
                    "Bytes read",
                    "By instance.",
                    "Bps",
                    query(rate("ldlm_monitor_bytes_total", "instance"), "{{instance}}"),
                ),
                graph(
                    "Records",
                    "Parsed, by type.",
                    "cps",
                    query(rate("ldlm_monitor_records_total", "record"), "{{record}}"),
                ),
                graph(
                    "Lines that could not be decoded",
                    "And what was dropped, by reason.",
                    "cps",
                    query(rate("ldlm_monitor_parse_errors_total", "instance"), "{{instance}}"),
                    query(rate("ldlm_monitor_dropped_total", "reason"), "{{reason}}"),
                    width=12,
                ),
                graph(
                    "Lines read",
                    "By instance.",
                    "cps",
                    query(rate("ldlm_monitor_lines_total", "instance"), "{{instance}}"),
                    width=12,
                ),
            ],
            "Judging and delivering": [
                graph(
                    "One evaluation of all rules",
                    "Seconds; the grid is 5 s.",
                    "s",
                    query(f"ldlm_monitor_evaluation_seconds{{{SCRAPED}}}", "{{instance}}"),
                    limit=2.5,
                ),
                graph(
                    "Evaluations",
                    "A second.",
                    "cps",
                    query(rate("ldlm_monitor_evaluations_total", "instance"), "{{instance}}"),
                ),
                graph(
                    "Notifications",
                    "By receiver and outcome.",
                    "short",
                    query(
                        "sum by (receiver, outcome) (increase(ldlm_monitor_notifications_total"
                        f"{{{SCRAPED}}}[$__rate_interval]))",
                        "{{receiver}} {{outcome}}",
                    ),
                ),
                graph(
                    "Room for its state",
                    "Free bytes of the disk that keeps it.",
                    "bytes",
                    query(f"ldlm_monitor_state_free_bytes{{{SCRAPED}}}", "{{instance}}"),
                ),
                listing(
                    "Its own alerts",
                    "What it says of itself; Watchdog always fires.",
                    "short",
                    query(
                        "max by (alertname, alertstate, severity) (ldlm_alerts"
                        f'{{{SCRAPED},alertname=~"Monitor.*|Watchdog"}})',
                        instant=True,
                    ),
                ),
            ],
        },
    )
