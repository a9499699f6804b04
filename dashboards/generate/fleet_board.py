"""All trainings at once."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from .parts import SCRAPED, Column, board, graph, listing, number, query, stripes

_WORLD_SIZE = f"max by (cluster, run) (ldlm_run_world_size{{{SCRAPED}}})"
_STALLED = f'max by (cluster, run) (ldlm_run_state{{{SCRAPED},state="stalled"}})'
_LOST_GPUS = f"{_STALLED} * on (cluster, run) ({_WORLD_SIZE} or {_STALLED} ^ 0)"
"""By run, as rules/recording.yml has it; one where no log has the world size."""


def fleet() -> models.Dashboard:
    """All runs at once."""
    age = (
        f"time() - max by (cluster, run) (ldlm_train_last_progress_timestamp_seconds{{{SCRAPED}}})"
    )
    return board(
        "ldlm-fleet",
        "Every training at once: who is ill, who stands still, what fires.",
        ("cluster", "job", "instance"),
        {
            "Now": [
                number(
                    "Runs that go on",
                    "Runs that have not ended.",
                    "short",
                    f"count(max by (cluster, run) (ldlm_run_state{{{SCRAPED},"
                    'state!~"finished|crashed|killed|ended"}) == 1) or vector(0)',
                    legend="runs",
                ),
                number(
                    "Stalled runs",
                    "Runs whose step has not advanced for longer than is normal for them.",
                    "short",
                    f"count({_STALLED} == 1) or vector(0)",
                    ("green", None),
                    ("red", 1.0),
                    legend="stalled",
                ),
                number(
                    "Critical runs",
                    "Runs with a critical alert that fires.",
                    "short",
                    f"count(max by (cluster, run) (ldlm_run_health{{{SCRAPED}}}) == 3) "
                    "or vector(0)",
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
                    f"sum(max by (cluster, run) (ldlm_train_samples_per_second{{{SCRAPED}}})) "
                    "or vector(0)",
                    legend="samples/s",
                ),
                number(
                    "Lost GPU-hours",
                    "Accelerators of runs that stood still beyond their limit, times how long, in "
                    "the time shown.",
                    "h",
                    f"sum(sum_over_time(({_LOST_GPUS})[$__range:1m])) / 60 or vector(0)",
                    ("green", None),
                    ("orange", 1.0),
                    legend="GPU-hours",
                ),
            ],
            "Health": [
                stripes(
                    "Health of each run",
                    "The worst severity that fires for it, over time.",
                    f"max by (cluster, run) (ldlm_run_health{{{SCRAPED}}})",
                    "{{run}}",
                ),
                listing(
                    "Runs",
                    "How each run stands: health, step, time since the step last advanced, "
                    "loss and time left.",
                    Column(
                        "Health",
                        f"max by (cluster, run) (ldlm_run_health{{{SCRAPED}}})",
                        words=True,
                    ),
                    Column("Step", f"max by (cluster, run) (ldlm_train_step{{{SCRAPED}}})", "none"),
                    Column("Since progress", age, "s"),
                    Column("Loss", f"avg by (cluster, run) (ldlm_train_loss{{{SCRAPED}}})"),
                    Column(
                        "Time left",
                        f"max by (cluster, run) (ldlm_train_eta_seconds{{{SCRAPED}}})",
                        "s",
                    ),
                    width=14,
                ),
                listing(
                    "Firing alerts",
                    "What fires now, by run and rank.",
                    Column(
                        "",
                        "max by (severity, alertname, run, rank) (ldlm_alerts"
                        f'{{{SCRAPED},alertstate="firing",severity!="none"}})',
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
                    query(
                        f"min by (cluster, run) (ldlm_detect_throughput_ratio{{{SCRAPED}}})",
                        "{{run}}",
                    ),
                    width=12,
                ),
            ],
        },
    )
