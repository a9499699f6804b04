"""What any trainer's lines have in common: units, records over lines, bars of all kinds."""

from __future__ import annotations

import math

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.errors import FormatError
from ldlm_monitor.base.records import Event, Record, Sample
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.patterns import quantity
from ldlm_monitor.logs.parse.vocabulary import measure
from tests.logs.parse.conftest import Parse


def samples(records: list[Record]) -> list[Sample]:
    return [record for record in records if isinstance(record, Sample)]


def kinds(records: list[Record]) -> list[str]:
    return [record.kind for record in records if isinstance(record, Event)]


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("420.5ms", None, 0.4205),
        ("4.5GiB", None, 4.5 * 2**30),
        ("3.96GB", "GiB", 3.96 * 2**30),
        ("11,251", None, 11251.0),
        ("20.5%", None, 0.205),
        ("1.23E+00", None, 1.23),
        ("-inf", None, -math.inf),
        ("Infinity", None, math.inf),
        ("1,23", None, None),
        ("4.5 parsecs", None, None),
        ("5 apples", "ms", 0.005),
    ],
)
def test_a_quantity_is_told_in_base_units(text: str, unit: str | None, value: float | None) -> None:
    assert quantity(text, unit) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize("text", ["nan", "NaN", "nan.0", "'nan'", "tensor(nan)", "nanms"])
def test_every_spelling_of_nan_is_nan(text: str) -> None:
    value = quantity(text)
    assert value is not None
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("key", "name", "factor"),
    [
        ("Train/Loss", "loss", 1),
        ("lm loss", "loss", 1),
        ("optim/LR (group 0)", "learning_rate", 1),
        ("lr-DecoupledAdamW/group0", "learning_rate", 1),
        ("elapsed time per iteration (ms)", "step_seconds", 1e-3),
        ("throughput per GPU (TFLOP/s/GPU)", "flops_per_second_per_device", 1e12),
        ("load_balancing_loss", "loss_load_balancing", 1),
        ("train/box_loss", "loss_box", 1),
        ("Best val loss", "best_loss", 1),
        ("rewards/reward_fn", "rewards_reward_fn", 1),
        ("cross_entropy", "cross_entropy", 1),  # evaluations print it as well
    ],
)
def test_a_key_means_the_same_whoever_prints_it(key: str, name: str, factor: float) -> None:
    assert (measure(key).name, measure(key).factor) == (name, factor)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("train/kl", "kl"),
        ("objective/kl", "kl"),
        ("actor/entropy", "entropy"),
        ("critic/rewards/mean", "reward"),
        ("rewards/mean", "reward"),
        ("train/reward_std", "reward_std"),
        ("rewards/chosen", "rewards_chosen"),
        ("loss/kl", "loss_kl"),
        ("eval/reward", "eval_reward"),
        ("policy/approxkl_avg", "policy_approxkl_avg"),
    ],
)
def test_the_last_part_of_a_path_names_what_is_measured_of_a_policy(key: str, name: str) -> None:
    assert measure(key).name == name


def test_a_users_own_line_is_asked_before_the_packaged_ones(tmp_path) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text(
        "format: mine\nlines:\n  - name: step\n    trigger: 'step=\\d+ loss='\n"
        "    pattern: 'step=(?P<step>\\d+) loss=(?P<mine>\\S+)'\n    values: {loss_mine: mine}\n"
        "    examples: [{line: 'step=1 loss=2', values: {loss_mine: 2}}]\n"
    )
    chunk = Chunk("a.log", (1, 1, 0), 0, 1, b"step=1 loss=2\n")
    (sample,) = samples(Parser([mine]).feed(chunk, Origin("r"), 0.0))
    assert sample.values == {"loss_mine": 2.0}


EXAMPLES = "examples: [{line: a, values: {}}]}]"
PAIRS = "pairs: {item: b, start: c, closed_by: d}"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (f"lines: [{{name: a, trigger: a, {EXAMPLES}", "Field required"),
        (f"lines: [{{name: a, trigger: a, pattern: a, {PAIRS}, {EXAMPLES}", "no group c"),
        (f"bars: [{{name: a, pattern: '(', phase: train, {EXAMPLES}", "does not compile"),
    ],
)
def test_a_format_that_cannot_work_is_refused_when_it_is_loaded(tmp_path, entry, said) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text(f"format: mine\n{entry}\n")
    with pytest.raises(FormatError, match=said):
        Parser([mine])


HEADER = "[2024-04-18 14:24:46] INFO     [olmo.train:729, rank={rank}] [step={step}/100]\n"


def test_a_record_over_lines_stands_where_its_header_does(parse) -> None:
    text = HEADER.format(rank=0, step=2) + "    train/CrossEntropyLoss=10.5\n    train/PPL=9\n"
    (sample,) = samples(parse("before\n" + text + "after\n"))
    assert (sample.position.line, sample.step, sample.rank) == (2, 2, 0)
    assert sample.values == {"loss": 10.5, "ppl": 9.0, "total_steps": 100.0}


def test_headers_of_ranks_that_tell_nothing_are_no_samples(parse) -> None:
    rows = "    train/CrossEntropyLoss=10.5\n"
    text = HEADER.format(rank=3, step=2) + HEADER.format(rank=0, step=2) + rows
    (sample,) = samples(parse(text + HEADER.format(rank=1, step=2)))
    assert (sample.rank, sample.values["loss"]) == (0, 10.5)


