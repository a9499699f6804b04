"""What is typed: `python -m ldlm_trainer prepare`, `export`, `preflight` and `train`."""

import json
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

from ldlm_trainer.__main__ import FAULTS, REFUSED, main
from ldlm_trainer.errors import TrainerError
from ldlm_trainer.prepare import prepare, python_documentation, text_file


def small(data: Path, folder: Path, *more: str) -> Sequence[str]:
    """Settings of a training of four steps."""
    return (
        f"data.folder={data}", f"run.save_dir={folder}", "run.health=false", "run.device=cpu",
        "model.width=32", "data.batch_size=4", "schedule.steps=4", "schedule.warmup=2",
        "run.eval_every=0", "run.save_every=0", *more,
    )  # fmt: skip


def losses(folder: Path) -> list[object]:
    (log,) = folder.rglob("training_log.jsonl")
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


@pytest.mark.trainer
def test_a_training_is_prepared_checked_and_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text, data, saved = tmp_path / "text", tmp_path / "data", tmp_path / "saved"
    line = "The {} cat sees a dog. A dog of {} runs to the house. The house is {}."
    text.write_text("\n".join(line.format(n, n % 7, n % 5) for n in range(300)))
    assert main(["prepare", str(data), "--text", str(text), "--length", "16"]) == 0
    made = json.loads((data / "index.json").read_text())["samples"]
    assert capfd.readouterr().out == (
        f"train: {made['train']} samples, validation: {made['validation']} samples\n"
    )
    settings = small(data, saved)
    assert main(["preflight", *settings]) == 0
    assert capfd.readouterr().out.splitlines()
    assert main(["train", *settings]) == 0
    assert len(losses(saved)) == 4
    assert main(["export", str(data), str(tmp_path / "theirs")]) == 0
    assert any((tmp_path / "theirs").iterdir())


@pytest.mark.trainer
def test_faults_of_the_environment_strike_and_a_setting_overrides_them(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAULTS, "nan_loss@2")
    assert main(["train", *small(data, tmp_path / "struck")]) == 0
    assert [loss == "NaN" for loss in losses(tmp_path / "struck")] == [False, False, True, False]
    assert main(["train", *small(data, tmp_path / "spared", "run.faults=")]) == 0
    assert "NaN" not in losses(tmp_path / "spared")


def test_what_is_refused_is_one_line_and_an_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "run.nothing=1"]) == REFUSED == 2
    assert main(["prepare", str(tmp_path / "data"), "--text", str(tmp_path / "missing")]) == 2
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith("ldlm_trainer: ")
    assert "run.nothing" in first
    assert f"{tmp_path / 'missing'}: No such file or directory" in second
    with pytest.raises(SystemExit, match="2"):
        main(["fly"])


def test_a_text_of_which_nothing_can_be_held_out_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("One sentence alone.\n")
    with pytest.raises(TrainerError, match="too few documents to hold some of them out"):
        prepare(tmp_path / "data", text=text)


def test_each_line_of_a_text_is_a_document_of_sentences(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("A cat sleeps. A dog runs!\n\nOne more.\n")
    assert [*text_file(text)] == [
        ("line 0", ["A cat sleeps.", "A dog runs!"]),
        ("line 1", []),
        ("line 2", ["One more."]),
    ]


def test_without_a_text_the_documentation_of_python_is_read() -> None:
    documents = python_documentation()
    before = [name for name, _ in takewhile(lambda each: each[0] != "module abc.py", documents)]
    assert before[0].startswith("topic ")
    assert not any("/test/" in name or "site-packages" in name for name in before)
