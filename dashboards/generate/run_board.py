"""One training, or some side by side."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from .parts import RUN, Column, board, graph, listing, number, query, risen

# The colour from each value of `ldlm_run_health` on: 0 healthy, 1 warning, 2 unhealthy, 3 critical.
_HEALTH_STEPS = (("green", None), ("yellow", 1.0), ("orange", 2.0), ("red", 3.0))


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
                    names=True,
                ),
                number(
                    "Step",
                    "The last logged step.",
                    "none",
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
                    "As each rank logs it. A gap is NaN or infinite; see the alerts on the axis.",
                    "short",
                    query(f"ldlm_train_loss{{{RUN}}}", "{{run}} {{rank}}"),
                    query(f"ldlm_eval_loss{{{RUN}}}", "{{run}} evaluation"),
                    width=12,
                ),
                graph(
                    "Components of the loss",
                    "Each part that the trainer logs by name.",
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
                    "As the trainer logs it.",
                    "sci",
                    query(f"max by (cluster, run) (ldlm_train_learning_rate{{{RUN}}})", "{{run}}"),
                ),
                graph(
                    "NaN, Inf and skipped steps",
                    "Values that were not finite, by quantity, and steps that were skipped.",
                    "short",
                    query(
                        f"sum by (quantity) {risen(f'ldlm_train_nonfinite_total{{{RUN}}}')}",
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
                    "Samples and tokens (axis on the right) a second, as logged.",
                    "short",
                    query(f"ldlm_train_samples_per_second{{{RUN}}}", "samples {{rank}}"),
                    query(f"ldlm_train_tokens_per_second{{{RUN}}}", "tokens {{rank}}"),
                    right="B",
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
                        f"sum by (kind) {risen(f'ldlm_events_total{{{RUN}}}')}",
                        "{{kind}}",
                    ),
                    width=12,
                ),
                listing(
                    "Alerts",
                    "What is pending and what fires.",
                    Column(
                        "",
                        "max by (alertstate, severity, alertname, run, rank) "
                        f'(ldlm_alerts{{{RUN},severity!="none"}})',
                    ),
                    width=12,
                ),
            ],
        },
    )
