"""What the learner reads of lines, tables and listings of unknown form, and what it leaves out."""

from __future__ import annotations

import tracemalloc
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import yaml

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Sample
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.free_fields import MAX_BYTES
from ldlm_monitor.logs.parse.learner import Learner
from ldlm_monitor.logs.parse.translation import translated
from tests.logs.parse.conftest import Parse

CLEAR = yaml.safe_load((Path(__file__).parent / "clear_lines.yml").read_text())


def inferred(parse: Parse, text: str) -> list[Sample]:
    """The samples of a text, all of which must be inferred."""
    found = [each for each in parse(text) if isinstance(each, Sample)]
    assert {each.source for each in found} <= {"inferred"}
    return found


def losses(samples: list[Sample]) -> list[tuple[int | None, float | None]]:
    return [(each.step, each.values.get("loss")) for each in samples]


@pytest.mark.parametrize("example", CLEAR, ids=lambda example: example["line"][:40])
def test_a_counter_beside_a_loss_is_read_at_once(parse: Parse, example: dict[str, Any]) -> None:
    (sample,) = inferred(parse, example["line"] + "\n")
    for name in ("step", "epoch", "rank"):
        assert getattr(sample, name) == example.get(name)
    for name, value in example["values"].items():
        assert sample.values[name] == pytest.approx(value, nan_ok=True)


def test_the_loss_of_an_estimators_evaluation_is_no_loss_of_a_step(parse: Parse) -> None:
    line = "INFO:tensorflow:Saving dict for global step 54: accuracy = 0.5, loss = 0.75"
    text = "".join(f"INFO:tensorflow:loss = 0.{at}, step = {at}\n" for at in range(1, 5))
    *_, last = inferred(parse, f"{text}{line}\n")
    assert (last.step, dict(last.values)) == (None, {"eval_accuracy": 0.5, "eval_loss": 0.75})


@pytest.mark.parametrize(
    "line",
    [
        "At step 5 the loss: 0.3, said the report",
        "Epoch 00003: val_loss improved from 0.5 to 0.25, saving model to best.ckpt",
        "    loss_weight=1.0, label_loss=0.5, num_epochs=3",
        "cmd = train.py --epochs 3 --loss 0.5 --lr 1e-4",
        "    assert step == 0 and loss == 1.0",
        '        print(f"step {step} loss {loss.item():.4f}")',
        "EarlyStopping: val_loss did not improve from 0.5 at epoch 10",
        "model loss function = mse, epochs = 10, step = 5",
        "TrainingArguments(logging_steps=10, aux_loss=0.01, max_steps=100)",
        "Namespace(step=3, loss=0.5, lr=0.001)",
        "config = {'step': 3, 'loss': 0.5}",
        "+ echo 'step 5 loss: nan'",
        "+ echo 'Loss: nan'",
        "Loss type: l2t",
        "Loss: pending",
        "Loss: nanometres",
        "  Loss: 6.262142",
        "best val_loss: 0.25",
        "The loss of 2.5 at step 100 was lower than the loss of 3.5 at step 50",
        "loss scale: 65536.0, at iteration 12 the optimizer skipped its update again",
        "        (fc2): Linear(in_features=3072, out_features=768, bias=True)",
        "dense_1 (Dense)     (None, 128)     100480",
        "Total params: 1.5 M, trainable params: 1.25 M",
        '  File "/app/step 3.py", line 12, in loss',
        "    loss = criterion(output, target)  # step 3",
        "ValueError: loss is nan at step 7, stopping training now",
        "GPU 0: 10.75 GiB of 12.00 GiB, 3 processes",
        "Downloading shards 3/12, 120 MB/s",
        "checkpoint of step 120 took 3.5 s",
        "lr: 0.1",
        "accuracy: 0.5",
    ],
)
def test_sentences_settings_code_and_sizes_give_nothing_however_often(
    parse: Parse, line: str
) -> None:
    assert inferred(parse, f"{line}\n" * 5) == []


def test_a_template_is_accepted_at_its_third_line_and_loses_none(parse: Parse) -> None:
    lines = [f"[{step:06}/012000] skipped=6, lr=[9.5e-06, 9.5e-06]" for step in range(1, 6)]
    found = inferred(parse, "\n".join([*lines, ""]))
    assert [each.step for each in found] == [1, 2, 3, 4, 5]
    assert [each.position.line for each in found] == [1, 2, 3, 4, 5]
    assert inferred(parse, "\n".join([*lines[:2], ""])) == []


