"""Templates read as Go's do, and what Go would read differently is refused."""

import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ldlm_monitor.alerts import Template
from ldlm_monitor.alerts.humanize import FILTERS
from ldlm_monitor.model.errors import RuleError

NAN, INF = math.nan, math.inf

HUMANIZED: list[tuple[str, float, str]] = [
    ("humanize", 0.0, "0"),
    ("humanize", 1.0, "1"),
    ("humanize", 1234567.0, "1.235M"),
    ("humanize", 999.96, "1000"),
    ("humanize", 0.00001234, "12.34u"),
    ("humanize", -1500.0, "-1.5k"),
    ("humanize", 1e30, "1e+06Y"),
    ("humanize", NAN, "NaN"),
    ("humanize", INF, "+Inf"),
    ("humanize", -INF, "-Inf"),
    ("humanize1024", 1.0, "1"),
    ("humanize1024", 1536.0, "1.5ki"),
    ("humanize1024", 8.5899e10, "80Gi"),
    ("humanize1024", 0.5, "0.5"),
    ("humanizeDuration", 0.0, "0s"),
    ("humanizeDuration", 0.0125, "12.5ms"),
    ("humanizeDuration", 59.9999, "60s"),
    ("humanizeDuration", 35.0, "35s"),
    ("humanizeDuration", 61.5, "1m 1s"),
    ("humanizeDuration", 3661.0, "1h 1m 1s"),
    ("humanizeDuration", 90061.0, "1d 1h 1m 1s"),
    ("humanizeDuration", -3661.0, "-1h 1m 1s"),
    ("humanizeDuration", NAN, "NaN"),
    ("humanizeDuration", INF, "+Inf"),
    ("humanizePercentage", 0.1234, "12.34%"),
    ("humanizePercentage", NAN, "NaN%"),
    ("humanizeTimestamp", 1429877285.0, "2015-04-24 12:08:05 +0000 UTC"),
    ("humanizeTimestamp", 1429877285.5, "2015-04-24 12:08:05.5 +0000 UTC"),
    ("humanizeTimestamp", INF, "+Inf"),
]
EXPANDED: list[tuple[str, float, str]] = [
    ("{{ $value }}", 1234567.0, "1.234567e+06"),
    ("{{ $value }}", 100000.0, "100000"),
    ("{{ $value }}", 0.00001, "1e-05"),
    ("{{ $value }}", 0.1, "0.1"),
    ("{{ $value }}", -0.0, "-0"),
    ("{{ .Value }}|{{ $.Value }}", NAN, "NaN|NaN"),
    ("{{ $labels.run }} on {{ .Labels.rank }}", 1.0, "r1 on 3"),
    ("[{{ $labels.missing }}]", 1.0, "[]"),
    ("{{ with $labels.rank }}rank {{ . }}{{ end }}", 1.0, "rank 3"),
    ("{{ with $labels.missing }}rank {{ . }}{{ else }}all{{ end }}", 1.0, "all"),
    ("{{ with $value }}{{ . | humanize }}{{ end }}", 1500.0, "1.5k"),
    ("{{ if $labels.missing }}a{{ else if $labels.rank }}b{{ else }}c{{ end }}", 1.0, "b"),
    ("{{ if $value }}yes{{ else }}no{{ end }}", 0.0, "no"),
    ("{{ if $value }}yes{{ else }}no{{ end }}", NAN, "yes"),
    ("a {{- $labels.rank -}} b", 1.0, "a3b"),
    ("a{{/* said to nobody */}}b", 1.0, "ab"),
    ('{{ printf "%.2f" $value }}', 1.005, "1.00"),
    ('{{ $value | printf "%8.3f|" }}', 2.5, "   2.500|"),
    ('{{ printf "%-8.1f|%+.1f|%06.2f" $value $value $value }}', 2.5, "2.5     |+2.5|002.50"),
    ('{{ printf "%.1f%%" $value }}', 12.34, "12.3%"),
    ('{{ printf "%.2f" $value }}', INF, "+Inf"),
    ('{{ printf "%6.2f|" $value }}', NAN, "   NaN|"),
    (
        '{{ printf "%v %g %.3g %e" $value $value $value $value }}',
        123456789.0,
        "1.23456789e+08 1.23456789e+08 1.23e+08 1.234568e+08",
    ),
    ('{{ printf "%s/%5s/%v" $labels.run $labels.rank "}}" }}', 1.0, "r1/    3/}}"),
    ("{{ humanize $value }} {{ $value | humanizeDuration }}", 90.0, "90 1m 30s"),
    (r'{{ printf "\"%s\"\t\\" $labels.run }}', 1.0, '"r1"\t\\'),
    ("{{ $value -}} \n\u00a0x\u00a0\t{{- $value }}", 1.0, "1\u00a0x\u00a01"),
]
LABELS = {"run": "r1", "rank": "3"}


