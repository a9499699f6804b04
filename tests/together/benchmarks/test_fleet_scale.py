"""What a fleet costs: the copies that Prometheus is given, and the line that is drawn on."""

import re

import pytest

from fleet_scale import (
    GOAL_NODES,
    Above,
    Copies,
    OneNode,
    drawn_on,
    measure_monitors,
    slope,
    tables,
)

BODY = b'a{rank="0",run="job"} 1\nb{run="job",rank="7"} 2\nc{frank="3"} 4\n'


def test_a_copy_differs_from_the_original_in_the_ranks_alone() -> None:
    copies = Copies(BODY)
    try:
        assert copies.body(0) == BODY
        assert copies.body(2) == BODY.replace(b'rank="0"', b'rank="16"').replace(
            b'rank="7"', b'rank="23"'
        )
    finally:
        copies.close()


def above(nodes: int, series: float) -> Above:
    return Above(nodes, series, 100 + series / 100, nodes / 1000, {"g": nodes / 100})


def test_what_is_drawn_on_lies_on_the_line_through_what_was_measured() -> None:
    assert slope([(1, 3), (2, 5), (3, 7)]) == (pytest.approx(1), pytest.approx(2))
    found = [above(10, 2100), above(20, 4100)]
    assert drawn_on(found, "series") == pytest.approx(100 + 200 * GOAL_NODES)
    shown = tables(OneNode(0.01, 80.0, 0.02, BODY), found)
    assert "drawn on* | *250,100*" in shown
    assert "Memory for 1,000 series: 10.0 MB" in shown


@pytest.mark.live
def test_a_monitor_serves_the_series_of_the_ranks_of_its_node() -> None:
    one = measure_monitors("ldlm-monitor", 1, 1.0)
    assert one.resident > 10
    ranks = {int(rank) for rank in re.findall(rb'[{,]rank="(\d+)"', one.body)}
    assert ranks == set(range(8))
    assert one.series > one.of_ranks > 8 * 10