def test_held_lines_are_dropped_where_another_record_follows_them(parse: Parse) -> None:
    lines = [f"[{step}/120] lr=0.5" for step in range(1, 5)]
    lines.insert(2, "Step 9: Loss = 2.5, LR = 1.0e-04")
    found = [each for each in parse("\n".join([*lines, ""])) if isinstance(each, Sample)]
    assert [(each.step, each.source) for each in found] == [
        (9, "text"),
        (3, "inferred"),
        (4, "inferred"),
    ]


def test_lines_whose_counter_stands_give_nothing(parse: Parse) -> None:
    assert inferred(parse, "ranks 2/8, lr=0.5\n" * 9) == []


def test_a_nan_alone_does_not_make_a_template(parse: Parse) -> None:
    line = "[ Train | {:03}/100 ] loss = {}\n"
    bad = "".join(line.format(step, "nan") for step in range(1, 9))
    assert inferred(parse, bad) == []
    good = "".join(line.format(step, 2.5) for step in range(1, 4)) + line.format(4, "nan")
    assert [step for step, _ in losses(inferred(parse, good))] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "line",
    [
        "Validation: loss=0.5",
        ">> VAL, loss=0.5 (text=0.25, noise=0.25)",
        "Test:  [ 10/157]  loss: 0.75 (0.50)  acc1: 87.5 (81.25)",
        "validate step: 100  its loss=0.5",
        "Ended eval after train step 100, loss=0.5",
        "epoch 3 dev loss 0.5",
        "Epoch 3 evaluated with loss: 0.5, dice score: 0.25.",
        "val_loss: 0.5",
    ],
)
def test_a_loss_of_an_evaluation_is_never_the_training_s(parse: Parse, line: str) -> None:
    (sample,) = inferred(parse, line + "\n")
    assert sample.values["eval_loss"] == 0.5
    assert "loss" not in sample.values


def test_the_only_loss_of_a_file_is_its_loss_whatever_its_name(parse: Parse) -> None:
    lines = "".join(f"step:{step}/90, NER loss: 2.5\n" for step in range(1, 5))
    assert losses(inferred(parse, lines)) == [(step, 2.5) for step in range(1, 5)]
    (first, *rest) = inferred(parse, f"step:0/90, loss: 3.5\n{lines}")
    assert first.values["loss"] == 3.5
    assert [dict(each.values) for each in rest] == 4 * [{"loss_ner": 2.5, "total_steps": 90}]


def test_a_table_of_losses_needs_no_counter(parse: Parse) -> None:
    rows = "".join(f"{at}.5\t0.25\t0.125\t\n" for at in range(1, 4))
    found = inferred(parse, f"total loss\tscore loss\tlr\t\n{rows}")
    assert losses(found) == [(None, 1.5), (None, 2.5), (None, 3.5)]
    assert found[0].values["loss_score"] == 0.25
    assert inferred(parse, f"loss, accuracy = evaluate(model, data)\n{rows}") == []


@pytest.mark.parametrize(
    "text",
    [
        (
            "Training: 100%|█████| 3/3 [00:00<00:00,  6.25it/s]"
            "2025-09-16 12:09:48,350 - INFO - Train Loss: 2.{}, Train Acc: 60.5%"
        ),
        "Critic Loss: 0.5 Train Loss: 2.{}:   2%|▌    | 2/400 [00:08<28:12,  4.25s/it]",
    ],
)
def test_a_loss_behind_a_bar_or_in_its_description_is_read(parse: Parse, text: str) -> None:
    lines = "".join(f"{text.format(at)}\n" for at in range(1, 6))
    found = [each for each in parse(lines) if isinstance(each, Sample)]
    assert [each.values["loss"] for each in found if "loss" in each.values][-3:] == [2.3, 2.4, 2.5]


def test_of_several_counters_the_one_that_no_other_resets_is_the_step(parse: Parse) -> None:
    lines = [f"iter {at % 3}, update {at}, epoch {at // 3}, loss 2.5" for at in range(1, 9)]
    assert [each.step for each in inferred(parse, "\n".join([*lines, ""]))][-3:] == [6, 7, 8]


