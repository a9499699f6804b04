"""`check_rules` accepts the rule files that `promtool check rules` accepts, and no others."""

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ldlm_promrules.alerting import check_rules
from ldlm_promrules.promql import parse

KINDS = ("alert: A", "record: a:b", "alert: 'A b'", "alert: A\n      record:")
ODD_KINDS = ("record: a b", "record: 1a", "alert: A\n      record: b", "alert:", "alrt: A")
EXPRESSIONS = ("up > 1", "1", "sum by (run) (ldlm_train_loss)", "'rate(x_total[5m])'", "up or down")
ODD_EXPRESSIONS = (
    "",
    "up >",
    "'{}'",
    "foo(up)",
    "'rate(x[5m:0s])'",
    "[1]",
    "up offset 0s",
    "'1_0'",
)
KEYS = (  # of any rule
    "labels:",
    "labels: {}",
    "labels: {severity: warning}",
    "labels: {a: 1.50, b: true, c: 2020-01-01, d: ~, e: 0x10}",
    "labels: {alertname: x}",
    "annotations:",
    "annotations: {}",
    "for:",
    "for: 0s",
    "for: 0",
    "keep_firing_for:",
)
ODD_KEYS = (
    "labels: {__name__: x}",
    "labels: {a-b: c}",
    "labels: {1a: c}",
    "labels: [a]",
    "labels: text",
    "labels: {a: {b: c}}",
    "labels: {a: '{{ $x }}'}",
    "labels: {a: b, a: c}",
    "annotations: {s: '{{ $value | humanise }}'}",
    "annotations: {a.b: c}",
    "annotations: {s: '{{ .Labels.run '}",
    "annotations: {__name__: x}",
    "for: 5",
    "for: 1.5h",
    "for: -5m",
    "for: 500y",
    "for: 1s1m",
    "for: [5m]",
    "fro: 5m",
    "expr: again",
    "limit: 3",
    "interval: 1m",
)
MERGES = ("", "", "    - {<<: *first, alert: B, record: , labels: , for: 5m}\n")
ODD_MERGES = ("    - *first\n", "    - <<: *none\n", "    - 5\n", "    -\n", "    - {<<: 5}\n")
GROUPS = ("", "interval: 0s", "interval: 1m", "interval:", "limit: 5", "limit: -1", "limit:")
ODD_GROUPS = (
    "interval: soon",
    "interval: 5",
    "limit: few",
    "limit: 1.5",
    "limit: 0x10",
    "lables: {a: b}",
    "name: h",
    "rules: []",
    "query_offset: 0s",
    "query_offset: 1m",
    "labels: {team: ml}",
    "partial_response_strategy: warn",
)
NAMES = ("g", "5", "'a b'", "true")
ODD_NAMES = ("", "''", "~", "[a]")
TAILS = ("", "", "  - name: h\n", "  - name: h\n    rules:\n", "  - {name: h, rules: []}\n")
ODD_TAILS = ("  - name: g\n  - name: g\n", "other: 1\n", "groups: []\n", "  -\n", "  - text\n")
WHOLE = ("", "# none\n", "groups:\n", "groups: []\n", "{}\n", "text\n", "[]\n", "groups: {}\n")

DIFFERENT = {  # a pattern of what a file holds -> why the verdicts may differ
    r"labels: \{team: ml\}|query_offset: 0s": "keys of groups since Prometheus 3; promtool is 2.42",
    r"'1_0'": "digits are grouped since Prometheus 3",
    r"limit: (0x10|1\.5)": "here a limit is a decimal integer; promtool takes 0x10 and cuts 1.5",
    r"(?m)^ +-$": "promtool skips an entry without content; here it is taken for a slip",
}


def rule_text(rng: random.Random, odd: str) -> str:
    """A file of good pieces, but for an odd piece in the place `odd`."""

    def piece(place: str, good: tuple[str, ...], bad: tuple[str, ...]) -> str:
        return rng.choice(bad if place == odd else good)

    kind = piece("kind", KINDS, ODD_KINDS)
    expr = piece("expression", EXPRESSIONS, ODD_EXPRESSIONS)
    keys = {key.split(":")[0]: key for key in rng.sample(KEYS, 2)}
    chosen = piece("key", ("",), ODD_KEYS)
    keys[chosen.split(":")[0]] = chosen
    lines = [kind, f"expr: {expr}", *(key for key in keys.values() if key)]
    rule = "    - &first\n" + "".join(f"      {line}\n" for line in lines)
    group = piece("group", GROUPS, ODD_GROUPS)
    return (
        f"groups:\n  - name: {piece('name', NAMES, ODD_NAMES)}\n"
        + (f"    {group}\n" if group else "")
        + f"    rules:\n{rule}{piece('merge', MERGES, ODD_MERGES)}"
        + piece("tail", TAILS, ODD_TAILS)
    )


def texts(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    places = (
        "",
        "",
        "",
        "kind",
        "expression",
        "key",
        "key",
        "key",
        "group",
        "merge",
        "name",
        "tail",
    )
    return [*WHOLE, *(rule_text(rng, rng.choice(places)) for _ in range(count - len(WHOLE)))]


def verdicts_of_promtool(folder: Path) -> dict[str, bool]:
    command = ["promtool", "check", "rules", "--lint=none"]
    names = sorted(path.name for path in folder.iterdir())
    done = subprocess.run(
        [*command, *names], cwd=folder, capture_output=True, text=True, check=False
    )
    outcomes = re.findall(r"Checking (\S+)\s+(SUCCESS|FAILED)", done.stdout + done.stderr)
    if len(outcomes) != len(names):  # the errors go to another stream than the names
        failed = set(re.findall(r"^(\S+?\.yml): ", done.stderr, re.MULTILINE))
        outcomes = [(name, "FAILED" if name in failed else "SUCCESS") for name in names]
    return {name: outcome == "SUCCESS" for name, outcome in outcomes}


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)
@pytest.mark.parametrize(
    ("seed", "count"), [(22, 60), pytest.param(23, 300, marks=pytest.mark.long)]
)
def test_the_verdicts_are_those_of_promtool(tmp_path: Path, seed: int, count: int) -> None:
    for number, text in enumerate(texts(seed, count)):
        (tmp_path / f"{number:03}.yml").write_text(text, encoding="utf-8")
    verdicts = verdicts_of_promtool(tmp_path)
    assert len(verdicts) == count
    assert 0.2 * count < sum(verdicts.values()) < 0.8 * count
    wrong = []
    for name, accepted in verdicts.items():
        text = (tmp_path / name).read_text(encoding="utf-8")
        problems = check_rules(tmp_path / name, parse)[1]
        expected = any(re.search(pattern, text) for pattern in DIFFERENT)
        if accepted == bool(problems) and not expected:
            wrong.append(f"promtool {accepted}, we {[str(each) for each in problems]}:\n{text}")
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong)
