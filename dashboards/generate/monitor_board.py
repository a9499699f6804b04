"""The monitor itself."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from .parts import SCRAPED, Column, board, graph, listing, query


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
                        "sum by (receiver, outcome) (increase("
                        f"ldlm_monitor_notifications_total{{{SCRAPED}}}[$__rate_interval]))",
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
                    Column(
                        "",
                        "max by (alertname, alertstate, severity) (ldlm_alerts"
                        f'{{{SCRAPED},alertname=~"Monitor.*|Watchdog"}})',
                    ),
                    width=16,
                ),
            ],
        },
    )
