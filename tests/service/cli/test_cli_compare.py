"""`compare` as one uses it, on runs whose truth is known."""

import json
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from tests.finished.compare.made import write_run

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"


Ask = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def ask(ask: Ask) -> Ask:
    return partial(ask, "compare")


def rows(answer: Any) -> dict[str, list[dict[str, Any]]]:
    """The cells of each row, by quantity and place."""
    assert answer.code == 0, answer.err
    reported = json.loads(answer.out)["rows"]
    return {
        f"{row['quantity']} {row['at'].split(',')[0]}".strip(): row["cells"] for row in reported
    }


def test_a_run_that_is_faster_and_smaller_is_told_so(ask: Ask, folder: Path) -> None:
    write_run(folder / "base.jsonl", step=0.2, memory=40, warm_up=10, seed=1)
    write_run(folder / "tuned.jsonl", step=0.2 / 1.4, memory=26, warm_up=10, seed=2)
    found = rows(ask("base.jsonl", "tuned.jsonl", "--json"))
    speed, memory = found["samples_per_second"][1], found["memory_allocated_bytes"][1]
    assert speed["low"] <= 0.4 <= speed["high"]
    assert (speed["verdict"], speed["target"]["result"]) == ("better", "reached")
    assert memory["change"] == pytest.approx(-0.35)
    assert memory["target"] == {"name": "memory", "change": -0.3, "result": "reached"}
    assert found["step_seconds"][1]["change"] == pytest.approx(1 / 1.4 - 1, abs=0.03)
    assert found["loss at equal step"][1]["verdict"] == "same"
    assert found["loss at equal time"][1]["verdict"] in ("same", "better")


def test_how_busy_the_gpu_was_is_compared_and_may_be_a_target(ask: Ask, folder: Path) -> None:
    """The callback has it every few seconds, of the GPU's driver."""
    chance = random.Random(5)
    for name, busy in (("base", 0.6), ("tuned", 0.9)):
        rows_of = [
            {"type": "step", "step": step, "time": 1.7e9 + step, "loss": 2.0}
            | ({"gpu_utilization_ratio": busy + chance.uniform(-0.05, 0.05)} if step % 5 else {})
            for step in range(1, 400)
        ]
        (folder / name).mkdir()
        lines = "".join(json.dumps(row) + "\n" for row in rows_of)
        (folder / name / "health_rank0.jsonl").write_text(lines, encoding="utf-8")
    answer = ask("base", "tuned", "--json", "--target", "gpu_utilization_ratio=+40%")
    (found,) = [
        row["cells"][1] for row in json.loads(answer.out)["rows"] if "gpu" in row["quantity"]
    ]
    assert found["value"] == pytest.approx(0.9, abs=0.02)
    assert (found["verdict"], found["target"]["result"]) == ("better", "reached")


def test_sums_in_another_order_are_no_change_of_the_loss(ask: Ask, folder: Path) -> None:
    """Each loss lower by two in a hundred thousand, as a fused optimizer may make it."""
    for name, loss in (("base", 2.0), ("fused", 2.0 * (1 - 2e-5)), ("better", 2.0 * (1 - 2e-3))):
        steps = ({"step": step, "loss": loss + 1 / (step + 1)} for step in range(300))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    cells = rows(ask("base.jsonl", "fused.jsonl", "better.jsonl", "--json"))["loss at equal step"]
    assert [cell["verdict"] for cell in cells] == ["baseline", "same", "better"]


def valid(answer: Any) -> Any:
    """What was written, which must be what docs/compare.schema.json says, and nothing else."""
    schema = json.loads((ROOT / "docs/compare.schema.json").read_text("utf-8"))
    for part in (schema, *schema["$defs"].values()):
        part.setdefault("additionalProperties", part.get("type") != "object")
    reported = json.loads(answer.out, parse_constant=lambda word: pytest.fail(f"a bare {word}"))
    jsonschema.validate(reported, schema)
    return reported