@pytest.mark.parametrize(
    ("line", "totals"),
    [
        ("Iter 790001/800000 Loss: 2.5", {"total_steps": 800000}),
        ("step 5 of 90, loss=2.5", {"total_steps": 90}),
        ("global step 30/63, epoch: 2, loss: 2.5", {"total_steps": 63}),
        ("Epoch [3/9], step [5/90], loss: 2.5", {"total_epochs": 9}),
        ("Epoch [1/1], step [5/90], loss: 2.5", {"total_epochs": 1, "total_steps": 90}),
        ("Epoch:[1/1](20/4292), loss: 2.5", {"total_epochs": 1, "total_steps": 4292}),
        ("epoch: 3/9, loss: 2.5", {"total_epochs": 9}),
        ("step 5, loss=2.5", {}),
        ("step 95/90, loss=2.5", {}),
    ],
)
def test_what_stands_behind_a_counter_is_its_total(
    parse: Parse, line: str, totals: dict[str, float]
) -> None:
    (sample,) = inferred(parse, line + "\n")
    assert {name: each for name, each in sample.values.items() if "total" in name} == totals


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("[3/9][5/90]\tLoss_D: 0.5\tLoss_G: 2.5\tD(x): 0.25", ("loss_d", "loss_g")),
        ("Iter 5/90 | Loss_CE: 0.5 | Loss_ST: 2.5", ("loss_ce", "loss_st")),
        ("Epoch 5, loss_cycle=0.5, loss_adv=2.5", ("loss_cycle", "loss_adv")),
    ],
)
def test_the_losses_of_several_parts_are_read_without_a_loss_of_all(
    parse: Parse, line: str, names: tuple[str, str]
) -> None:
    text = "".join(line.replace("5", str(at), 1) + "\n" for at in (5, 6, 7, 8))
    values = inferred(parse, text)[-1].values
    assert [values[name] for name in names] == [0.5, 2.5]
    assert "loss" not in values


@pytest.mark.parametrize(
    ("form", "totals"),
    [
        ("[ {}/90 ][ 0:07:03 ][ loss: 2.5{} ]", {"total_steps": 90}),
        ("{}/90 loss: 2.5{}", {"total_steps": 90}),
        ("[3/9][{}/90] loss: 2.5{}", {"total_epochs": 9}),
        ("Epoch 3 [{}/90] loss: 2.5{}", {}),
        ("[ {}] loss: 2.5{}", {}),
    ],
)
def test_a_counter_without_a_name_may_have_its_total(
    parse: Parse, form: str, totals: dict[str, float]
) -> None:
    text = "".join(form.format(at, at) + "\n" for at in (5, 6, 7, 8))
    sample = inferred(parse, text)[-1]
    assert sample.step == 8
    assert {name: each for name, each in sample.values.items() if "total" in name} == totals


@pytest.mark.parametrize(
    "line",
    [
        *("Epoch 3/40", "Epoch: [3 | 40]", "--- EPOCH 3 of 40 ---", "\x1b[1mepoch 3/40\x1b[0m:"),
        *("Epoch 3/40 starts at 12:00", "saved in epoch 3/40", "Epoch 3/40, ELBO 4.4047"),
        "08/04/2020 05:33:49 - INFO - __main__ -   VALID Epoch 3 of 40: ELBO 4.7508, unknown 8",
    ],
)
def test_a_line_without_a_metric_has_its_epoch_and_the_total(parse: Parse, line: str) -> None:
    (sample,) = inferred(parse, line + "\n")
    assert (sample.epoch, sample.step, sample.values) == (3, None, {"total_epochs": 40})


def test_a_total_of_epochs_may_stand_behind_a_bar(parse: Parse) -> None:
    (sample,) = inferred(parse, "Epoch:[ 3 | 19 ]   Batch:[ 100 | 2068 ]   loss: 5.6838\n")
    assert (sample.epoch, sample.values) == (3, {"loss": 5.6838, "total_epochs": 19})


