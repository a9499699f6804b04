"""`formats`: what is recognised, and definition files of one's own."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., Any]
PAGE = (Path(__file__).resolve().parents[3] / "docs/formats.md").read_text(encoding="utf-8")
MINE = r"""
format: ourtrainer
source: ourtrainer/loop.py
lines:
  - name: step line
    trigger: 'ourtrainer step'
    pattern: 'ourtrainer step (?P<step>\d+) loss (?P<loss>\S+) lr (?P<lr>\S+)$'
    values: { loss: loss, learning_rate: lr }
    examples:
      - line: 'ourtrainer step 12 loss nan lr 5e-4'
        step: 12
        values: { loss: .nan, learning_rate: 5.0e-4 }
    counter_examples:
      - 'ourtrainer step size is 12'
events:
  - kind: gpu_xid
    family: cuda
    role: root
    severity: critical
    shapes:
      - trigger: 'ourtrainer: device fell off the bus'
        pattern: 'ourtrainer: device fell off the bus \(xid (?P<xid>\d+)\)'
    fields: { xid: int }
    examples:
      - line: 'ourtrainer: device fell off the bus (xid 79)'
        fields: { xid: 79 }
"""
LOG = """\
ourtrainer step 12 loss 2.5 lr 5e-4
ourtrainer step 13 loss nan lr 5e-4
ourtrainer: device fell off the bus (xid 79)
the student said, its loss: 2.5 and the teacher agreed with that
"""
REST = ", loss nan, learning_rate 0.0005"
OTHER = "step 1, loss 2, learning_rate 3"


@pytest.fixture
def mine(folder: Path) -> Callable[..., Path]:
    """The definition file, with a part of it replaced."""

    def write(old: str = "", new: str = "") -> Path:
        assert old in MINE
        (folder / "mine.yml").write_text(MINE.replace(old, new), encoding="utf-8")
        return folder / "mine.yml"

    return write


def test_the_list_says_what_no_real_log_has_confirmed(ask: Ask) -> None:
    lines = ask("formats", "list").out.splitlines()
    states = {line.split()[0]: line.split()[1] for line in lines}
    assert states["litgpt"] == states["timm"] == "experimental"
    assert states["megatron"] == states["huggingface"] == "-"


def test_the_list_holds_formats_of_ones_own(ask: Ask, mine: Callable[..., Path]) -> None:
    mine()
    lines = ask("formats", "list", "--formats", "mine.yml").out.splitlines()
    assert lines[-1].split() == (
        ["ourtrainer", "-", "1", "line,", "1", "event", "ourtrainer/loop.py"]
    )
    assert ask("formats", "list", "mine.yml").out.splitlines()[1:] == lines[-1:]


def test_a_file_whose_examples_hold_is_fine(ask: Ask, mine: Callable[..., Path]) -> None:
    mine()
    answer = ask("formats", "test", "mine.yml")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == ("mine.yml: 1 line, 1 event; 2 examples, 1 counter-example, all fine\n")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "step: 12\n",
            "step: 13\n",
            f"lines.0 (step line), example 1: expected step 13{REST}, got step 12{REST}",
        ),
        (
            "line: 'ourtrainer step 12 loss nan lr 5e-4'",
            "line: 'ourtrainer step 12 nothing'",
            f"lines.0 (step line), example 1: expected step 12{REST}, got nothing",
        ),
        (
            "- 'ourtrainer step size is 12'",
            "- 'ourtrainer step 1 loss 2 lr 3'",
            f"lines.0 (step line), counter-example 1: expected no numbers, got {OTHER}",
        ),
        (
            "fields: { xid: 79 }",
            "fields: { xid: 80 }",
            "events.0 (gpu_xid), example 1: expected xid 80, got 79",
        ),
        (
            "line: 'ourtrainer: device fell off the bus (xid 79)'",
            "line: 'ourtrainer: all fine'",
            "events.0 (gpu_xid), example 1: expected gpu_xid, got nothing",
        ),
        (
            "pattern: 'ourtrainer step (?P<step>",
            "pattern: 'theirs step (?P<step>",
            "lines.0 (step line), example 1: its trigger and pattern do not match; another format",
        ),
    ],
)
def test_an_example_that_does_not_hold_is_one_line(
    ask: Ask, mine: Callable[..., Path], old: str, new: str, said: str
) -> None:
    mine(old, new)
    answer = ask("formats", "test", "mine.yml")
    assert answer.code == 2
    assert answer.err.startswith(f"ldlm-monitor: mine.yml: {said}")
    assert answer.err.count("\n") == 1
    assert answer.out.endswith("1 failed\n")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("lr (?P<lr>", "(?<!a)lr (?P<lr>", "lines.0: a pattern does not compile"),
        ("trigger: 'ourtrainer step'", "trigger: 'ourtrainer (step'", "lines.0 (step line)"),
        ("trigger: 'ourtrainer step'", "triger: 'ourtrainer step'", "lines.0.trigger"),
        ("format: ourtrainer", "format: [", "is not YAML"),
        ("learning_rate: lr", "learning_rate: rate", "the pattern has no group rate, from which"),
    ],
)
def test_a_bad_definition_is_one_line_that_says_where(
    ask: Ask, mine: Callable[..., Path], old: str, new: str, said: str
) -> None:
    mine(old, new)
    answer = ask("formats", "test", "mine.yml")
    assert answer.code == 2
    assert answer.err.startswith("ldlm-monitor: mine.yml: ")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_log_shows_what_the_file_makes_of_it_and_what_nobody_knows(
    ask: Ask, mine: Callable[..., Path], folder: Path
) -> None:
    mine()
    (folder / "a.log").write_text(LOG, encoding="utf-8")
    answer = ask("formats", "test", "mine.yml", "a.log")
    assert answer.code == 0
    assert answer.out.splitlines()[1:] == [
        *ask("parse", "--stats", "--formats", "mine.yml", "a.log").out.splitlines(),
        "    line 1: step 12, loss 2.5, learning_rate 0.0005",
        "    line 2: step 13, loss NaN, learning_rate 0.0005",
    ]
    assert "  formats      ourtrainer (2)" in answer.out
    assert "1 line looks like metrics but gave none" in answer.out


def test_packaged_formats_take_part_where_the_file_does_not_know_a_line(
    ask: Ask, mine: Callable[..., Path], folder: Path
) -> None:
    mine()
    (folder / "a.log").write_text("step=120 loss=2.5\n", encoding="utf-8")
    lines = ask("formats", "test", "mine.yml", "a.log").out.splitlines()
    assert lines[1:3] == ["a.log", "  formats      inferred (1)"]


def test_the_page_lists_every_format_with_its_state(ask: Ask) -> None:
    lines = ask("formats", "list").out.splitlines()[1:]
    reported = {}
    for line in lines:
        name, state, knows = line[:18].strip(), line[18:34].strip(), line[34:56].strip()
        if "line" in knows or "bar" in knows or knows == "whole files":
            reported[name] = state.replace("built in", "").strip("-")
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]*?) ?\|$", PAGE, re.M)
    listed = {name: state for name, state in rows if name not in ("format", "reader", "---")}
    readers = {"JSON lines", "CSV table", "TensorBoard", "W&B", "MLflow metric"}
    assert {n: "" if n in readers else s for n, s in listed.items()} == reported


def test_the_format_of_the_page_works(ask: Ask, folder: Path) -> None:
    block = re.search(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    assert block is not None
    (folder / "mine.yml").write_text(block[1], encoding="utf-8")
    assert ask("formats", "test", "mine.yml").code == 0


def test_the_environment_and_the_configuration_name_formats_too(
    ask: Ask, mine: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine()
    (folder / "a.log").write_text(LOG, encoding="utf-8")
    with monkeypatch.context() as context:
        context.setenv("LDLM_FORMATS", "mine.yml")
        assert "ourtrainer (2)" in ask("parse", "--stats", "a.log").out
    (folder / "ldlm-monitor.toml").write_text('formats = ["mine.yml"]\n', encoding="utf-8")
    assert "ourtrainer (2)" in ask("parse", "--stats", "a.log").out


def test_the_statistics_of_the_page_are_those_of_its_log(
    ask: Ask, examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.search(r"^```\n(examples/.*?)^```$", PAGE, re.M | re.S)
    assert shown is not None
    monkeypatch.chdir(examples.parents[1])
    assert ask("parse", "--stats", shown[1].splitlines()[0]).out == shown[1]


UNKNOWN = "".join(
    f"INFO - [{step:03}/500] lr={1e-4 * step:.4f}, score: {step / 7:.3f}, "
    f"loss={3 - step / 100:.3f} (text={1 + step / 50:.2f}, image=0.5), "
    f"pace: {90 + step % 7}ms/step\n"
    for step in range(1, 60)
)


def test_what_was_inferred_is_a_definition_that_reads_the_log(ask: Ask, folder: Path) -> None:
    (folder / "new.log").write_text(UNKNOWN)
    (folder / "learned.yml").write_text(ask("formats", "learn", "new.log").out)
    out = ask("formats", "test", "learned.yml", "new.log").out
    assert "1 example, 0 counter-examples, all fine" in out
    assert "formats      learned (59)" in out
    before = [json.loads(line) for line in ask("parse", "new.log").out.splitlines()]
    after = ask("parse", "new.log", "--formats", "learned.yml").out.splitlines()
    assert [each["source"] for each in before] == ["inferred"] * 59
    assert [{**json.loads(line), "source": "inferred"} for line in after] == before


def test_tables_are_counted_and_left_out(ask: Ask, folder: Path) -> None:
    rows = "".join(f"{step} {2.5 - step / 10:.2f}\n" for step in range(5))
    (folder / "new.log").write_text("step  train_loss  lr\n" + rows.replace("\n", " 0.1\n"))
    found = ask("formats", "learn", "new.log")
    assert "lines: []" in found.out
    assert "1 form of lines left out" in found.err