def test_the_json_is_what_its_schema_says(ask: Ask, folder: Path) -> None:
    """Of runs that report much, little, and nothing in common."""
    write_run(folder / "base.jsonl", memory=40, seed=1)
    write_run(folder / "tuned.jsonl", step=0.1, memory=30, seed=2)
    write_run(folder / "short.jsonl", steps=3, timed=False)
    reported = valid(ask("base.jsonl", "tuned.jsonl", "short.jsonl", "--json", "--at", "100"))
    assert [run["name"] for run in reported["runs"]] == ["base", "tuned", "short"]
    verdicts = {cell["verdict"] for row in reported["rows"] for cell in row["cells"]}
    assert verdicts >= {"baseline", "better", "unclear", "missing"}
    spans = [row["span"] for row in reported["rows"] if row["quantity"] == "loss"]
    assert spans[0] == {"unit": "step", "start": 1, "end": 2}


def test_the_json_of_a_run_with_nan_is_json_all_the_same(ask: Ask) -> None:
    logs = sorted(str(path) for path in (EXAMPLES / "train_logs").glob("*.log"))
    assert any("not finite" in note for note in valid(ask(*logs, "--json"))["notes"])


def test_the_table_says_it_in_words(ask: Ask, folder: Path) -> None:
    write_run(folder / "base.jsonl", warm_up=10, seed=1)
    write_run(folder / "tuned.jsonl", step=0.1, seed=2)
    lines = ask("base.jsonl", "tuned.jsonl").out.splitlines()
    assert lines[0].startswith("baseline   base, steps 0 to 299, ")
    assert lines[0].endswith("the first 10 steps left out as warm-up")
    (speed,) = [line for line in lines if line.endswith("target +25 %: reached")]
    assert " % faster [" in speed
    assert "Not in any run: tokens/s, GPU memory allocated, accuracy." in lines


def test_more_than_two_runs_share_a_table(ask: Ask, folder: Path) -> None:
    for index, step in enumerate((0.2, 0.15, 0.3)):
        write_run(folder / f"run{index}.jsonl", step=step, seed=index)
    found = rows(ask("run0.jsonl", "run1.jsonl", "run2.jsonl", "--json"))
    assert [cell["verdict"] for cell in found["step_seconds"]] == ["baseline", "better", "worse"]


def test_of_a_few_steps_nothing_is_told(ask: Ask, folder: Path) -> None:
    write_run(folder / "base.jsonl")
    write_run(folder / "short.jsonl", steps=12, step=0.1)
    cell = rows(ask("base.jsonl", "short.jsonl", "--json"))["step_seconds"][1]
    assert (cell["verdict"], cell["change"]) == ("unclear", None)
    assert cell["said"] == "unclear: too few steps (11 values)"


def test_runs_without_steps_in_common_are_compared_at_equal_time_alone(
    ask: Ask, folder: Path
) -> None:
    write_run(folder / "base.jsonl")
    rows_of = (folder / "base.jsonl").read_text("utf-8").splitlines()
    moved = [json.dumps(json.loads(row) | {"step": 5000 + at}) for at, row in enumerate(rows_of)]
    (folder / "late.jsonl").write_text("\n".join(moved) + "\n", encoding="utf-8")
    answer = ask("base.jsonl", "late.jsonl")
    assert "loss at equal time" in answer.out
    assert "loss at equal step" not in answer.out
    assert "loss: the runs have too few steps in common to be compared there\n" in answer.out
    assert "Not in any run: tokens/s, GPU memory allocated, accuracy.\n" in answer.out


def test_what_only_one_run_tells_is_said_to_be_missing(ask: Ask, folder: Path) -> None:
    write_run(folder / "base.jsonl")
    write_run(folder / "more.jsonl", memory=10)
    there = rows(ask("more.jsonl", "base.jsonl", "--json"))["memory_allocated_bytes"][1]
    assert there["said"] == "not in this run"
    back = rows(ask("base.jsonl", "more.jsonl", "--json"))["memory_allocated_bytes"]
    assert [cell["said"] for cell in back] == ["not in this run", "not in the baseline"]


