"""A truth file that cannot be used is refused in one line: what, where, how to mend it."""

import json
from pathlib import Path

import pytest

from ldlm_monitor.base.errors import TruthError
from ldlm_monitor.finished.backtest.truth import load_truth, match_logs

NAN = '{"kind": "nan", "line_number": 7, "severity": "failure"}'


def entry(event: str = NAN, file: str = "a.log") -> str:
    return f'[{{"file": "{file}", "truth": {{"events": [{event}]}}}}]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "truth.json: Invalid JSON: EOF while parsing a list at line 1 column 1; it must be"),
        ("\xff", "truth.json: Invalid JSON: "),
        ('{"file": "a.log"}', "truth.json: should be a valid array; it must be"),
        ('[{"truth": {"events": []}}]', "truth.json: 0.file: Field required; it must be"),
        ('[{"file": "a.log"}]', "truth.json: 0.truth.events: Field required; it must be"),
        ('[{"file": "a.log", "truth": {}}]', "truth.json: 0.truth.events: Field required"),
        (
            entry(NAN + ", " + NAN.replace("7", "0")),
            "truth.json: 0.truth.events.1.line_number: should be greater than",
        ),
        (
            entry(NAN.replace("7", '"7"')),
            "truth.json: 0.truth.events.0.line_number: should be a valid integer",
        ),
        (
            entry(NAN.replace("failure", "bad")),
            "truth.json: 0.truth.events.0.severity: should be 'failure', 'warning' ",
        ),
        (
            entry(NAN.replace("7", '7, "last_line": 6')),
            "truth.json: 0.truth.events.0: last_line lies before line_number; it must be",
        ),
        (
            entry(NAN.replace("nan", "nun")),
            "truth.json: a.log, line 7: unknown kind 'nun'; write an alert's name, or",
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
            ["a.log", "b.log"],
            ["a.log"],
            (
                "truth.json: b.log fits none of the logs given; name each log once; "
                "in the truth file, by enough of its path"
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
                "truth.json: a.log fits 1/a.log, 2/a.log; name each log once; "
                "in the truth file, by enough of its path"
            ),
        ),
        (
            ["a.log", "a.log"],
            ["a.log"],
            "truth.json: a.log and a.log are the same log; put its events into one entry",
        ),
        (
            ["a.log", "1/a.log"],
            ["1/a.log"],
            "truth.json: a.log and 1/a.log are the same log; put its events into one entry",
        ),
    ],
)
def test_truth_and_logs_must_be_of_the_same_logs(
    tmp_path: Path, files: list[str], logs: list[str], message: str
) -> None:
    with pytest.raises(TruthError) as raised:
        match(tmp_path, files, logs)
    assert str(raised.value) == message