@pytest.mark.parametrize(("name", "value", "text"), HUMANIZED)
def test_humanize(name: str, value: float, text: str) -> None:
    assert FILTERS[name](value) == text


@pytest.mark.parametrize(("source", "value", "text"), EXPANDED)
def test_expansion(source: str, value: float, text: str) -> None:
    assert Template.parse(source).expand(LABELS, value) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ $labels }}",
        "{{ $externalURL }}",
        "{{ $labels.run | toUpper }}",
        "{{ $labels.run | humanize }}",
        '{{ query "up" }}',
        "{{ range $labels }}{{ end }}",
        "{{ . }}",
        "{{ with $value }}{{ .Labels.run }}{{ end }}",
        '{{ printf "%d" $value }}',
        '{{ printf "%s" $value }}',
        '{{ printf "%.2f" $labels.run }}',
        '{{ printf "%05s" $labels.run }}',
        '{{ printf "%8g" $value }}',
        '{{ printf "%.2f" }}',
        '{{ printf "%.2f %.2f" $value }}',
        "{{ }}",
        "{{ $value | }}",
        "{{ $x := $value }}",
        '{{ if eq $labels.run "a" }}{{ end }}',
        "{{ printf $labels.run }}",
        "{{ $labels.run $value }}",
        r'{{ printf "\u00b5%.0f" $value }}',
    ],
)
def test_what_lies_beyond_is_refused(source: str) -> None:
    with pytest.raises(RuleError, match="not supported"):
        Template.parse(source)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("{{ if $labels.run }}never closed", "{{ if }} is closed by nothing"),
        ("{{ end }}", "{{ end }} without a block"),
        ("{{ else }}", "{{ else }} without a block"),
        ("{{ $value", "{{ is not closed"),
        (
            "{{ with $value }}{{ else if $value }}{{ end }}",
            "{{ with }} is closed by else if $value",
        ),
    ],
)
def test_a_mistake_is_reported_as_one(source: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        Template.parse(source)
    assert caught.value.what == what


@pytest.mark.live
@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)
def test_prometheus_expands_the_same_text(tmp_path: Path) -> None:
    cases = [(f"{{{{ $value | {name} }}}}", value, text) for name, value, text in HUMANIZED]
    rules: list[dict[str, Any]] = []
    expectations: list[dict[str, Any]] = []
    for number, (source, value, text) in enumerate([*cases, *EXPANDED]):
        literal = repr(value).replace("inf", "Inf").replace("nan", "NaN")
        expr = f'label_replace(label_replace(vector({literal}),"run","r1","",""),"rank","3","","")'
        rules.append({"alert": f"A{number}", "expr": expr, "annotations": {"text": source}})
        expectations.append(
            {
                "eval_time": "0s",
                "alertname": f"A{number}",
                "exp_alerts": [{"exp_labels": LABELS, "exp_annotations": {"text": text}}],
            }
        )
    (tmp_path / "r.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    unit_test = {
        "rule_files": ["r.yml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "alert_rule_test": expectations}],
    }
    path = tmp_path / "t.yml"
    path.write_text(yaml.safe_dump(unit_test))
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
