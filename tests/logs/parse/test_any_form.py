"""Lines and tables of any language and layout: each loss under its name, at its step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ldlm_monitor.base.records import Sample
from ldlm_monitor.logs.parse.translation import translated
from ldlm_monitor.logs.parse.vocabulary import measure
from tests.logs.parse.conftest import Parse

FORMS = yaml.safe_load((Path(__file__).parent / "any_form.yml").read_text())
ROWS = [
    {
        "step": 10 * at,
        "epoch": at,
        "loss": f"{2.5 - 0.11 * at:.4f}",
        "val": f"{2.75 - 0.1 * at:.4f}",
        "acc": f"0.{at}",
    }
    for at in range(1, 7)
]


@pytest.mark.parametrize("form", [*FORMS["lines"], *FORMS["tables"]], ids=lambda form: form["line"])
def test_a_loss_is_read_at_its_step_in_any_language_and_layout(
    parse: Parse, form: dict[str, Any]
) -> None:
    lines = [form["line"].format(**row) for row in ROWS]
    found = parse("\n".join([form.get("head", "start"), *lines, ""]))
    samples = [each for each in found if isinstance(each, Sample)]
    for name, key in (("loss", "loss"), ("eval_loss", "val")):
        wanted = [float(row[key]) for row in ROWS] if f"{{{key}}}" in form["line"] else []
        if "-{loss}" in form["line"]:
            wanted = [-each for each in wanted]
        assert [each.values[name] for each in samples if name in each.values] == wanted
    for key in ("step", "epoch"):
        if f"{{{key}}}" in form["line"]:
            counts = [getattr(each, key) for each in samples]
            assert [each for each in counts if each is not None] == [row[key] for row in ROWS]


def test_words_of_other_languages_become_english_and_other_text_stays() -> None:
    assert translated("第 3 轮，训练损失：2.5".encode()) == b"epoch 3 , train loss :2.5"
    assert translated("perda_val e perda de validação".encode()) == b"loss_val e loss val"
    assert translated(b"Trainingsverlust, PERTE") == b"train loss, loss"
    assert translated(b"a stratagem, perdazzo, verlustig") == b"a stratagem, perdazzo, verlustig"
    assert translated("ADIM 3, adım 4, İtERAZIONE".encode())[:14] == b"step 3, step 4"
    broken = b"\xff\xfe loss \xe2\x94\x82 2.5"
    assert translated(broken) == b"\xff\xfe loss | 2.5"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("训练损失", "loss"),
        ("perte de validation", "eval_loss"),
        ("Genauigkeit", "accuracy"),
        ("学习率", "learning_rate"),
        ("perda_box", "loss_box"),
        ("vloss", "eval_loss"),
        ("trl", "loss"),
        ("val", "val"),
        ("tl", "tl"),
        ("gloss", "loss_g"),
        ("loss_scale", "loss_scale"),
        ("strata", "strata"),
        ("media", "media"),
        ("précision", "pr_cision"),
        ("混合精度", "____"),
        ("数据损失", "____"),
    ],
)
def test_a_key_has_its_meaning_in_other_languages_and_written_together(key: str, name: str) -> None:
    assert measure(key).name == name


@pytest.mark.parametrize(
    "line",
    [
        "2.5 loss of packets at 10",
        "step 5 loss, acc and more follow",
        "Verlust von 3 Paketen",
        "loss | accuracy | time",
        "epoch after epoch the loss",
        "step over the loss\n1 2 3.5\n",
    ],
)
def test_sentences_of_such_words_give_nothing(parse: Parse, line: str) -> None:
    assert [each for each in parse(f"{line}\n" * 5) if isinstance(each, Sample)] == []


@pytest.mark.parametrize(
    "line",
    [
        "Strata: 12",
        "strata=0.25",
        '{"step": 4, "strata": 0.25, "grad_norm": 1.0}',
        "第 3 步: 数据损失 3 行",
        "轮次 4, 验证损失 3 轮未改善",
        "轮次 4, 最佳损失: 2.1",
        "época 4, mejor pérdida: 2.1",
        "эпоха 4, лучшие потери: 2.1",
        "époque 4, meilleure perte: 2.1",
        "Epoche 4, minimaler Verlust: 2.1",
        "轮次 4, 最低验证损失: 2.1",
    ],
)
def test_words_of_another_thing_and_the_best_loss_are_no_loss(parse: Parse, line: str) -> None:
    found = [each for each in parse(f"{line}\n" * 5) if isinstance(each, Sample)]
    named = {name for each in found for name in each.values}
    assert not named & {"loss", "eval_loss"}


@pytest.mark.parametrize(
    ("line", "step", "epoch"),
    [
        ("总步数: 50000, 当前步: 4, 损失: 2.4", 4, None),
        ("最大步数: 50000, 步数: 4, 损失: 2.4", 4, None),
        ("всего шаг: 50000, шаг: 4, потери: 2.4", 4, None),
        ("最大轮次: 50, 当前轮次: 4, 损失: 2.4", None, 4),
        ("同步 400: 轮次: 4, 损失: 2.4", None, 4),
    ],
)
def test_a_total_in_another_language_is_no_step(
    parse: Parse, line: str, step: int | None, epoch: int | None
) -> None:
    (sample,) = [each for each in parse(f"{line}\n") if isinstance(each, Sample)]
    assert (sample.step, sample.epoch, sample.values["loss"]) == (step, epoch, 2.4)


@pytest.mark.parametrize(
    "table",
    [
        "| dataset | loss | acc |\n| wiki | 2.5 | 0.5 |\n| code | 71.2 | 0.25 |",
        "trial, lr, loss\n1, 0.001, 2.5\n2, 0.01, 3.5",
        "| model | loss | acc |\n| small | 2.5 | 0.5 |",
        "| split | loss | acc |\n| holdout | 2.5 | 0.5 |",
    ],
)
def test_a_table_of_results_without_a_counter_is_not_the_trainings(
    parse: Parse, table: str
) -> None:
    found = [each for each in parse(f"start\n{table}\n") if isinstance(each, Sample)]
    assert not any("loss" in each.values for each in found)
