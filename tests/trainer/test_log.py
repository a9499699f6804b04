"""What a run writes: which lines, of whom, and what its bars and rows say."""

import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

from ldlm_trainer.config import Config, load
from ldlm_trainer.log import Log

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
ROW = {
    "epoch": 0, "step": 2, "batch_in_epoch": 2, "loss": 2.5, "lr": 5e-4, "text_loss": 2.25,
    "latent_loss": math.inf, "text_accuracy": 0.125, "latent_norm": 1.0, "grad_norm": 0.75,
    "samples_per_sec": 12.0,
}  # fmt: skip
SMALL = ("schedule.steps=4", "schedule.warmup=1", "run.log_every=2")
Wrote = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def wrote(tmp_path: Path) -> Wrote:
    """What a log writes when it is used: its lines, and those of its file of rows."""

    def write(use: Callable[[Log], None], *more: str, rank: int = 0) -> tuple[str, list[str]]:
        settings: Config = load(None, [f"run.save_dir={tmp_path}", *SMALL, *more])
        stream = io.StringIO()
        log = Log(settings, rank, resumed=False, stream=stream)
        stream.truncate(0)
        stream.seek(0)
        use(log)
        log.close()
        path = settings.folder / "training_log.jsonl"
        return stream.getvalue(), path.read_text().splitlines() if path.exists() else []

    return write


def test_a_line_of_the_run_has_its_time_and_is_said_by_rank_0_alone(wrote: Wrote) -> None:
    said, _ = wrote(lambda log: log.lines("one\ntwo"))
    assert re.fullmatch(f"{STAMP} one\n{STAMP} two\n", said)
    assert wrote(lambda log: log.lines("one"), rank=1) == ("", [])


def test_a_line_of_a_rank_names_it(wrote: Wrote) -> None:
    said, _ = wrote(lambda log: log.lines("out of memory", own=True), rank=3)
    assert re.fullmatch(rf"{STAMP} \[rank3\]: out of memory\n", said)


def test_a_problem_is_a_block_with_what_to_do(wrote: Wrote) -> None:
    said, _ = wrote(lambda log: log.problem("no room", {"Step": "7"}, "Free some", own=False))
    lines = [line.partition(" ")[2].partition(" ")[2] for line in said.splitlines()]
    ruler = "=" * 60
    assert lines == [ruler, "ERROR: no room", ruler, "  Step: 7", "  Free some...", ruler]


def test_every_step_has_a_row_and_some_have_a_line(wrote: Wrote) -> None:
    def use(log: Log) -> None:
        for step in (1, 2):
            log.row(ROW | {"step": step})

    said, rows = wrote(use)
    assert [json.loads(row)["step"] for row in rows] == [1, 2]
    assert json.loads(rows[0])["latent_loss"] == "Infinity"
    (line,) = said.splitlines()
    assert re.sub(STAMP, "", line) == (
        " step: 2/4 loss: 2.5 text_loss: 2.25 latent_loss: inf text_accuracy: 0.125 lr: 0.0005"
        " grad_norm: 0.75 samples_per_sec: 12"
    )


def test_other_ranks_write_no_rows(wrote: Wrote) -> None:
    assert wrote(lambda log: log.row(ROW), rank=1) == ("", [])


def test_a_bar_counts_the_step_that_it_shows(wrote: Wrote) -> None:
    def use(log: Log) -> None:
        log._bar_began -= 60
        for step in (2, 3):
            log.row(ROW | {"step": step, "latent_loss": 0.5})

    said, rows = wrote(use, "run.dialect=upstream")
    first, second = said.strip().split("\r")
    assert (
        first
        == (
            "Training:  75%| | 3/4 [01:00<00:20,  0.05it/s, Epoch=0/1, Progress=75.0%, Loss=2.5000,"
            " Text=2.2500, Latent=0.5000]"
        )[:100]
    )
    assert second.startswith("Training: 100%|█| 4/4 [01:00<00:00,  0.07it/s,")
    assert list(json.loads(rows[0])) == [*ROW][:9]


def test_an_evaluation_is_announced_as_a_bar_and_so_is_its_end(wrote: Wrote) -> None:
    def use(log: Log) -> None:
        log.evaluation(0, 20)
        log.evaluation(20, 20)

    said, _ = wrote(use)
    begun, ended = (re.sub(f"{STAMP} ", "", line) for line in said.splitlines())
    assert begun == "Eval:   0%|          | 0/20 [00:00<?, ?it/s]"
    assert ended == "Eval: 100%|██████████| 20/20 [00:00<00:00]"
    assert wrote(lambda log: log.evaluation(0, 20), rank=1)[0] == ""