def test_a_record_over_lines_may_come_in_pieces_and_is_told_after_a_silence() -> None:
    parser, offset, found = Parser(), 0, []
    for line, text in enumerate(("[batch=1/100]:\n", "\t Train loss/train/total: 10.5\n"), 1):
        chunk = Chunk("a.log", (1, 1, 0), offset, line, text.encode())
        found += parser.feed(chunk, Origin("r"), 10.0)
        offset += len(text)
    assert found == []
    (sample,) = samples(parser.tick(12.5))
    assert (sample.step, sample.values["loss"], sample.position.line) == (1, 10.5, 1)


def test_the_last_row_of_a_file_that_ends_in_it_may_be_cut_short(parse) -> None:
    text = '    {\n      "loss": 4.5,\n      "step": 2,\n      "grad_norm": 6.2'
    (sample,) = samples(parse(text))
    assert sample.values == {"loss": 4.5}


def test_a_line_of_numbers_behind_a_bar_is_read_as_well(parse) -> None:
    bar = "\r  4%|▎    | 101/2836 [00:43<17:14,  2.64it/s]"
    line = "[2024-03-30 06:10:26,458][main][INFO] - iteration index: 100, batch loss: 69.125"
    shown, written = samples(parse(bar + line + "\n"))
    assert (shown.step, shown.values["progress"]) == (101, pytest.approx(101 / 2836))
    assert (written.step, written.values) == (100, {"loss": 69.125})
    assert written.position.offset > shown.position.offset


def bar(count: int, total: int, description: str = "", postfix: str = "") -> str:
    return f"\r{description} 50%|##   | {count}/{total} [00:10<00:10,  1.00it/s{postfix}]"


def test_inside_of_a_training_a_shorter_bar_without_name_is_an_evaluation(parse) -> None:
    bars = [bar(10, 1000), bar(1, 20), bar(20, 20), bar(11, 1000)]
    records = parse("".join(bars) + "\n")
    assert [sample.step for sample in samples(records)] == [10, None, None, 11]
    assert samples(records)[2].values == {"eval_progress": 1.0}
    assert kinds(records) == ["eval_started", "eval_finished"]


@pytest.mark.parametrize("description", ["train:", "steps:", ""])
@pytest.mark.parametrize("postfix", ["", ", loss=0.5", ", epoch=3, loss=0.5"])
def test_the_end_of_a_bar_is_no_event(parse, description: str, postfix: str) -> None:
    assert kinds(parse(bar(2, 2, description, postfix=postfix) + "\n")) == []


def test_an_epochs_bar_shows_the_progress_of_the_epoch(parse) -> None:
    records = parse(bar(100, 100, "Epoch 1:", ", loss=0.5") + "\n")
    assert kinds(records) == []
    (sample,) = samples(records)
    assert (sample.step, sample.epoch, sample.values["epoch_progress"]) == (100, 1.0, 1.0)


@pytest.mark.parametrize(
    "description", ["Map:", "Loading checkpoint shards:", "Downloading data:", "Tokenizing:"]
)
def test_bars_of_other_work_tell_nothing(parse, description: str) -> None:
    assert parse(bar(5, 10, description) + "\n") == []


def test_the_summary_of_a_trainer_tells_that_the_run_is_over(parse) -> None:
    line = "{'train_runtime': 12.5, 'train_loss': 0.5, 'epoch': 1.0}\n"
    records = parse(line)
    assert kinds(records) == ["run_finished"]
    assert samples(records)[0].values == {"train_runtime": 12.5, "loss_mean": 0.5}


@pytest.mark.parametrize(
    "line",
    [
        "step 5 loss: 2.3 best_loss: inf",
        "step 5 loss: 2.3, min_loss: inf, last_loss: 2.2",
        "epoch 1 train_loss: 2.3 val_loss: nan acc: nan",
        "step 5 loss: 2.3 | test loss: nan",
        "0  hello   3   nan",
        "prediction: nan target: 1.0",
        "{'nan': 0.3, 'cat': 0.7}",
        "IoU.nan: 0.4 IoU.cat: nan",
        "class nan loss 0.4",
        "prompt: loss: nan",
    ],
)
def test_what_is_not_finite_beside_the_training_loss_is_no_loss(parse, line: str) -> None:
    """A prediction, a class that is called so, an evaluation, a best value that nothing set yet."""
    for record in parse(line + "\n"):
        assert isinstance(record, Sample)
        losses = (value for name, value in record.values.items() if name.startswith("loss"))
        assert all(map(math.isfinite, losses))


def test_objects_over_lines_that_end_as_on_windows_are_read(parse: Parse) -> None:
    text = '[\r\n  {\r\n    "epoch": 0.5,\r\n    "loss": 2.5,\r\n    "step": 10\r\n  }\r\n]\r\n'
    (sample,) = samples(parse(text))
    assert (sample.step, sample.values) == (10, {"loss": 2.5})


def test_a_step_with_its_total_in_one_text_is_read(parse: Parse) -> None:
    row = '{"loss": 2.5, "global_step/max_steps": "160/438"}\n'
    for path in ("metrics.jsonl", "train.log"):
        (sample,) = samples(parse(row, path))
        assert (sample.step, sample.values["total_steps"]) == (160, 438)