@pytest.mark.parametrize("line", ["epoch 3", "epoch 50/40"])
def test_other_lines_about_epochs_give_nothing(parse: Parse, line: str) -> None:
    assert inferred(parse, line + "\n") == []


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("2019-08-27 11:11:39,567 [t.py:303] INFO Test: [10/40]\t Time 32.7\t EPE 6.9", 0.25),
        ("Validation: 5/20", 0.25),
        ("eval step 5/20 done", 0.25),
    ],
)
def test_a_counter_of_an_evaluation_is_a_sign_of_life(
    parse: Parse, line: str, share: float
) -> None:
    (sample,) = inferred(parse, line + "\n")
    assert (sample.step, sample.values) == (None, {"eval_progress": share})


@pytest.mark.parametrize("line", ["latest: 5/20", "tests 5/20 passed", "Test: 30/20", "best 5/20"])
def test_other_shares_are_none(parse: Parse, line: str) -> None:
    assert inferred(parse, line + "\n") == []


def test_parts_of_a_loss_are_its_components(parse: Parse) -> None:
    (sample,) = inferred(parse, "step 3 loss=3.0 (text=1.0, image=2.0), lm_loss=1.5\n")
    assert sample.values == {"loss": 3, "loss_text": 1, "loss_image": 2, "loss_lm": 1.5}


def test_rows_of_a_table_have_the_names_of_its_header(parse: Parse) -> None:
    text = (
        "     Epoch   gpu_mem  box_loss       obj\n"
        "      0/99     6.55G   0.04628   0.02356:   7%|x| 1/15\r"
        "      1/99     6.55G   0.04377       nan:  13%|x| 2/15\r\n"
        "3 and more words\n"
    )
    first, second = inferred(parse, text)
    assert (first.epoch, first.values["loss_box"], first.values["obj"]) == (0, 0.04628, 0.02356)
    assert (second.epoch, second.values["gpu_mem"]) == (1, 6.55e9)
    assert isnan(second.values["obj"])


def test_a_cross_entropy_is_the_loss_unless_the_line_is_an_evaluations(parse: Parse) -> None:
    train = "".join(f"step {at} xent: 2.{at}, lr: 0.5\n" for at in range(1, 5))
    assert losses(inferred(parse, train)) == [(at, float(f"2.{at}")) for at in range(1, 5)]
    of_test = "".join(f"step {at} test_acc: 0.5, xent: 2.{at}, lr: 0.5\n" for at in range(1, 5))
    assert not any("loss" in each.values for each in inferred(parse, of_test))


def test_a_heading_of_an_evaluation_may_have_an_epoch(parse: Parse) -> None:
    *_, sample = inferred(parse, "** Evaluating the policy, Epoch 2/3 ***\nloss: 0.5, ppl: 2.5\n")
    assert sample.values == {"eval_ppl": 2.5, "eval_loss": 0.5}


@pytest.mark.parametrize("between", ["\t", "  "])
def test_a_table_of_two_columns_needs_a_known_name(parse: Parse, between: str) -> None:
    rows = f"10{between}2.5\n20{between}2.25\n"
    assert losses(inferred(parse, f"step{between}loss\n{rows}")) == [(10, 2.5), (20, 2.25)]
    assert not inferred(parse, f"step{between}points\n{rows}")


def test_a_table_with_pipes_and_other_columns_than_its_header(parse: Parse) -> None:
    text = (
        "| Step | Training Loss | Validation Loss |\n"
        "|------|---------------|-----------------|\n"
        "| 100  | 2.5           | -               |\n"
        "| 200  | 2.25          | 2.75            |\n"
        "| 300  | 2.25          |\n"
    )
    found = inferred(parse, text)
    assert losses(found) == [(100, 2.5), (200, 2.25)]
    assert found[1].values["eval_loss"] == 2.75


def test_a_listing_of_names_and_values_is_one_sample(parse: Parse) -> None:
    text = (
        "-----------------------------------\n"
        "| time/                |          |\n"
        "|    total_timesteps   | 4096     |\n"
        "| train/               |          |\n"
        "|    loss              | 4.5      |\n"
        "|    value_loss        | 9.25     |\n"
        "-----------------------------------\n"
    )
    (sample,) = inferred(parse, text)
    assert (sample.step, sample.position.line) == (4096, 1)
    assert sample.values == {"loss": 4.5, "loss_value": 9.25}


