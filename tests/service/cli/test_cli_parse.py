"""`parse`: typed records on stdout."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.records import from_json

Ask = Callable[..., Any]
ROWS = (
    b'{"epoch": 0, "step": 7, "loss": 2.5, "lr": 5e-4}\n'
    b'{"epoch": 0, "step": 8, "loss": NaN, "lr": 5e-4}\n'
)


def test_a_record_a_line_with_nan_as_text(ask: Ask, folder: Path) -> None:
    (folder / "training_log.jsonl").write_bytes(ROWS)
    answer = ask("parse", "--run", "gpt2", "training_log.jsonl")
    assert answer.code == 0
    samples = [json.loads(line) for line in answer.out.splitlines()]
    assert [sample["step"] for sample in samples] == [7, 8]
    assert [sample["values"]["loss"] for sample in samples] == [2.5, "NaN"]
    assert samples[1]["run"] == "gpt2"
    assert samples[1]["position"] == {"path": "training_log.jsonl", "line": 2, "offset": 49}


def test_every_line_of_the_examples_is_a_record_again(ask: Ask, examples: Path) -> None:
    answer = ask("parse", *map(str, sorted(examples.glob("*.log"))))
    records = [from_json(line) for line in answer.out.splitlines()]
    assert {record.run for record in records} == {
        path.stem.removesuffix("_node0") for path in examples.glob("*.log")
    }
    for record in records:
        with Path(record.position.path).open("rb") as file:
            before = file.read(record.position.offset)
        assert before.count(b"\n") + 1 == record.position.line


def test_a_missing_newline_at_the_end_hides_nothing(ask: Ask, folder: Path) -> None:
    (folder / "training_log.jsonl").write_bytes(ROWS.rstrip(b"\n"))
    assert len(ask("parse", "training_log.jsonl").out.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "reported"), [(("parse",), '"step":7'), (("parse", "--stats"), "lines        1\n")]
)
def test_a_pipe_that_is_named_is_read_to_its_end(
    ask: Ask, words: tuple[str, ...], reported: str
) -> None:
    """As `<(command)`, `/dev/stdin` and `mkfifo` give one."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(b"step 7 loss: 2.5\n")
    try:
        answer = ask(*words, f"/dev/fd/{reading}")
    finally:
        os.close(reading)
    assert (answer.code, answer.err) == (0, "")
    assert reported in answer.out


@pytest.mark.parametrize("words", [("parse",), ("replay", "--format", "json")])
def test_json_is_valid_whatever_a_file_is_called(
    ask: Ask, folder: Path, words: tuple[str, ...]
) -> None:
    """A name is bytes; what is no UTF-8 in it is replaced."""
    name = folder / os.fsdecode(b"b\xffd.log")
    name.write_bytes(b"WARNING: Invalid text_loss detected: nan\n")
    answer = ask(*words, name.name)
    assert answer.code in (0, 3), answer.err
    (shown, *_) = [json.loads(line) for line in answer.out.encode("utf-8").splitlines()]
    assert shown["position"]["path"] == "b\ufffdd.log"


def test_a_dash_is_standard_input(
    ask: Ask, examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = examples.glob("*_083515_node0.log")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log.read_bytes())))
    from_stdin = [json.loads(line) for line in ask("parse", "--run", "r", "-").out.splitlines()]
    from_file = [json.loads(line) for line in ask("parse", "--run", "r", str(log)).out.splitlines()]
    assert len(from_stdin) == len(from_file) > 50
    assert {record["position"]["path"] for record in from_stdin} == {"-"}


def test_the_files_of_a_rotated_log_come_as_they_were_written(ask: Ask, tmp_path: Path) -> None:
    rows = [f"{step},2.5\n" for step in range(12)]
    parts = ["step,loss\n" + "".join(rows[:4]), "".join(rows[4:8]), "".join(rows[8:])]
    for name, text in zip(("a.log.2", "a.log.1", "a.log"), parts, strict=True):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (1e9 + len(name) / 100 - int(name[-1] == "2"),) * 2)
    os.utime(tmp_path / "a.log", (1e9 + 9,) * 2)
    out = ask("parse", str(tmp_path / "*")).out
    found = [
        (json.loads(line)["position"]["path"], json.loads(line)["step"])
        for line in out.splitlines()
    ]
    assert [step for _, step in found] == [*range(12)]
    assert [Path(path).name for path, _ in found[::4]] == ["a.log.2", "a.log.1", "a.log"]


