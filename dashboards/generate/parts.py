"""What the boards share: variables, annotations, colours, and the kinds of panel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

Panel: TypeAlias = Any
"""A builder of the SDK; its panels have no type in common."""

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
SCRAPED = 'job=~"$job",instance=~"$instance",cluster=~"$cluster"'
RUN = f'{SCRAPED},run=~"$run"'
RANK = f'{RUN},rank=~"$rank"'
HEALTH = (("HEALTHY", "green"), ("WARNING", "yellow"), ("UNHEALTHY", "orange"), ("CRITICAL", "red"))
SEVERITIES = (("info", "blue"), ("warning", "yellow"), ("error", "orange"), ("critical", "red"))
BOARDS = {
    "ldlm-fleet": "Fleet",
    "ldlm-run-health": "Run health",
    "ldlm-ranks": "Ranks & NCCL",
    "ldlm-goodput": "Goodput",
    "ldlm-monitor": "Monitor itself",
}


def board(
    uid: str, purpose: str, variables: Sequence[str], rows: dict[str, list[Panel]]
) -> models.Dashboard:
    """A board of `rows` of panels, with the variables that its queries name."""
    built = (
        dashboard.Dashboard(f"LDLM · {BOARDS[uid]}")
        .uid(uid)
        .description(purpose)
        .tags(["ldlm-monitor"])
        .readonly()
        .refresh("10s")
        .time("now-3h", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
    )
    built.with_variable(
        dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source")
    )
    for name in variables:
        built.with_variable(_variable(name))
    for annotation in _annotations("run" in variables):
        built.annotation(annotation)
    for other, title in BOARDS.items():
        if other != uid:
            link = dashboard.DashboardLink(title).type(models.DashboardLinkType.LINK)
            built.link(link.url(f"/d/{other}").include_vars(True).keep_time(True))
    for title, panels in rows.items():
        built.with_row(dashboard.Row(title))
        for panel in panels:
            built.with_panel(panel)
    return built.build()


def _variable(name: str) -> dashboard.QueryVariable:
    asked = {
        "cluster": ("Cluster", "label_values(ldlm_monitor_lines_total, cluster)"),
        "job": ("Job", "label_values(ldlm_monitor_lines_total, job)"),
        "instance": ("Instance", 'label_values(ldlm_monitor_lines_total{job=~"$job"}, instance)'),
        "run": ("Run", f"label_values(ldlm_run_info{{{SCRAPED}}}, run)"),
        "rank": ("Rank", f"label_values(ldlm_train_step_seconds{{{RUN}}}, rank)"),
    }
    label, query = asked[name]
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        # Not every series has a cluster or a rank: all of them includes none.
        .all_value(".*" if name in ("cluster", "rank") else ".+")
        .current(models.VariableOption(text="All", value="$__all", selected=True))
    )


def _annotations(of_runs: bool) -> Iterable[dashboard.AnnotationQuery]:
    chosen = RUN if of_runs else SCRAPED
    queries = (
        ("Alerts", "red", f'ldlm_alerts{{{chosen},alertstate="firing",severity!="none"}} > 0'),
        ("Checkpoints", "green", _rise(chosen, "checkpoint_saved")),
        (
            "Restarts",
            "purple",
            f"increase(ldlm_run_restarts_total{{{chosen}}}[$__rate_interval]) > 0",
        ),
    )
    for name, colour, expr in queries:
        yield (
            dashboard.AnnotationQuery()
            .name(name)
            .enable(True)
            .icon_color(colour)
            .datasource(SOURCE)
            .expr(expr)
        )


def _rise(chosen: str, kinds: str) -> str:
    return risen(f'ldlm_events_total{{{chosen},kind=~"{kinds}"}}') + " > 0"


def risen(counter: str, span: str = "$__rate_interval") -> str:
    """By how much a counter of `ldlm_events_total` or NaN rose, with its first event.

    `increase` alone never sees that one, which is the only one of most failures: which kinds and
    ranks a run will have, nobody knows before, so these do not begin at 0 as other counters do.
    """
    return f"(({counter} unless {counter} offset {span}) or increase({counter}[{span}]))"


def query(expr: str, legend: str = "", *, instant: bool = False) -> prometheus.Dataquery:
    """One query; its letter is given by the panel."""
    built = prometheus.Dataquery().expr(expr).legend_format(legend or "__auto").datasource(SOURCE)
    if instant:
        return built.instant().format(prometheus_models.PromQueryFormat.TABLE)
    return built.range()


def _common(
    panel: Panel, title: str, meaning: str, unit: str, *queries: Any, size: tuple[int, int]
) -> Panel:
    panel.title(title).description(meaning).unit(unit).datasource(SOURCE)
    panel.span(size[0]).height(size[1])
    for letter, each in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(each.ref_id(letter))
    return panel


def graph(
    title: str,
    meaning: str,
    unit: str,
    *queries: Any,
    log: bool = False,
    limit: float | None = None,
    right: str = "",
    width: int = 8,
) -> Panel:
    """Lines over time; `log`: on a logarithmic axis; `limit`: a line from which it is bad.

    `right` is the letter of a query of another order, which has the axis on the right.
    """
    panel = _common(timeseries.Panel(), title, meaning, unit, *queries, size=(width, 8))
    panel.fill_opacity(0).line_width(1.5).show_points(common_models.VisibilityMode.NEVER)
    panel.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
    panel.legend(
        common.VizLegendOptions()
        .display_mode(common_models.LegendDisplayMode.LIST)
        .placement(common_models.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    if log:
        scale = common.ScaleDistributionConfig()
        panel.scale_distribution(scale.type(common_models.ScaleDistribution.LOG).log(10))
    if right:
        placed = models.DynamicConfigValue(
            id_val="custom.axisPlacement", value=common_models.AxisPlacement.RIGHT
        )
        panel.override_by_query(right, [placed])
    if limit is not None:
        panel.thresholds(_thresholds(("green", None), ("red", limit)))
        style = common.GraphThresholdsStyleConfig()
        panel.thresholds_style(style.mode(common_models.GraphTresholdsStyleMode.DASHED))
    return panel


def number(
    title: str,
    meaning: str,
    unit: str,
    expr: str,
    *steps: tuple[str, float | None],
    legend: str = "{{run}}",
    width: int = 4,
    words: bool = False,
    names: bool = False,
) -> Panel:
    """The last value, coloured from each of `steps` on; `words`: it is a health.

    `names`: what there is, by its legend, instead of the value.
    """
    panel = _common(stat.Panel(), title, meaning, unit, query(expr, legend), size=(width, 4))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.thresholds(_thresholds(*(steps or (("text", None),))))
    panel.graph_mode(common_models.BigValueGraphMode.AREA)
    if words:
        panel.mappings(_healths())
    if names:
        panel.text_mode(common_models.BigValueTextMode.NAME)
    return panel


def stripes(title: str, meaning: str, expr: str, legend: str, *, width: int = 24) -> Panel:
    """A health of each series over time, as coloured stripes."""
    panel = _common(
        statetimeline.Panel(), title, meaning, "short", query(expr, legend), size=(width, 8)
    )
    panel.mappings(_healths()).thresholds(_thresholds(("green", None)))
    return panel.merge_values(True).row_height(0.9)


def bands(
    title: str,
    meaning: str,
    unit: str,
    expr: str,
    *steps: tuple[str, float | None],
    legend: str = "{{run}} rank {{rank}}",
) -> Panel:
    """A row of each rank over time, coloured by its value: a thousand at a glance."""
    panel = _common(statetimeline.Panel(), title, meaning, unit, query(expr, legend), size=(12, 10))
    panel.thresholds(_thresholds(*steps)).show_value(common_models.VisibilityMode.NEVER)
    scheme = dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)
    return panel.color_scheme(scheme).merge_values(True).row_height(1.0)


@dataclass(frozen=True, slots=True)
class Column:
    """What a table shows of each of its rows; without a title the row itself says it all.

    `words`: it is a health.
    """

    title: str
    expr: str
    unit: str = "short"
    words: bool = False


def listing(title: str, meaning: str, *columns: Column, width: int = 24) -> Panel:
    """A table of what is now; several columns are joined by their labels."""
    queries = (query(each.expr, instant=True) for each in columns)
    panel = _common(table.Panel(), title, meaning, "short", *queries, size=(width, 9))
    hidden = {"Time": True, "__name__": True, "job": True, "instance": True}
    titles: dict[str, str] = {}
    for letter, column in zip("ABCDEFGH", columns, strict=False):
        # As Grafana calls it: with the query's letter where there are several.
        name = f"Value #{letter}" if len(columns) > 1 else "Value"
        if not column.title:
            hidden[name] = True
            continue
        titles[name] = column.title
        properties = [models.DynamicConfigValue(id_val="unit", value=column.unit)]
        if column.words:
            properties += [
                models.DynamicConfigValue(id_val="mappings", value=_healths()),
                models.DynamicConfigValue(
                    id_val="custom.cellOptions", value={"type": "color-text"}
                ),
            ]
        panel.override_by_name(column.title, properties)
    if len(columns) > 1:
        panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    options: dict[str, Any] = {"excludeByName": hidden, "indexByName": {}, "renameByName": titles}
    panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=options))
    return panel


def _thresholds(*steps: tuple[str, float | None]) -> dashboard.ThresholdsConfig:
    marks = [models.Threshold(value=value, color=colour) for colour, value in steps]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(marks)


def _healths() -> list[models.ValueMap]:
    shown = {
        str(number): models.ValueMappingResult(text=word, color=colour, index=number)
        for number, (word, colour) in enumerate(HEALTH)
    }
    return [models.ValueMap(options=shown)]