def test_indented_fields_below_a_counter_are_one_sample(parse: Parse) -> None:
    text = (
        "[batch=2/739,at=1]\n    train/loss=10.5\n    optim/LR=1e-4\nnext\n"
        "[batch=3/739,at=1]\n    train/loss=10.25\n"
    )
    assert losses(inferred(parse, text)) == [(2, 10.5), (3, 10.25)]


def test_a_known_format_wins_line_by_line(parse: Parse) -> None:
    text = "Step 9: Loss = 2.5, LR = 1.0e-04\nstep 10 | loss 2.25 | lr 1e-4\n"
    assert [each.source for each in parse(text) if isinstance(each, Sample)] == ["text", "inferred"]


def test_lines_that_look_like_metrics_and_give_nothing_are_counted() -> None:
    parser = Parser()
    text = b"the student's loss: 2.5 after some more words\n" * 3 + b"ranks 2/8, lr=0.5\n" * 4
    text += b"".join(b"[%d/120] lr=0.5\n" % step for step in range(9))
    chunk = Chunk("train.log", (1, 1, 0), 0, 1, text, final=True)
    assert len(parser.feed(chunk, Origin("r"), 0.0)) == 9
    assert parser.counters.unread == 7


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_what_is_inferred_does_not_depend_on_how_the_bytes_arrive(size: int) -> None:
    lines = [f"[{step}/120] lr=0.5\n" for step in range(9)] + ["step  loss  lr\n"]
    lines += [f"{step}  {2.5 + step}  0.1\n" for step in range(9)] + ["[batch=2/9,at=1]\n"]
    data = "".join([*lines, "    loss=2.5\n    lr=0.1\n", "Epoch 3 loss 2.5\n"]).encode()
    whole = Parser().feed(Chunk("a.log", (1, 1, 0), 0, 1, data, final=True), Origin("r"), 0.0)
    parser, parts, offset, line = Parser(), [], 0, 1
    while offset < len(data):
        end = data.find(b"\n", min(offset + size, len(data) - 1)) + 1
        part = data[offset:end]
        chunk = Chunk("a.log", (1, 1, 0), offset, line, part, final=end == len(data))
        parts += parser.feed(chunk, Origin("r"), 0.0)
        offset, line = end, line + part.count(b"\n")
    assert len(whole) == 20
    assert sorted(map(repr, parts)) == sorted(map(repr, whole))


def test_a_loss_without_a_counter_is_read_once_it_repeats_and_changes(parse: Parse) -> None:
    text = "".join(f"current step: {n}th step\nbatch loss:{n}.5\n" for n in range(1, 5))
    assert losses(inferred(parse, text)) == [(None, n + 0.5) for n in range(1, 5)]
    assert inferred(parse, "mean loss: 2.5\n" * 5) == []


def test_beside_losses_with_a_counter_those_without_one_are_no_training_losses(
    parse: Parse,
) -> None:
    text = "".join(f"step {n} loss {n}.5\naverage loss: {n}.25\n" for n in range(1, 6))
    assert losses(inferred(parse, text)) == [(n, n + 0.5) for n in range(1, 6)]


@pytest.mark.parametrize(
    "line",
    [
        "epoch 3: policy loss: 2.5, value loss: 1.25",
        "epoch 3 classify loss is 0.5, angle loss is 0.25",
        "epoch 3 cost 34.5 s",
        "epoch 3, cost: 34.5s, acc: 0.5",
        "epoch 3 time cost: 34.5, acc: 0.5",
        "[7]\ttrain-rmse:2.5\ttest-rmse:2.75",
        "Iteration: 100\tError: 0.25",
        " " * 80 + "Epoch 0 Iteration 200 loss = 0.5 eval = 0.75",
    ],
)
def test_parts_times_and_other_measures_are_not_the_loss(parse: Parse, line: str) -> None:
    assert all("loss" not in each.values for each in inferred(parse, (line + "\n") * 4))