def test_statistics_tell_what_was_understood(ask: Ask, folder: Path) -> None:
    (folder / "training_log.jsonl").write_bytes(ROWS + b"not json\n")
    lines = ask("parse", "--stats", "training_log.jsonl").out.splitlines()
    assert lines == [
        "training_log.jsonl",
        "  formats      JSON lines (2)",
        "  lines        3",
        "  with records 2 (66.7 %)",
        "  parse errors 1",
        "  samples      2",
        "  events       0",
        "  heartbeats   0",
        "  steps        7 to 8",
    ]


TEXT = """\
Training:  25%|## | 475/1900 [00:28<01:19, 17.55it/s, Epoch=0/2, Loss=1.7353, Text=1.7]
Epoch: 0, Step: 10, Rank: 0, loss = 2.3
it 1 | the loss of the student by now 2.5 | teacher loss: 1.5 | said nobody else so far
it 2 | the loss of the student by now 2.4 | teacher loss: nan | said nobody else so far
validation finished
Traceback (most recent call last):
  File "train.py", line 3, in <module>
ValueError: no
+ echo 'loss: 2.5, lr: 3'
"""


def test_statistics_name_the_formats_and_gather_metric_like_lines_by_their_form(
    ask: Ask, folder: Path
) -> None:
    (folder / "a.log").write_text(TEXT, encoding="utf-8")
    lines = ask("parse", "--stats", "a.log").out.splitlines()
    assert lines[1:4] == [
        "  formats      mmldlm (1), inferred (1)",
        "  lines        9",
        "  with records 5 (55.6 %)",
    ]
    first = (
        "it 1 | the loss of the student by now 2.5 | teacher loss: 1.5 | said nobody else so far"
    )
    assert lines[-3:] == [
        "  unknown      2 lines look like metrics but gave none:",
        f"           2 x  line 3: {first}",
        "               `ldlm-monitor formats learn FILE` prints a definition to begin with",
    ]


def test_statistics_as_json_are_an_object_a_file(ask: Ask, folder: Path) -> None:
    (folder / "a.log").write_text(TEXT, encoding="utf-8")
    (folder / "b.jsonl").write_bytes(ROWS)
    answer = ask("parse", "--stats", "--format", "json", "a.log", "b.jsonl")
    text, rows = map(json.loads, answer.out.splitlines())
    assert text["formats"] == {"mmldlm": 1, "inferred": 1}
    assert text["steps"] == [10, 475]
    assert text["event_kinds"] == {"python_exception": 1}
    assert [(form["count"], form["line"]) for form in text["unknown"]["forms"]] == [(2, 3)]
    assert rows["formats"] == {"JSON lines": 2}
    assert rows["share"] == 1.0


def test_records_have_one_form_only(ask: Ask, folder: Path) -> None:
    (folder / "a.log").write_text(TEXT, encoding="utf-8")
    answer = ask("parse", "--format", "text", "a.log")
    assert answer.code == 2
    assert "add --stats" in answer.err


def test_statistics_count_each_file_for_itself(ask: Ask, folder: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (folder / name).write_bytes(ROWS)
    lines = ask("parse", "--stats", "a.jsonl", "b.jsonl").out.splitlines()
    assert [line for line in lines if line.startswith("  lines")] == ["  lines        2"] * 2


def test_a_reader_that_leaves_ends_it_quietly(folder: Path) -> None:
    """As in `ldlm-monitor parse FILE | head -1`."""
    (folder / "training_log.jsonl").write_bytes(ROWS * 20_000)
    command = [sys.executable, "-m", "ldlm_monitor", "parse", "training_log.jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"type":"sample"')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
