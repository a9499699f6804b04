"""The boards as they are committed: made by their generator, and by the rules of Grafana's linter.

The rules are those of https://github.com/grafana/dashboard-linter/tree/main/docs, all seventeen;
two are about LogQL, which no board asks.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from generate.boards import boards
from generate.parts import risen
from generate.written import as_json
from ldlm_monitor.base.points import Point
from ldlm_monitor.judge.core.exported_metrics import METRICS
from ldlm_promrules.promql import Evaluator, parse
from ldlm_promrules.series.series_store import SeriesStore

FOLDER = Path(__file__).parents[3] / "dashboards"
FILES = sorted(FOLDER.glob("*.json"))
OUR_DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SELECTOR = re.compile(r"(ldlm_\w+)\{([^}]*)\}")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(json.loads(request.param.read_text("utf-8")))


def variables(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in board["templating"]["list"]}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Those that show something, in rows or not."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def queries(board: dict[str, Any]) -> Iterator[str]:
    for panel in panels(board):
        yield from (target["expr"] for target in panel["targets"])
    yield from (each["expr"] for each in board["annotations"]["list"])


def plain(query: str) -> str:
    """PromQL without Grafana's variables."""
    for name, text in (("$__rate_interval", "1m"), ("$__range", "1h")):
        query = query.replace(name, text)
    return re.sub(r"\$\w+", ".+", query)


def test_each_board_is_what_its_generator_makes() -> None:
    made = {f"{each.uid}.json": as_json(each) for each in boards()}
    found = {path.name: path.read_text("utf-8") for path in FILES}
    assert found == made, "run `python -m generate` in dashboards/"


def test_there_are_three_levels_and_the_monitor_and_each_leads_to_the_others() -> None:
    uids = {"ldlm-fleet", "ldlm-run-health", "ldlm-ranks", "ldlm-goodput", "ldlm-monitor"}
    for each in boards():
        leads_to = {re.sub("^/d/", "", link.url or "") for link in each.links or []}
        assert leads_to == uids - {each.uid}


def test_data_sources_are_chosen_by_a_variable(board: dict[str, Any]) -> None:
    chosen = variables(board)["datasource"]
    assert (chosen["type"], chosen["query"], chosen["label"]) == (
        "datasource",
        "prometheus",
        "Data source",
    )
    for panel in panels(board):
        assert panel["datasource"] == OUR_DATA_SOURCE
        assert all(target["datasource"] == OUR_DATA_SOURCE for target in panel["targets"])


@pytest.mark.parametrize(("name", "label"), [("job", "Job"), ("instance", "Instance")])
def test_job_and_instance_can_be_chosen(board: dict[str, Any], name: str, label: str) -> None:
    variable = variables(board)[name]
    assert (variable["label"], variable["type"], variable["multi"]) == (label, "query", True)
    assert variable["allValue"] == ".+"
    assert variable["datasource"] == OUR_DATA_SOURCE


def test_variables_ask_what_prometheus_understands_and_anew_when_the_time_changes(
    board: dict[str, Any],
) -> None:
    for variable in variables(board).values():
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
            assert asked is not None
            parse(plain(asked[1]))
            assert variable["refresh"] == 2


def test_each_panel_says_what_it_shows_in_which_unit(board: dict[str, Any]) -> None:
    titles = [panel["title"] for panel in panels(board)]
    assert len(set(titles)) == len(titles)
    for panel in panels(board):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_no_panel_lies_over_another_or_beyond_the_grid(board: dict[str, Any]) -> None:
    """Grafana's grid has 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        where = panel["gridPos"]
        assert where["x"] + where["w"] <= 24, panel["title"]
        cells = {
            (where["x"] + right, where["y"] + down)
            for right in range(where["w"])
            for down in range(where["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells


def test_a_table_names_its_columns(board: dict[str, Any]) -> None:
    """`Value #A`, as Grafana calls them otherwise, means nothing to a reader."""
    for panel in panels(board):
        if panel["type"] == "table":
            options = panel["transformations"][-1]["options"]
            letters = [f"Value #{target['refId']}" for target in panel["targets"]]
            for name in letters if len(letters) > 1 else ["Value"]:
                assert options["renameByName"].get(name) or options["excludeByName"].get(name)
            units = {each["matcher"]["options"] for each in panel["fieldConfig"]["overrides"]}
            assert units == set(options["renameByName"].values())


def test_queries_are_promql_over_metrics_that_exist(board: dict[str, Any]) -> None:
    for query in queries(board):
        parse(plain(query))
        named = {name for name, _ in SELECTOR.findall(query)}
        assert named, query
        assert named <= METRICS.keys()


def test_every_selector_can_be_narrowed_to_a_job_and_an_instance(board: dict[str, Any]) -> None:
    for query in queries(board):
        assert query.count("ldlm_") == len(SELECTOR.findall(query))
        for _, matchers in SELECTOR.findall(query):
            assert 'job=~"$job"' in matchers
            assert 'instance=~"$instance"' in matchers


def test_counters_are_asked_for_their_increase_over_grafanas_interval(
    board: dict[str, Any],
) -> None:
    """And, beside it, for one that began within it: those of events and NaN do not begin at 0."""
    span = r"\$__(?:rate_interval|range)"
    newborn = rf"(ldlm_(?:events|train_nonfinite)_total\{{[^}}]*\}}) unless \1 offset {span}\)"
    newborn += rf" or increase\(\1\[{span}\]\)"
    asked = rf"(?:rate|increase)\(ldlm_\w+_total\{{[^}}]*\}}\[{span}\]\)"
    for query in queries(board):
        left = re.sub(asked, "", re.sub(newborn, "", query))
        assert "_total" not in left, query
        assert not re.search(r"rate\([^)]*\[(?!\$__rate_interval)", query)


def test_nobody_edits_a_board_in_place_and_all_share_a_crosshair(board: dict[str, Any]) -> None:
    assert board["editable"] is False
    assert board["graphTooltip"] == 1
    assert {each["name"] for each in board["annotations"]["list"]} == {
        "Alerts",
        "Checkpoints",
        "Restarts",
    }


@pytest.mark.parametrize("rise", ["increase(seen_total[1m])", risen("seen_total", "1m")])
def test_a_board_shows_the_first_event_of_a_kind_and_increase_alone_does_not(rise: str) -> None:
    """A counter of events begins with its first: without a 0 before it there is no increase."""
    store = SeriesStore(10.0, 3600.0)
    for at in range(0, 200, 10):
        seen = 1.0 if at < 150 else 2.0
        store.append([[Point("seen_total", (), seen)] if at >= 60 else []], float(at))
    shown = [sample.value for at in (65.0, 155.0) for sample in Evaluator(store)(parse(rise), at)]
    assert shown[-1] == pytest.approx(1.0, abs=0.25)
    assert len(shown) == (1 if rise.startswith("increase") else 2)