@pytest.mark.parametrize(
    "heading",
    ["Evaluation:", "Validation results:", "***** Running Evaluation *****", "=== Test ==="],
)
def test_indented_lines_below_the_heading_of_an_evaluation_are_of_it(
    parse: Parse, heading: str
) -> None:
    """A fine-tuning's log had 16,625 such rows, whose steps begin at 100 in each evaluation."""
    found = inferred(
        parse,
        "[train] step: 900, speed: 2.5 steps/s\n\tloss: 2.5, ppl: 12.2\n"
        f"{heading}\n\tstep 100: loss: 3.5, ppl: 33\n\tstep 200: loss: 3.25, ppl: 25.8\n"
        + "".join(f"Training goes on\n\tstep {at}: loss: 2.25, ppl: 9.5\n" for at in range(3)),
    )
    rows = [(e.step, e.values) for e in found if {"loss", "eval_loss"} & e.values.keys()]
    evaluated = [(step, values["eval_loss"]) for step, values in rows if "eval_loss" in values]
    assert evaluated == [(None, 3.5), (None, 3.25)]
    # Their form is that of the evaluation's rows: it must repeat apart from them.
    assert [row for row in losses(found) if row[1] == 2.25] == [(2, 2.25)]
    assert not {3.5, 3.25} & {values.get("loss") for _, values in rows}


@pytest.mark.parametrize(
    "text",
    [
        "Evaluation:\nstep 100: loss: 3.5\n",  # not indented: the training may go on
        "Evaluation: none\n\tstep 100: loss: 3.5\n",
        "Evaluation:\n\nstarts\n\tstep 100: loss: 3.5\n",
        "Latest:\n\tstep 100: loss: 3.5\n",
        "Training, then test:\n\ttrain step 100: loss: 3.5\n",
    ],
)
def test_other_lines_near_such_a_heading_are_the_trainings(parse: Parse, text: str) -> None:
    assert losses(inferred(parse, text)) == [(100, 3.5)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("step 5 source loss 2.5 target loss 3.5", "loss_source"),
        ("step 5 | inner loss 2.5 | outer loss 3.5", "loss_inner"),
        ("step 5, testing loss 2.5", "eval_loss"),
        ("step 5 the train loss 2.5", "loss"),
        ("Validation:\nloss: 2.5", "eval_loss"),
        ("--- Evaluating on test set ---\nLoss: 2.5 acc: 0.5", "eval_loss"),
        ("Validation:\nstep 5 loss: 2.5", "loss"),
    ],
)
def test_a_value_is_a_loss_only_where_the_words_beside_it_leave_it_one(
    parse: Parse, text: str, name: str
) -> None:
    (sample,) = inferred(parse, text + "\n")
    assert sample.values[name] == 2.5
    assert {"loss", "eval_loss"} & sample.values.keys() <= {name}


@pytest.mark.parametrize(
    ("form", "quantity"),
    [
        ("{{'loss': {bad}, 'grad_norm': {good}, 'kl': {good}}}", "loss"),
        ("{{'loss': {good}, 'grad_norm': {bad}, 'kl': {good}}}", "grad_norm"),
        ("it {at} loss {bad} gn {good} kl {good}", "loss"),
        ("it {at} loss {good} gn {bad} kl {good}", "gn"),
    ],
)
def test_a_number_that_turns_nan_changes_no_form(
    parse: Parse, form: str, quantity: str | None
) -> None:
    values = ((at, "nan" if at == 30 else f"1.{at}") for at in range(10, 40))
    lines = (form.format(at=at, bad=bad, good=f"2.{at}") for at, bad in values)
    found = inferred(parse, "".join(f"{line}\n" for line in lines))
    assert len(found) == 30
    broken = [name for name, value in found[20].values.items() if isnan(value)]
    assert broken == ([] if quantity is None else [quantity])


def test_what_counts_beside_values_of_unknown_names_is_read_from_the_twentieth_line_on(
    parse: Parse,
) -> None:
    lines = [f"iter {at} objective {9 / at:.4f} drift 0.5\n" for at in range(1, 25)]
    assert inferred(parse, "".join(lines[:19])) == []
    found = inferred(parse, "".join(lines))
    assert [each.step for each in found] == list(range(1, 25))
    assert found[0].values == {"objective": 9.0, "drift": 0.5}


