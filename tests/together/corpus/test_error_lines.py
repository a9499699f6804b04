"""One line of an error, as public frameworks print it, raises the alert that is meant.

`half`: `writing` lines were at hand when the patterns were written, `figure` lines were put aside;
`later`, `last` and `fourth` were found afterwards, and each sample was measured before a change.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.names import LAST_EVENT
from ldlm_monitor.base.records import Event
from ldlm_monitor.logs.parse import Parser

HERE = Path(__file__).parent
LINES: list[dict[str, Any]] = [
    json.loads(line) for line in (HERE / "error_lines.jsonl").read_text().splitlines()
]
RULES = yaml.safe_load((HERE.parents[2] / "rules/default.yml").read_text())
OF_KINDS = [
    (rule["alert"], re.compile("|".join(re.findall(r'kind=~?"([^"]+)"', rule["expr"]))))
    for group in RULES["groups"]
    for rule in group["rules"]
    if LAST_EVENT in rule["expr"]
]
OF_QUANTITY = {"loss": "NonFiniteLoss", "grad_norm": "NonFiniteGradient"}


def alerts(line: str) -> Iterator[str]:
    """The alerts that the events of a line count for; the end of a worker is TrainingCrashed."""
    parser = Parser()
    chunk = Chunk("train.log", (1, 1, 0), 0, 1, f"{line}\n".encode(), final=True)
    for event in [*parser.feed(chunk, Origin(run="r"), 0.0), *parser.finish("train.log")]:
        if not isinstance(event, Event) or event.severity not in ("error", "critical"):
            continue
        yield from (name for name, kinds in OF_KINDS if kinds.fullmatch(event.kind))
        yield OF_QUANTITY.get(str(event.fields.get("quantity")), "")
        if event.kind == "elastic_worker_failed":
            yield "TrainingCrashed"


@pytest.mark.parametrize("row", LINES, ids=lambda row: f"{row['half']}-{row['source']}")
def test_the_line_of_an_error_raises_its_alert(row: dict[str, Any]) -> None:
    raised = set(alerts(row["line"])) - {""}
    assert row["alert"] in raised if row["alert"] else not raised
