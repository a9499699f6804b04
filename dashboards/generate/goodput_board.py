"""Where the time of trainings goes."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from .parts import RUN, Column, board, graph, listing, number, query

_BY_RUN = "max by (cluster, run)"
_SECONDS = f"max by (cluster, run, part) (ldlm_goodput_seconds{{{RUN}}})"
_TOTAL = f"sum by (cluster, run) ({_SECONDS})"
_LOST = f'max by (cluster, run, part) (ldlm_goodput_seconds{{{RUN},part!="productive"}})'
_RANKS = f"{_BY_RUN} (ldlm_run_world_size{{{RUN}}})"
_ANY_RANKS = f"({_RANKS} or {_TOTAL} ^ 0)"
"""One rank where no log has the world size."""


def goodput() -> models.Dashboard:
    """How much of the time advanced the trainings, and what the rest was lost to."""
    return board(
        "ldlm-goodput",
        "Where the time of trainings went: steps that were kept, and what the rest was lost to.",
        ("cluster", "job", "instance", "run"),
        {
            "Now": [
                number(
                    "Goodput",
                    "Share of the time of these runs that went into steps that were kept.",
                    "percentunit",
                    f'sum(max by (cluster, run) (ldlm_goodput_seconds{{{RUN},part="productive"}}))'
                    f" / sum({_TOTAL})",
                    ("red", None),
                    ("yellow", 0.8),
                    ("green", 0.9),
                    legend="goodput",
                    width=6,
                ),
                number(
                    "Lost GPU-hours",
                    "Time that did not advance the runs, times their ranks; pauses included.",
                    "h",
                    f"sum(sum by (cluster, run) ({_LOST}) * on (cluster, run) {_ANY_RANKS}) / 3600",
                    legend="GPU-hours",
                    width=6,
                ),
                number(
                    "Failures",
                    "Restarts, and failed ends.",
                    "short",
                    f"sum({_BY_RUN} (ldlm_goodput_failures{{{RUN}}}))",
                    legend="failures",
                    width=6,
                ),
                number(
                    "Least ETTR",
                    "Of these runs: the share of time that failures and starts left.",
                    "percentunit",
                    f"min(ldlm_goodput_ettr_ratio{{{RUN}}})",
                    legend="ETTR",
                    width=6,
                ),
            ],
            "By run": [
                listing(
                    "Runs",
                    "Share of kept steps, ETTR, failures and all time of each run.",
                    Column("Goodput", f"{_BY_RUN} (ldlm_goodput_ratio{{{RUN}}})", "percentunit"),
                    Column("ETTR", f"{_BY_RUN} (ldlm_goodput_ettr_ratio{{{RUN}}})", "percentunit"),
                    Column("Failures", f"{_BY_RUN} (ldlm_goodput_failures{{{RUN}}})"),
                    Column("Time", _TOTAL, "s"),
                    width=12,
                ),
                listing(
                    "Lost to",
                    "The ten greatest losses, by run and cause.",
                    Column("Lost", f"topk(10, {_LOST})", "s"),
                    width=12,
                ),
            ],
            "Over time": [
                graph(
                    "Goodput of each run",
                    "Of its time from its start to then.",
                    "percentunit",
                    query(f"{_BY_RUN} (ldlm_goodput_ratio{{{RUN}}})", "{{run}}"),
                    width=12,
                ),
                graph(
                    "Lost time",
                    "Seconds lost to each cause, over these runs.",
                    "s",
                    query(f"sum by (part) ({_LOST})", "{{part}}"),
                    width=12,
                ),
            ],
        },
    )