@pytest.mark.parametrize(
    "form",
    [
        "iter {at} objective 0.5",  # no value changes
        "batch {at} objective {value}",
        "rank={rank} objective={value}",
        "loading part {at} of the data took {value} seconds",
        "10:00:{at} objective {value}",
        "step 5 loss 2.5\nstep {at} objective {value}",  # the file has a loss
        "{at} files in {value} s",
        "[>>>   ] {at}/117, 1.5 task/s, elapsed: {value}s, ETA: 60s",
    ],
)
def test_other_values_of_unknown_names_give_nothing(parse: Parse, form: str) -> None:
    lines = (form.format(at=at, rank=at % 4, value=9 / at) for at in range(10, 40))
    found = inferred(parse, "".join(f"{line}\n" for line in lines))
    assert not any("objective" in each.values for each in found)
    assert all(each.step in (None, 5) for each in found)


def test_a_number_at_the_beginning_that_falls_is_no_step(parse: Parse) -> None:
    lines = "".join(f"{at % 4} loss {2.5 - at / 10} lr 0.5\n" for at in range(1, 12))
    assert {each.step for each in inferred(parse, lines)} <= {None, 1, 2, 3}
    assert inferred(parse, lines)[-1].step is None


def test_a_known_format_takes_no_part_of_a_line_that_reports_a_training_too(parse: Parse) -> None:
    form = "[{}/6] Training loss: {}.5\t Validation loss: 46.25\n"
    found = inferred(parse, "".join(form.format(at, 9 - at) for at in range(1, 6)))
    assert losses(found) == [(at, 9.5 - at) for at in range(1, 6)]
    assert {each.values["eval_loss"] for each in found} == {46.25}


def test_a_loss_that_is_called_the_training_s_is_so_behind_words_of_an_evaluation(
    parse: Parse,
) -> None:
    (sample,) = inferred(parse, "[Evaluating] 3/3 done. Iter: 10, Train Loss: 2.5, Val Loss: 1.5\n")
    assert (sample.values["loss"], sample.values["eval_loss"]) == (2.5, 1.5)


def test_names_that_directly_follow_values_have_values_too(parse: Parse) -> None:
    (sample,) = inferred(parse, "Epoch: 1  Loss:  0.5 acc 0.25 dis 11630.0\n")
    assert sample.values == {"loss": 0.5, "accuracy": 0.25, "dis": 11630}
    (other,) = inferred(parse, "Epoch: 1  Loss:  0.5 in 10 minutes\n")
    assert other.values == {"loss": 0.5}


def test_what_a_line_counts_apart_is_no_step_beside_a_counter_that_rises(parse: Parse) -> None:
    form = "Episode {:03}/900 | Score: 3 | Reward: {} | Steps: {}\n"
    lines = "".join(form.format(at, at * 0.75, 90 + at * 7 % 5) for at in range(1, 26))
    found = inferred(parse, lines)
    assert [each.values["reward"] for each in found] == [at * 0.75 for at in range(1, 26)]
    assert [each.step for each in found if each.step is not None] == list(range(20, 26))


@pytest.mark.parametrize(
    "lead",
    [
        "{} tokens |",
        "{} samples,",
        "{} ms |",
        "{} MB",
        "{} worker",
        "fold {}:",
        "seed {}",
        "run {} |",
    ],
)
def test_a_number_at_the_beginning_that_is_said_to_be_another_thing_is_no_step(
    parse: Parse, lead: str
) -> None:
    lines = "".join(f"{lead.format(at)} loss {9 / at:.3f}\n" for at in range(10, 20))
    assert {each.step for each in inferred(parse, lines)} <= {None}


def test_long_lines_that_may_be_of_a_form_are_held_in_part() -> None:
    place = RecordPlace("a.log", 1, 0, Origin("r"), None, None)
    tracemalloc.start()
    try:
        learner = Learner()
        for at in range(50):
            learner.search(b"%s 1.5 " % (b"x" * (at + 1)) + b"y" * 100_000, place)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_of_a_long_line_only_the_part_that_is_read_is_translated(
    parse: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    monkeypatch.setattr(
        "ldlm_monitor.logs.parse.learner.translated",
        lambda text: lengths.append(len(text)) or translated(text),
    )
    parse(
        "step 5 Verlust 2.5 loss 2.5 " + "y" * 100_000 + "\nstep, loss\n5, 2.5 " + "y" * 9000 + "\n"
    )
    assert 0 < max(lengths) <= MAX_BYTES
