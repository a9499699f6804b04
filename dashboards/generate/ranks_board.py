"""The ranks of a training, and NCCL's events."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from .parts import RANK, Column, bands, board, graph, listing, query, risen

_ERRORS = f'ldlm_events_total{{{RANK},severity=~"error|critical"}}'


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
                    Column("Steps behind", f"topk(10, ldlm_detect_rank_lag_steps{{{RANK}}})"),
                    Column(
                        "Step time against the median",
                        f"topk(10, ldlm_detect_rank_slowdown_ratio{{{RANK}}})",
                        "percentunit",
                    ),
                    width=12,
                ),
            ],
            "Events": [
                graph(
                    "Events by kind",
                    "Failures of NCCL, CUDA, the host, processes and data loaders.",
                    "short",
                    query(
                        f"sum by (kind) {risen(_ERRORS)}",
                        "{{kind}}",
                    ),
                    width=12,
                ),
                graph(
                    "Events by rank",
                    "The rank whose line rises first failed first.",
                    "short",
                    query(
                        f"sum by (run, rank) {risen(_ERRORS)}",
                        "{{run}} rank {{rank}}",
                    ),
                    width=12,
                ),
                listing(
                    "Failed first",
                    "The rank that the incident of a critical alert names.",
                    Column(
                        "",
                        "max by (cluster, run, rank) (ldlm_alerts"
                        f'{{{RANK},rank!="",severity="critical",alertstate="firing"}})',
                    ),
                    width=8,
                ),
                listing(
                    "What failed",
                    "Errors of each rank in the time shown, by kind.",
                    Column(
                        "Events",
                        f"sum by (run, rank, kind, severity) {risen(_ERRORS, '$__range')} > 0",
                    ),
                    width=16,
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
