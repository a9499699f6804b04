"""A truth file that cannot be used is refused in one line: what, where, how to mend it."""

import json
from pathlib import Path

import pytest

from ldlm_monitor.analysis.backtest.truth import load_truth, match_logs
from ldlm_monitor.model.errors import TruthError

NAN = '{"kind": "nan", "line_number": 7, "severity": "failure"}'


def entry(event: str = NAN, file: str = "a.log") -> str:
    return f'[{{"file": "{file}", "truth": {{"events": [{event}]}}}}]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "truth.json, line 1, column 2: is no JSON: Expecting value; it must be [{"),
        ("\xff", "truth.json: is no UTF-8 text; it must be"),
        ('{"file": "a.log"}', "truth.json: Input should be a list; it must be"),
        ('[{"truth": {"events": []}}]', "truth.json: entry 1, file: Field required; it must be"),
        ('[{"file": "a.log"}]', "truth.json: entry 1 (a.log), truth: Field required; it must be"),
        ('[{"file": "a.log", "truth": {}}]', "truth.json: entry 1 (a.log), events: Field required"),
        (
            entry(NAN + ", " + NAN.replace("7", "0")),
            "truth.json: entry 1 (a.log), event 2, line_number: Input should be greater than",
        ),
        (
            entry(NAN.replace("7", '"7"')),
            "truth.json: entry 1 (a.log), event 1, line_number: Input should be a valid integer",
        ),
        (
            entry(NAN.replace("failure", "bad")),
            "truth.json: entry 1 (a.log), event 1, severity: Input should be 'failure', 'warning' ",
        ),
        (
            entry(NAN.replace("7", '7, "last_line": 6')),
            "truth.json: entry 1 (a.log), event 1: last_line lies before line_number; it must be",
        ),
        (
            entry(NAN.replace("nan", "nun")),
            "truth.json: entry 1 (a.log), event 1: unknown kind 'nun'; write an alert's name, or",
        ),
        (
            json.dumps([*json.loads(entry()), *json.loads(entry())]),
            "truth.json: a.log has two entries; put its events into one entry",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "truth.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(TruthError) as raised:
        load_truth(path, ())
    assert str(raised.value).removeprefix(f"{tmp_path}/").startswith(message)


def test_a_benign_thing_may_be_of_any_kind_and_an_alerts_name_is_one(tmp_path: Path) -> None:
    path = tmp_path / "truth.json"
    path.write_text(entry(NAN.replace("nan", "odd").replace("failure", "benign")), "utf-8")
    (truth,) = load_truth(path, ())
    assert (truth.file, truth.expected) == ("a.log", ())
    path.write_text(entry(NAN.replace("nan", "MyAlert")), "utf-8")
    (truth,) = load_truth(path, {"MyAlert"})
    assert [event.kind for event in truth.expected] == ["MyAlert"]


def match(tmp_path: Path, files: list[str], logs: list[str]) -> list[tuple[str, str]]:
    path = tmp_path / "truth.json"
    path.write_text(
        json.dumps([{"file": file, "truth": {"events": []}} for file in files]), "utf-8"
    )
    pairs = match_logs(Path("truth.json"), load_truth(path, ()), [Path(log) for log in logs])
    return [(truth.file, str(log)) for truth, log in pairs]


def test_an_entry_and_its_log_find_each_other_by_the_end_of_the_path(tmp_path: Path) -> None:
    logs = ["runs/1/train.log", "runs/2/train.log", "b.log"]
    files = ["b.log", "2/train.log", "1/train.log"]
    assert match(tmp_path, files, logs) == [
        ("b.log", "b.log"),
        ("2/train.log", "runs/2/train.log"),
        ("1/train.log", "runs/1/train.log"),
    ]


@pytest.mark.parametrize(
    ("files", "logs", "message"),
    [
        (
            ["a.log", "b.log", "c.log", "d.log", "e.log"],
            ["a.log"],
            (
                "truth.json: names b.log, c.log, d.log and 1 more, not among the logs given; "
                "name these logs too, or take them out of the truth file"
            ),
        ),
        (
            ["a.log"],
            ["a.log", "logs/b.log"],
            (
                "truth.json: has no entry for logs/b.log; add an entry for it (of no events, "
                "if it is healthy), or leave the log out"
            ),
        ),
        (
            ["a.log"],
            ["1/a.log", "2/a.log"],
            (
                "truth.json: a.log may be any of 1/a.log, 2/a.log; write more of its path into the "
                "truth file, or name one of them only"
            ),
        ),
        (
            ["a.log", "1/a.log"],
            ["1/a.log"],
            "truth.json: a.log, 1/a.log are the same log, 1/a.log; put its events into one entry",
        ),
    ],
)
def test_truth_and_logs_must_be_of_the_same_logs(
    tmp_path: Path, files: list[str], logs: list[str], message: str
) -> None:
    with pytest.raises(TruthError) as raised:
        match(tmp_path, files, logs)
    assert str(raised.value) == message
