"""The example logs are genuine, portable, and as examples/README.md describes them."""

import json
import math
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
README = EXAMPLES / "README.md"
LOGS = sorted((EXAMPLES / "train_logs").glob("*.log"))
ROWS = sorted((EXAMPLES / "saved").glob("*/training_log.jsonl"))

CLAIM = re.compile(r"^- `(\S+)`, line (\d+): `([^`]+)`", re.MULTILINE)
CLAIMS = [(name, int(line), text) for name, line, text in CLAIM.findall(README.read_text("utf-8"))]
# Folders of people's and of build machines. /srv/ldlm is where the logs were made.
PRIVATE_PATH = re.compile(rb"(?<![\w.-])/(?:home|root|Users|work|tmp|opt|mnt|data)/[\w.]")


def lines_of(name: str) -> list[str]:
    folder = "train_logs" if name.endswith(".log") else "saved"
    return (EXAMPLES / folder / name).read_bytes().decode("utf-8").split("\n")


def test_the_training_script_compiles() -> None:
    script = EXAMPLES / "small_training.py"
    compile(script.read_text("utf-8"), str(script), "exec")


def test_there_are_three_runs_each_with_its_rows() -> None:
    assert len(LOGS) == 3
    assert {path.parent.name for path in ROWS} == {"healthy", "bad_latents", "bad_token"}


@pytest.mark.parametrize("path", [*LOGS, *ROWS], ids=lambda path: f"{path.parent.name}-{path.name}")
def test_no_path_of_somebodys_machine_is_in_it(path: Path) -> None:
    assert PRIVATE_PATH.findall(path.read_bytes()) == []


def test_the_only_host_is_localhost() -> None:
    hosts = [host for path in LOGS for host in re.findall(rb"host +: (\S+)", path.read_bytes())]
    assert set(hosts) == {b"localhost"}


def test_readme_points_into_every_file() -> None:
    described = {name for name, _, _ in CLAIMS}
    assert described == {p.name for p in LOGS} | {f"{p.parent.name}/{p.name}" for p in ROWS}


@pytest.mark.parametrize(("name", "line", "text"), CLAIMS)
def test_what_readme_says_of_a_line_is_there(name: str, line: int, text: str) -> None:
    assert text in lines_of(name)[line - 1]


def test_every_error_block_is_mentioned_in_readme() -> None:
    found = {
        (path.name, number)
        for path in LOGS
        for number, line in enumerate(lines_of(path.name), start=1)
        if line.startswith("ERROR:")
    }
    assert found == {(name, line) for name, line, text in CLAIMS if text.startswith("ERROR:")}


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.parent.name)
def test_rows_hold_one_step_each_and_only_a_bad_latent_makes_one_nan(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["step"] for row in rows] == list(range(len(rows)))
    not_finite = [row["step"] for row in rows if not math.isfinite(row["loss"])]
    assert not_finite == ([35] if path.parent.name == "bad_latents" else [])


def test_the_examples_stay_small() -> None:
    assert sum(path.stat().st_size for path in [*LOGS, *ROWS]) < 600_000