@pytest.mark.parametrize(
    ("step", "target", "result"),
    [
        (0.1, "speed=+50%", "reached"),
        (0.1, "speed=+150%", "missed"),
        (0.1, "speed=+100%", "open"),
        (0.1, "step_seconds=-40%", "reached"),
    ],
)
def test_a_target_is_reached_missed_or_open(
    ask: Ask, folder: Path, step: float, target: str, result: str
) -> None:
    write_run(folder / "base.jsonl", seed=1)
    write_run(folder / "tuned.jsonl", step=step, seed=2)
    found = rows(ask("base.jsonl", "tuned.jsonl", "--json", "--target", target))
    results = [
        cell["target"]["result"] for cells in found.values() for cell in cells if cell["target"]
    ]
    assert results == [result]


def test_a_target_that_nothing_told_stands_for_is_said_so(ask: Ask, folder: Path) -> None:
    write_run(folder / "a.jsonl")
    answer = ask("a.jsonl", "a.jsonl", "--target", "sped=+30%", "--target", "memory=-5%")
    assert "target sped +30 %: not in all runs" in answer.out
    assert "target memory -5.0 %: not in all runs" in answer.out


def test_a_larger_batch_is_judged_by_samples_not_by_steps(ask: Ask, folder: Path) -> None:
    """A step of twice the samples takes 1.6 times as long."""
    write_run(folder / "base.jsonl", seed=1)
    write_run(folder / "large.jsonl", step=0.32, batch=32, seed=2)
    found = rows(ask("base.jsonl", "large.jsonl", "--json"))
    assert found["step_seconds"][1]["verdict"] == "worse"
    assert found["samples_per_second"][1]["target"]["name"] == "speed"
    assert found["samples_per_second"][1]["verdict"] == "better"


def test_losses_are_compared_at_points_of_ones_own(ask: Ask, folder: Path) -> None:
    write_run(folder / "base.jsonl", seed=1)
    write_run(folder / "better.jsonl", loss=1.8, seed=2)
    reported = json.loads(
        ask("base.jsonl", "better.jsonl", "--json", "--at", "100", "--at", "30s").out
    )
    places = [row["at"] for row in reported["rows"] if row["quantity"] == "loss"]
    assert places[1] == "at equal step, 61 to 100"
    assert [place.partition(",")[0] for place in places] == [
        *("at equal step", "at equal step", "at equal time", "at equal time"),
    ]
    cells = [row["cells"][1]["verdict"] for row in reported["rows"] if row["quantity"] == "loss"]
    assert cells == ["better"] * 4


def test_without_times_losses_are_compared_at_equal_steps_alone(ask: Ask, folder: Path) -> None:
    for name in ("a", "b"):
        write_run(folder / f"{name}.jsonl", timed=False)
    assert "loss at equal time" not in rows(ask("a.jsonl", "b.jsonl", "--json"))


def test_a_nan_is_told_beside_the_table(ask: Ask) -> None:
    logs = sorted(str(path) for path in (EXAMPLES / "train_logs").glob("*.log"))
    assert "loss was not finite at step 35" in ask(*logs).out


def test_the_fullest_rank_tells_of_memory(ask: Ask, folder: Path) -> None:
    for run, extra in (("one", 0), ("two", 5)):
        (folder / run).mkdir()
        for rank in range(2):
            head = {"schema": "ldlm.health/1", "type": "run", "run": run, "rank": rank}
            steps = [
                {"type": "step", "step": n, "time": 1.8e9 + n, "memory_allocated_bytes": 100}
                for n in range(40)
            ]
            if rank == 1:
                for row in steps:
                    row["memory_allocated_bytes"] = 100 + extra
            text = "\n".join(json.dumps(row) for row in (head, *steps))
            (folder / f"{run}/health_rank{rank}.jsonl").write_text(text + "\n", encoding="utf-8")
    cell = rows(ask("one", "two", "--json"))["memory_allocated_bytes"][1]
    assert (cell["value"], cell["change"]) == (105, pytest.approx(0.05))


def test_names_that_begin_alike_are_told_apart(ask: Ask, folder: Path) -> None:
    names = [f"mmdit_unconditional_{size}_seed1" for size in ("large", "small")]
    for name in names:
        write_run(folder / f"{name}.jsonl")
    lines = ask(*(f"{name}.jsonl" for name in names)).out.splitlines()
    shown = {line.split()[0] for line in lines if line.startswith("    mmdit")}
    assert shown == set(names)


