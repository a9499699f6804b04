"""Which lines look like metrics, and how they are gathered by their form."""

from __future__ import annotations

import pytest

from ldlm_monitor.logs.parse.metric_like import MAX_FORMS, MetricLike


@pytest.mark.parametrize(
    "line",
    [
        "the student's loss: 2.5 after some words",
        "student_loss=nan teacher_loss=1.5 for all readers",
        "lr 1e-4 and tokens/s=1200 in this place here today",
        "[rank3]: 2026-01-29 10:15:00,123 INFO grad_norm: 0.5 measured behind the step",
        "12  0.5312  0.4411  1.5e-4",
    ],
)
def test_a_number_beside_values_only_a_training_reports_looks_like_metrics(line: str) -> None:
    found = MetricLike()
    found.add(line.encode(), 7)
    assert (found.lines, [form.line for form in found.forms()]) == (1, [7])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loading shard 3 of 12",
        "+ echo 'loss: 2.5'",
        "learning_rate: 0.001",
        '  "eval_steps": 500,',
        "--lr 0.00015 --lr-decay-style cosine --min-lr 1.0e-5",
        "loss function: cross entropy",
        "NCCL INFO Channel 00/02 : 0 1 2 3",
        "10 20 30",
    ],
)
def test_other_lines_do_not(line: str) -> None:
    found = MetricLike()
    found.add(line.encode(), 1)
    assert found.lines == 0


def test_lines_that_differ_in_numbers_only_are_one_form_and_the_most_frequent_comes_first() -> None:
    found = MetricLike()
    found.add(b"its loss: 2.5 was rare", 1)
    for line, loss in enumerate(("2.5", "nan", "1.2e-3", "1,234.5"), start=2):
        found.add(f"step   {line} of student 3: loss: {loss} said it".encode(), line)
    first, second = found.forms()
    assert (first.count, first.line, second.count) == (4, 2, 1)
    assert first.text == "step   2 of student 3: loss: 2.5 said it"


def test_forms_are_bounded_and_lines_still_counted() -> None:
    found = MetricLike()
    for number in range(MAX_FORMS + 50):
        word = "".join(chr(ord("a") + int(digit)) for digit in f"{number:04d}")
        found.add(f"loss: 2.5 {word}".encode(), number + 1)
    assert (found.lines, len(found.forms())) == (MAX_FORMS + 50, MAX_FORMS)


def test_lines_that_count_beside_a_fraction_are_metrics_once_they_repeat_whatever_their_names() -> (
    None
):
    found = MetricLike()
    for at in range(1, 10):
        found.add(f"round {at} zeta {at / 7:.4f}".encode(), at)
        found.add(f"rank {at % 3} used {at / 7:.4f} GiB".encode(), at)
        found.add(f"shard {at} of 2.50 GiB".encode(), at)
    assert (found.lines, found.forms()) == (0, [])
    found.add(b"round 10 zeta 0.1250", 10)
    (form,) = found.forms()
    assert (form.count, form.text, found.lines) == (10, "round 1 zeta 0.1429", 10)
