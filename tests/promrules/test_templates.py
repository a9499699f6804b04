"""Templates are expanded as Prometheus expands them, and refused where it refuses them."""

import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from ldlm_promrules.alerting import Context, Template
from ldlm_promrules.errors import RuleError
from ldlm_promrules.samples import VectorSample
from ldlm_promrules.templates.humanize import FILTERS
from ldlm_promrules.unit_tests import run_rule_tests

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)

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
    ("{{ $labels }} {{ .ExternalLabels }}", 1.0, "map[rank:3 run:r1] map[]"),
    ("{{ . }}", 2.0, "{map[rank:3 run:r1] map[]  2}"),
    ("{{ $x := 1 }}{{ if $x }}{{ $x = 2 }}{{ end }}{{ $x }}", 1.0, "2"),
    ("{{ range $k, $v := $labels }}{{ $k }}={{ $v }},{{ else }}-{{ end }}", 1.0, "rank=3,run=r1,"),
    ('{{ range .Labels }}{{ if eq . "3" }}{{ continue }}{{ end }}{{ . }}{{ end }}', 1.0, "r1"),
    ("{{ range args 1 2 3 }}{{ . }}{{ break }}{{ end }}", 1.0, "1"),
    ('{{ define "a" }}<{{ . }}>{{ end }}{{ template "a" $value }}', 1.5, "<1.5>"),
    ('{{ block "b" $labels.run }}[{{ . }}]{{ end }}', 1.0, "[r1]"),
    ('{{ if and (gt $value 1.0) (ne $labels.run "x") }}y{{ end }}', 2.0, "y"),
    ('{{ reReplaceAll "(r)([0-9])" "$2${1}" $labels.run }}', 1.0, "1r"),
    ('{{ "caf\\u00e9 \\x41" }} {{ `a\\n` }} {{ len "é" }}', 1.0, "café A a\\n 2"),
    (
        '{{ printf "%05d|%q|%v|%x|%d" 42 "a" nil "hi" "x" }}',
        1.0,
        '00042|"a"|<nil>|6869|%!d(string=x)',
    ),
    (
        '{{ stripPort "a.b:80" }} {{ stripDomain "a.b:80" }} {{ title "a bc" }}',
        1.0,
        "a.b a:80 A Bc",
    ),
    ('{{ index $labels "run" }} {{ slice "abc" 1 }} {{ parseDuration "1h" }}', 1.0, "r1 bc 3600"),
    ('{{ (toTime $value).Format "2006-01-02" }} {{ toDuration 90 }}', 0.0, "1970-01-01 1m30s"),
    (
        '{{ urlQueryEscape "a b" }} {{ html "<" }} {{ tableLink "up" }}',
        1.0,
        "a+b &lt; /graph?g0.expr=up&g0.tab=1",
    ),
    (
        "{{ if gt $value 90 }}x{{ end }}",
        95.0,
        "<error expanding template: incompatible types for comparison>",
    ),
]
LABELS = {"run": "r1", "rank": "3"}


@pytest.mark.parametrize(("name", "value", "text"), HUMANIZED)
def test_humanize(name: str, value: float, text: str) -> None:
    assert FILTERS[name](value) == text


@pytest.mark.parametrize(("source", "value", "text"), EXPANDED)
def test_expansion(source: str, value: float, text: str) -> None:
    assert Template.parse(source).expand(LABELS, value) == text


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("{{ if $labels.run }}never closed", "{{ if }} is closed by nothing"),
        ("{{ end }}", "{{ end }} without a block"),
        ("{{ else }}", "{{ else }} without a block"),
        ("{{ $value", "{{ is not closed"),
        ("{{ $foo }}", "$foo is not defined"),
        ("{{ $value | humanise }}", "humanise is not defined"),
        ("{{ /* c */ }}", "'/* c */ }}' is no part of an action"),
        ('{{ "a\\q" }}', "the escape \\q does not exist in Go"),
        ("{{ break }}", "{{ break }} outside {{ range }}"),
        ("{{ }}", "a value is missing in an action"),
        ("{{ " + "(" * 99 + "1" + ")" * 99 + " }}", "nested deeper than 40 levels"),
    ],
)
def test_a_mistake_is_reported_as_one(source: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        Template.parse(source)
    assert caught.value.what == what


def test_a_query_is_answered_at_the_time_of_the_alert() -> None:
    def query(text: str, at: float) -> list[VectorSample]:
        assert (text, at) == ("up", 60.0)
        return [VectorSample((("__name__", "up"), ("job", "b")), 2.0)]

    source = '{{ with query "up" }}{{ . | first | label "job" }} {{ (first .).Value }}{{ end }}'
    assert Template.parse(source).expand({}, 1.0, 60.0, Context(query)) == "b 2"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("{{ range 1000000000 }}x{{ end }}", "it takes more than 20000 steps"),
        ('{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}', "within each other"),
        ('{{ printf "%100000d" 1 }}', "a width beyond 65536"),
        ('{{ reReplaceAll "" (printf "%9999d" 1) (printf "%9999d" 1) }}', "a text longer than"),
        ('{{ $x := "ab" }}{{ range 99 }}{{ $x = print $x $x }}{{ end }}', "longer than 65536"),
        ('{{ range 99 }}{{ query "up" }}{{ end }}', "it takes more than 20000 steps"),
    ],
)
def test_no_template_takes_unbounded_time_or_memory(source: str, what: str) -> None:
    context = Context(lambda text, at: [])
    text = Template.parse(source).expand({}, 1.0, 0.0, context)
    assert text.startswith("<error expanding template: ")
    assert what in text


