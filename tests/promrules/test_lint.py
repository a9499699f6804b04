"""The lint warns by what its caller says that there is."""

from pathlib import Path

import pytest

from ldlm_promrules import Catalogue, Interval, lint, load_rules, parse
from ldlm_promrules.rule_lint import NEVER

KNOWN = Catalogue(
    series={"jobs", "jobs_total", "state"},
    listed_in="see the list",
    labels={"state": ("job", "of")},
    values={("state", "of"): ("on", "off")},
    bounds={"state": Interval(0, 1)},
    severities=("page", "ticket"),
)


def warnings(folder: Path, expr: str, catalogue: Catalogue | None, severity: str = "page") -> str:
    path = folder / "rules.yml"
    path.write_text(
        f"groups: [{{name: g, rules: [{{alert: A, expr: '{expr}', "
        f"labels: {{severity: {severity}}}}}]}}]",
        encoding="utf-8",
    )
    return "\n".join(lint(load_rules([path], parse).rules, catalogue))


@pytest.mark.parametrize(
    ("expr", "what"),
    [
        ("jobz > 1", "nothing here exports jobz; did you mean jobs?"),
        ("zzz > 1", "nothing here exports zzz; see the list"),
        ('state{off="x"} > 0', 'off="x" selects no series: state has the labels job, of'),
        ('state{of="x"} > 0', 'of="x" selects no series: it is one of on, off'),
        ("state > 1", NEVER),
    ],
)
def test_what_cannot_be_is_warned_of(tmp_path: Path, expr: str, what: str) -> None:
    assert what in warnings(tmp_path, expr, KNOWN)
    # Nobody who knows nothing is warned.
    assert warnings(tmp_path, expr, None) == ""


def test_severities_are_those_of_the_catalogue(tmp_path: Path) -> None:
    assert "severity 'loud' is none of page, ticket" in warnings(tmp_path, "jobs", KNOWN, "loud")
    assert warnings(tmp_path, "jobs", None, "loud") == ""


@pytest.mark.parametrize("expr", ["jobs", "up == 0", 'state{of="on", instance="a"}', "state > 0"])
def test_what_may_be_is_not_warned_of(tmp_path: Path, expr: str) -> None:
    assert warnings(tmp_path, expr, KNOWN) == ""


@pytest.mark.parametrize(
    "label", ["{{ $value }}", "at {{ .Value | humanize }}", "{{ printf `%.0f` $value }} steps"]
)
def test_a_label_that_has_the_value_makes_a_new_alert_of_each(tmp_path: Path, label: str) -> None:
    said = warnings(tmp_path, "jobs > 1", None, f'"{label}"')
    assert "the label severity has the value, so that each other value is another alert" in said


@pytest.mark.parametrize(
    "label", ["{{ $labels.job }}", "{{ if gt $value 0.9 }}page{{ else }}ticket{{ end }}", "page"]
)
def test_a_label_of_limits_or_of_labels_is_none(tmp_path: Path, label: str) -> None:
    assert warnings(tmp_path, "jobs > 1", None, f'"{label}"') == ""