def test_an_input_of_several_runs_is_refused_by_name(ask: Ask, folder: Path) -> None:
    write_run(folder / "base.jsonl")
    logs = EXAMPLES / "train_logs"
    answer = ask("base.jsonl", str(logs), "--no-companions")
    assert answer.code == 2
    assert f"{logs}: holds 3 runs (train_20261121_083409, " in answer.err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("a.jsonl",), "compare: two runs are needed at least"),
        (("a.jsonl", "none"), "none: no such file, or no match"),
        (("a.jsonl", "a.jsonl", "--target", "faster"), '--target: cannot read "faster"'),
        (("a.jsonl", "a.jsonl", "--at", "noon"), '--at: cannot read "noon"'),
        (("a.jsonl", "a.jsonl", "--warm-up", "x"), '--warm-up: cannot read "x"'),
        (("a.jsonl", "a.jsonl", "--warm-up", "inf"), '--warm-up: cannot read "inf"'),
        (("a.jsonl", "a.jsonl", "--warm-up", "150%"), '--warm-up: cannot read "150%"'),
        (("a.jsonl", "a.jsonl", "--confidence", "95"), 'Invalid value "95.0" for --confidence'),
        (
            ("a.jsonl", "a.jsonl", "--plot", "a.png"),
            '--plot a.png: cannot draw as ".png": charts are SVG',
        ),
    ],
)
def test_a_wrong_command_line_is_one_clear_line(
    ask: Ask, folder: Path, words: tuple[str, ...], line: str
) -> None:
    write_run(folder / "a.jsonl")
    answer = ask(*words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"ldlm-monitor: {line}"), answer.err


@pytest.mark.parametrize(("words", "left_out"), [(("10%",), 30), (("50",), 50), (("0",), 0)])
def test_the_warm_up_can_be_given(
    ask: Ask, folder: Path, words: tuple[str, ...], left_out: int
) -> None:
    write_run(folder / "a.jsonl")
    reported = json.loads(ask("a.jsonl", "a.jsonl", "--json", "--warm-up", *words).out)
    assert [run["warm_up_steps"] for run in reported["runs"]] == [left_out] * 2


def test_a_pace_that_never_settles_is_said_so(ask: Ask, folder: Path) -> None:
    path = folder / "drift.jsonl"
    path.write_text(
        "".join(
            json.dumps({"step": n, "loss": 2.0, "step_time_ms": 100 + n}) + "\n" for n in range(300)
        ),
        encoding="utf-8",
    )
    answer = ask("drift.jsonl", "drift.jsonl")
    assert "drift.jsonl: its pace kept changing up to half of the run" in answer.out
    assert "unclear: the pace of drift.jsonl and drift.jsonl (2) kept changing" in answer.out


def test_a_run_has_the_same_colour_in_every_drawing(ask: Ask, folder: Path) -> None:
    """Also where another run has nothing: only the last has memory."""
    for run, memory in (("base", {}), ("tuned", {"memory": 10})):
        write_run(folder / f"{run}.jsonl", **memory)
    ask("base.jsonl", "tuned.jsonl", "--plot", "a.svg")
    drawings = (folder / "a.svg").read_text("utf-8").split("<title>")
    (loss,) = [drawing for drawing in drawings if drawing.startswith("loss<")]
    (other,) = [drawing for drawing in drawings if drawing.startswith("GPU memory allocated")]
    assert re.findall(r'class="mean" style="stroke:(.*?)"', loss) == ["var(--c1)", "var(--c2)"]
    assert re.findall(r'class="mean" style="stroke:(.*?)"', other) == ["var(--c2)"]


def test_the_runs_are_drawn_over_each_other(ask: Ask, folder: Path) -> None:
    for run in ("base", "tuned"):
        write_run(folder / f"{run}.jsonl", memory=10)
    assert ask("base.jsonl", "tuned.jsonl", "--plot", "a.svg").code == 0
    drawing = ElementTree.fromstring((folder / "a.svg").read_text("utf-8"))
    names = [span.text for span in drawing.iter("{http://www.w3.org/2000/svg}tspan")]
    assert names[:2] == ["━ base", "━ tuned"]
    assert ask("base.jsonl", "tuned.jsonl", "--plot", "none/a.svg").code == 2