# Of templates.txt: what Prometheus 2.42 does otherwise than Prometheus 3, and otherwise than here.
NEWER = ("urlQueryEscape", "{{ now", "print now", "externalURL", "| len | lt")
OTHERWISE = {
    "{{ 1i }}": "no template has a use for complex numbers",
    '{{ query "q" }}': "Go prints where in memory the samples are",
    "title": "2.42 begins a word after each character that is no letter, 3 as Unicode does",
}


def differs(source: str) -> bool:
    return any(text in source for text in (*NEWER, *OTHERWISE))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> "Promtool":
    return Promtool(tmp_path_factory.mktemp("promtool"))


class Promtool:
    """Puts templates into annotations of alerts, and asks promtool about them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, sources: Sequence[str], exprs: Sequence[str]) -> Path:
        rules = [
            {"alert": f"A{number}", "expr": expr, "annotations": {"text": source}}
            for number, (source, expr) in enumerate(zip(sources, exprs, strict=True))
        ]
        path = self.folder / "r.yml"
        path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
        return path

    def refuses(self, sources: Sequence[str]) -> set[str]:
        path = self.write(sources, ["m"] * len(sources))
        done = run("check", "rules", str(path))
        return {sources[int(n)] for n in re.findall(r', "A(\d+)": ', done.stdout + done.stderr)}

    def tests(
        self, sources: Sequence[str], exprs: Sequence[str], texts: Sequence[str], **external: str
    ) -> Path:
        """A unit test by which each template must give its text."""
        self.write(sources, exprs)
        expected = [
            {
                "eval_time": "5m",
                "alertname": f"A{number}",
                "exp_alerts": [{"exp_labels": LABELS, "exp_annotations": {"text": text}}],
            }
            for number, text in enumerate(texts)
        ]
        series = [
            ('m{run="r1",rank="3"}', "1234.5+0x9"),
            ('q{a="x"}', "1+1x9"),
            ('q{a="b"}', "5x9"),
        ]
        test = {
            "interval": "1m",
            "external_labels": external,
            "input_series": [{"series": name, "values": values} for name, values in series],
            "alert_rule_test": expected,
        }
        path = self.folder / "t.yml"
        path.write_text(yaml.safe_dump({"rule_files": ["r.yml"], "tests": [test]}))
        return path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)


def sources() -> list[str]:
    """The templates of templates.txt, a line each, where ¶ is a line feed."""
    lines = Path(__file__).with_name("templates.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("¶", "\n") for line in lines]


def refused(source: str) -> bool:
    try:
        Template.parse(source)
    except RuleError:
        return True
    return False


@needs_promtool
def test_prometheus_refuses_the_same_templates(asked: Promtool) -> None:
    known = [source for source in sources() if not differs(source)]
    assert {source for source in known if refused(source)} == asked.refuses(known)


@needs_promtool
def test_prometheus_expands_the_same_texts(asked: Promtool) -> None:
    cases = [(f"{{{{ $value | {name} }}}}", value, text) for name, value, text in HUMANIZED]
    cases += [
        case
        for case in EXPANDED
        if not case[2].startswith("<error") and "toD" not in case[0] and not differs(case[0])
    ]
    literals = [repr(value).replace("inf", "Inf").replace("nan", "NaN") for _, value, _ in cases]
    exprs = [
        f'label_replace(label_replace(vector({each}),"run","r1","",""),"rank","3","","")'
        for each in literals
    ]
    path = asked.tests([each[0] for each in cases], exprs, [each[2] for each in cases])
    done = run("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_gives_the_same_texts_and_errors_for_whole_templates(asked: Promtool) -> None:
    """Both run one unit test, which expects texts that no template gives."""
    known = [each for each in sources() if not differs(each) and not refused(each)]
    path = asked.tests(known, ["m"] * len(known), [""] * len(known), cluster="c1")
    done = run("test", "rules", str(path))
    ours = texts("\n".join(run_rule_tests(path).failures))
    theirs = texts(done.stdout + done.stderr)
    assert len(theirs) > 150
    assert ours == theirs


def texts(shown: str) -> dict[str, str]:
    """The text of each alert that a failed unit test shows as `got`; errors without their words."""
    found = re.findall(r'alertname: (A\d+)(?s:.*?)got:\[(?s:.*?)Annotations:\{text="(.*)"\}', shown)
    return {name: "error" if text.startswith("<error") else text for name, text in found}
