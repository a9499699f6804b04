"""Findings as text, as lines, as JSON, as SARIF, as a comment and as a diff."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ldlm_doctor.audit import in_order, reaches
from ldlm_doctor.changes import changed_lines, comment, touched
from ldlm_doctor.errors import DoctorError
from ldlm_doctor.live import Process, described
from ldlm_doctor.live import as_json as process_json
from ldlm_doctor.model import SEVERITIES, Check, Edit, Finding, Kind, SourceFile, checks
from ldlm_doctor.repair import Repair
from ldlm_doctor.setting import Setting
from ldlm_doctor.show import as_json, diff, lines, sarif, summary, text
from ldlm_doctor.words import counted, duration, printable

OF: dict[str, Check] = {
    severity: next(check for check in checks().values() if check.severity == severity)
    for severity in SEVERITIES
}
SINCE = next(check for check in checks().values() if check.since)
EDIT = Edit("a.sh", 0, 1, b"x")


def finding(severity: str, line: int = 1, **more: object) -> Finding:
    made = Finding(OF[severity].id, "a.sh", line, f"line {line}")
    return replace(made, **more)  # type: ignore[arg-type]


def clean(text: str) -> str:
    return text.replace("hunter2", "[redacted]")


WORST_FIRST = [
    finding("critical", 3, detail="it is 90"),
    finding("error", 4, edits=(EDIT,)),
    finding("info", 5),
]


def shown(*findings: Finding, colour: bool = False, files: int = 2) -> list[str]:
    return [*text(findings, files, None, colour=colour, clean=clean)]


def test_findings_are_counted_from_the_worst() -> None:
    assert summary([]) == "nothing found"
    assert summary([*WORST_FIRST, finding("info", 9)]) == "1 critical, 1 error, 2 info"


def test_a_paragraph_says_what_where_why_and_what_to_do() -> None:
    check = OF["critical"]
    found = shown(finding("critical", 3, detail="it is 90", path="hunter2.sh"), files=1)
    assert found[:3] == [
        f"CRITICAL  {check.title}  [{check.id}]",
        "  [redacted].sh:3: line 3",
        "      it is 90",
    ]
    body = [line.strip() for line in found[3:-2]]
    rest = " ".join(body)
    assert rest.startswith(" ".join(check.why.split())[:60])
    assert f"Source: {check.source.split()[0]}" in rest
    assert f"Fix: {check.fix.split()[0]}" in rest
    assert all(len(line) <= 96 or " " not in line.strip() for line in found)
    assert all(line.startswith("    ") for line in found[3:-2])
    assert found[-2:] == ["", "1 critical in 1 file"]


def test_a_check_that_holds_from_a_version_says_so() -> None:
    found = shown(Finding(SINCE.id, "a.sh", 1, ""))
    assert found[1] == "  a.sh:1"
    assert any(line.startswith(f"    Since: {SINCE.since.split()[0]}") for line in found)
    assert not any("Since:" in line for line in shown(Finding(OF["error"].id, "a", 1, ""))) or (
        OF["error"].since
    )


def test_findings_of_one_check_share_a_paragraph_and_the_fixable_are_counted() -> None:
    found = shown(finding("error", 4, edits=(EDIT,)), finding("error", 5, edits=(EDIT,)))
    assert found.count("") == 1
    assert "(--fix does it)" in " ".join(" ".join(found).split())
    assert found[-2:] == [
        "2 error in 2 files",
        "--fix can fix 2 of them; it shows the change first",
    ]
    some = " ".join(shown(finding("error", 4, edits=(EDIT,)), finding("error", 5)))
    assert "(--fix does it)" not in " ".join(some.split())
    assert some.endswith("--fix can fix 1 of them; it shows the change first")


@pytest.mark.parametrize(("severity", "places"), [("warning", 12), ("info", 3)])
def test_a_paragraph_has_so_many_places(severity: str, places: int) -> None:
    full = shown(*(finding(severity, line) for line in range(places)))
    assert not any("more places" in line for line in full)
    more = shown(*(finding(severity, line) for line in range(places + 2)))
    assert more[places + 1] == "  and 2 more places (--json has all)"
    assert more[places] == f"  a.sh:{places - 1}: line {places - 1}"


def test_long_evidence_is_cut_and_on_one_line() -> None:
    exact, long = (shown(finding("error", evidence="x " * half))[1] for half in (80, 81))
    assert exact == "  a.sh:1: " + "x " * 79 + "x"
    assert long == f"  a.sh:1: {('x ' * 79)[:157]}..."


@pytest.mark.parametrize(
    ("severity", "code"), [("critical", "1;31"), ("error", "31"), ("warning", "33"), ("info", "36")]
)
def test_colours_are_those_of_the_severity(severity: str, code: str) -> None:
    first = shown(finding(severity), colour=True)[0]
    assert first.startswith(f"\x1b[{code}m{severity.upper()}\x1b[0m  ")


def test_lines_are_as_compilers_write_them() -> None:
    critical, info = OF["critical"], OF["info"]
    assert [*lines([WORST_FIRST[0], WORST_FIRST[2]], 3, clean)] == [
        f"a.sh:3: critical: {critical.title}: it is 90 [{critical.id}]",
        f"a.sh:5: info: {info.title} [{info.id}]",
        "1 critical, 1 info in 3 files",
    ]


def test_the_json_has_every_finding_with_its_check() -> None:
    found = as_json(WORST_FIRST, 2, ["one"], None, clean=clean)
    assert {**found, "findings": None} == {
        "schema": "ldlm.doctor/1", "files": 2, "notices": ["one"], "findings": None,
        "summary": {"critical": 1, "error": 1, "warning": 0, "info": 1},
    }  # fmt: skip
    first, second, _ = json.loads(json.dumps(found))["findings"]
    assert (first["id"], first["line"], first["detail"]) == (OF["critical"].id, 3, "it is 90")
    assert (first["fixable"], second["fixable"]) == (False, True)
    assert first["why"] == OF["critical"].why


def test_sarif_has_each_check_once_and_places_with_encoded_names(tmp_path: Path) -> None:
    absolute = finding("critical", 9, path=str(tmp_path / "b c.sh"))
    found = json.loads(json.dumps(sarif([*WORST_FIRST, absolute, finding("info", 1)], "1.2")))
    (run,) = found["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert (found["version"], run["tool"]["driver"]["version"]) == ("2.1.0", "1.2")
    assert [rule["id"] for rule in rules] == [each.check_id for each in WORST_FIRST]
    assert [rule["defaultConfiguration"]["level"] for rule in rules] == ["error", "error", "note"]
    results = run["results"]
    assert [each["ruleIndex"] for each in results] == [0, 1, 2, 0, 2]
    assert [each["level"] for each in results] == ["error", "error", "note", "error", "note"]
    places = [each["locations"][0]["physicalLocation"] for each in results]
    assert places[0]["artifactLocation"]["uri"] == "a.sh"
    assert places[3]["artifactLocation"]["uri"] == (tmp_path / "b c.sh").as_uri()
    assert places[0]["region"] == {"startLine": 3, "snippet": {"text": "line 3"}}
    check = OF["critical"]
    assert results[0]["message"]["text"] == f"{check.title}: it is 90. {check.fix}"
    assert results[3]["message"]["text"] == f"{check.title}. {check.fix}"


def test_sarif_says_from_which_version_a_check_holds() -> None:
    found = json.loads(json.dumps(sarif([Finding(SINCE.id, "größe.sh", 1, "")], "1")))
    (rule,) = found["runs"][0]["tool"]["driver"]["rules"]
    assert rule["fullDescription"]["text"] == f"{SINCE.why} ({SINCE.since})"
    place = found["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "gr%C3%B6%C3%9Fe.sh"


def test_a_fix_is_shown_as_a_unified_diff_without_secrets() -> None:
    file = SourceFile("a.sh", Kind.SHELL, b"one\nhunter2\nthree\n")
    assert [*diff([Repair(file, b"one\nhunter2\nfour\n")], clean)] == [
        "--- a/a.sh", "+++ b/a.sh", "@@ -1,3 +1,3 @@", " one", " [redacted]", "-three", "+four",
    ]  # fmt: skip


def test_the_worst_comes_first_and_nothing_twice() -> None:
    info, late, early = finding("info"), finding("error", 9), finding("error", 2)
    other = finding("error", 1, path="b.sh")
    assert in_order([info, late, other, early, late]) == [early, late, other, info]


@pytest.mark.parametrize(
    ("severity", "reached"),
    [("info", True), ("warning", True), ("error", True), ("critical", False), ("never", False)],
)
def test_a_severity_is_reached_by_it_or_worse(severity: str, reached: bool) -> None:
    assert reaches([finding("info"), finding("error")], severity) is reached


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    subprocess.run(("git", *who, *arguments), cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "a.sh").write_text("one\ntwo\nthree\nfour\n")
    (tmp_path / "größe.sh").write_text("one\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        git(tmp_path, *command)
    (tmp_path / "a.sh").write_text("one\nTWO\nthree\nfour\nfive\nsix\n")
    (tmp_path / "größe.sh").write_text("zero\none\n")
    monkeypatch.chdir(tmp_path)
    return iter([tmp_path])


def test_changed_lines_are_those_that_a_change_adds_or_edits(repository: Iterator[Path]) -> None:
    folder = next(repository)
    assert changed_lines("main") == {folder / "a.sh": {2, 5, 6}, folder / "größe.sh": {1}}
    found = [finding("error", line) for line in range(1, 7)]
    assert [each.line for each in touched([*found, finding("error", 2, path="b.sh")], "main")] == [
        2, 5, 6,
    ]  # fmt: skip


def test_lines_that_are_only_removed_are_no_change(repository: Iterator[Path]) -> None:
    (next(repository) / "a.sh").write_text("one\nfour\n")
    assert changed_lines("main")[Path("a.sh").resolve()] == set()


@pytest.mark.parametrize(
    ("base", "why"), [("nosuch", "--diff: fatal: .*nosuch"), ("--output=x", "is no commit")]
)
def test_what_is_no_commit_is_refused(repository: Iterator[Path], base: str, why: str) -> None:
    folder = next(repository)
    before = sorted(os.listdir(folder))
    with pytest.raises(DoctorError, match=why):
        changed_lines(base)
    assert sorted(os.listdir(folder)) == before


def test_without_git_it_says_so(
    repository: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DoctorError, match="git is not installed"):
        changed_lines("main")


def test_a_comment_quotes_places_so_that_they_stay_code() -> None:
    assert [*comment([], "hunter2", clean)] == [
        "The doctor found nothing in the lines that differ from `[redacted]`."
    ]
    critical, error = OF["critical"], OF["error"]
    found = [finding("critical", 3, evidence="a `b`", detail="c"), finding("error", 4)]
    assert [*comment(found, "main", clean)] == [
        "The doctor found 2 in the lines that differ from `main`.",
        "",
        f"**critical: {critical.title}** ({critical.id})",
        "",
        "- `a.sh:3`: `a \u2019b\u2019` (`c`)",
        "",
        f"{critical.why} Fix: {critical.fix}",
        "",
        f"**error: {error.title}** ({error.id})",
        "",
        "- `a.sh:4`: `line 4`",
        "",
        f"{error.why} Fix: {error.fix}",
    ]


def setting(name: str, value: str) -> Setting:
    return Setting(name, value, "/proc/1/environ", 1, f"{name}={value}")


PROCESS = Process(
    7,
    ("python", "train.py", "--token", "hunter2"),
    (setting("NCCL_DEBUG", "hunter2"), setting("HOME", "/"), setting("NCCL_ALGO", "Ring")),
    (2, 6),
    8,
)


def test_a_process_is_described_by_what_it_was_started_with() -> None:
    head, torch, *settings, end = [*described(PROCESS, clean)]
    assert head == "process 7: python train.py --token [redacted]"
    assert torch == "  PyTorch 2.6, 8 cores; as it was started:"
    assert settings[:2] == ["  NCCL_ALGO=Ring", "  NCCL_DEBUG=[redacted]"]
    assert all(line.endswith(" (default)") for line in settings[2:])
    assert len(settings) > 2
    assert end == ""


def test_a_process_without_settings_says_so() -> None:
    bare = replace(PROCESS, settings=(), torch=None)
    assert [*described(bare, clean)][1:3] == [
        "  PyTorch not loaded, 8 cores; as it was started:",
        "  no setting of NCCL or PyTorch",
    ]
    assert process_json(bare, clean)["torch"] is None


def test_the_json_of_a_process_has_its_settings_and_defaults() -> None:
    found = process_json(PROCESS, clean)
    assert {**found, "defaults": None} == {
        "pid": 7, "command": "python train.py --token [redacted]", "torch": "2.6", "cores": 8,
        "settings": {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "[redacted]"}, "defaults": None,
    }  # fmt: skip
    assert found["defaults"]
    assert as_json([], 0, [], PROCESS, clean=clean)["process"] == found
    assert next(text([], 0, PROCESS, colour=False, clean=clean)).startswith("process 7:")


def test_counts_and_durations_are_as_the_monitor_writes_them() -> None:
    assert [counted(count, "file") for count in (0, 1, 1200)] == [
        "0 files",
        "1 file",
        "1,200 files",
    ]
    assert [duration(seconds) for seconds in (-1, 0.1234, 9.99, 10, 59.6, 61, 3600, 90061)] == [
        "0s", "0.123s", "9.99s", "10s", "1m", "1m 1s", "1h", "1d 1h",
    ]  # fmt: skip
    assert printable("a\x1b\n") == r"a\x1b\n"
