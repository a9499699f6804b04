"""`query` and `goodput`: questions to finished logs."""

import json
from pathlib import Path

import pytest

from ldlm_monitor.service.cli import main


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Steps 1 to 60, a second each, and a pause of 40 seconds after step 30."""
    path = tmp_path / "exp7.log"
    seconds = [step + (40 if step > 30 else 0) for step in range(1, 61)]
    path.write_text(
        "".join(
            f"2026-01-29 10:{at // 60:02}:{at % 60:02} step {step}/60 loss {3 - step / 100:.2f}\n"
            for step, at in enumerate(seconds, 1)
        )
    )
    return path


def test_a_query_is_evaluated_at_the_end_of_the_logs(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", "--format", "json", "ldlm_train_step", str(log)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["resultType"] == "vector"
    ((at, value),) = [each["value"] for each in data["result"]]
    assert (value, data["result"][0]["metric"]["run"]) == ("60", "exp7")
    assert main(["query", "--format", "json", "time()", str(log)]) == 0
    scalar = json.loads(capsys.readouterr().out)
    assert (scalar["resultType"], float(scalar["result"][1])) == ("scalar", at)


def test_a_range_query_gives_the_values_over_time(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "loss.svg"
    asked = ["query", "ldlm_train_step", "--step", "10s", "--plot", str(plot), "--format", "json"]
    assert main([*asked, "--end", "2026-01-29T10:00:30Z", str(log)]) == 0
    (series,) = json.loads(capsys.readouterr().out)["result"]
    (first, _), (second, _) = series["values"][:2]
    assert second - first == 10.0
    assert [int(value) for _, value in series["values"]][-1] <= 30
    assert "ldlm_train_step" in plot.read_text()
    assert "seconds since 2026-01-29 " in plot.read_text()
    assert main(["query", "ldlm_train_step", "--step", "10s", str(log)]) == 0
    assert "ldlm_train_step{" in capsys.readouterr().out


def test_a_range_may_begin_at_the_epoch(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["query", "ldlm_train_step", "--start", "0", "--format", "json", str(log)]
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out)["resultType"] == "matrix"


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--step", "never"], "--step"),
        (["--start", "2026-01-29"], "zone"),
        (["--step", "1ms", "--start", "0"], "11,000"),
        (["--plot", "loss.png"], "charts are SVG"),
        (["--plot", "loss.html"], "charts are SVG"),
    ],
)
def test_a_range_that_cannot_be_asked_for_is_refused(
    log: Path, capsys: pytest.CaptureFixture[str], flags: list[str], word: str
) -> None:
    assert main(["query", "ldlm_train_step", *flags, str(log)]) == 2
    assert word in capsys.readouterr().err


def test_a_query_s_table_has_a_line_a_series(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "max by (run) (ldlm_train_loss)", str(log)]) == 0
    assert capsys.readouterr().out == 'value  labels\n2.4    {run="exp7"}\n'


def test_a_query_says_what_prometheus_says_beside_an_answer(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", "rate(ldlm_train_loss[1h])", str(log)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ldlm-monitor: PromQL info: metric might not be a counter")


def test_a_query_without_a_series_says_so(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "ldlm_eval_loss", str(log)]) == 0
    assert capsys.readouterr().out.startswith("no series")


def test_a_wrong_expression_is_refused_before_the_logs_are_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["query", "sum(", "no-such.log"]) == 2
    assert "unclosed" in capsys.readouterr().err


def test_goodput_says_where_the_time_went(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["goodput", "--format", "json", str(log)]) == 0
    found = json.loads(capsys.readouterr().out)
    spent = found["goodput"]
    assert found["run"] == "exp7"
    assert spent["productive_seconds"] + sum(
        each["seconds"] for each in spent["losses"]
    ) == pytest.approx(spent["total_seconds"])
    assert {"what": "stall", "seconds": 40.0, "times": 1} in spent["losses"]
    assert main(["goodput", str(log)]) == 0
    assert "stall 40s" in capsys.readouterr().out


def test_goodput_of_a_text_that_is_no_training_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letter.log").write_text("Dear reader\n")
    assert main(["goodput", str(tmp_path / "letter.log")]) == 2
    assert "no training was found" in capsys.readouterr().err
