"""JSON documents and printed dicts of any layout give the rows that are in them."""

from __future__ import annotations

import json
from math import isnan
from pprint import pformat
from typing import Any

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Event, Record, Sample
from ldlm_monitor.logs.parse import Parser, documents
from ldlm_monitor.logs.parse.blocks import BLOCK_SECONDS
from tests.logs.parse.conftest import Parse

ROWS: list[dict[str, Any]] = [
    {"epoch": at, "step": 10 * at, "loss": 2.5 - at / 8, "val_loss": 2.75 - at / 8}
    for at in range(1, 5)
]
NESTED = [
    {"epoch": row["epoch"], "step": row["step"], "train": {"loss": row["loss"], "acc": 0.5}}
    | {"val": {"loss": row["val_loss"]}}
    for row in ROWS
]
KEYED = {f"step_{row['step']}": {"loss": row["loss"], "val_loss": row["val_loss"]} for row in ROWS}
COLUMNS = {name: [row[name] for row in ROWS] for name in ("step", "loss", "val_loss")}


def samples(records: list[Record]) -> list[Sample]:
    return [each for each in records if isinstance(each, Sample)]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]",
        "[" + ",\n".join(map(json.dumps, ROWS)) + "]",
        "\n".join(json.dumps(row, indent=4) for row in ROWS),
        "\n".join("metrics: " + json.dumps(row, indent=4) for row in ROWS),
        "\n".join(f"epoch done\n{json.dumps(row, indent=4)}" for row in ROWS),
        "\n".join(pformat(row, width=20) for row in ROWS),
        json.dumps({"model": "x", "log_history": ROWS, "max_steps": 90}, indent=2),
        json.dumps(ROWS, indent=1),
        json.dumps(ROWS, indent="\t"),
        "\n".join(json.dumps([row], indent=1)[2:-2] for row in ROWS),
        json.dumps(NESTED, indent=2),
        json.dumps({"history": NESTED}),
        json.dumps(KEYED, indent=2),
        json.dumps(KEYED),
        json.dumps(COLUMNS, indent=2),
        json.dumps({"history": COLUMNS}),
    ],
    ids=range(18),
)
def test_each_row_of_a_document_is_a_sample(parse: Parse, text: str) -> None:
    found = samples(parse(f"{text}\n", path="log.json"))
    assert [(each.step, each.values["loss"], each.values["eval_loss"]) for each in found] == [
        (row["step"], row["loss"], row["val_loss"]) for row in ROWS
    ]
    assert {each.source for each in found} == {"jsonl"}


def test_a_row_stands_where_its_object_opens(parse: Parse) -> None:
    for indent in (1, 2, 8):
        text = "\n" + json.dumps(ROWS, indent=indent)
        opens = indent * " " + "{"
        for each in samples(parse(text + "\n")):
            assert text.split("\n")[each.position.line - 1] == opens
            assert text[each.position.offset :].startswith(f'{opens}\n{2 * indent * " "}"epoch"')
    one, two, *_ = samples(parse(json.dumps(ROWS) + "\n"))
    assert (one.position.line, two.position.line) == (1, 1)
    assert json.dumps(ROWS)[two.position.offset :].startswith('{"epoch": 2')


def test_a_row_of_a_growing_document_is_given_once_it_is_closed() -> None:
    parser, offset, counts = Parser(), 0, []
    text = json.dumps(ROWS, indent=2)
    for line, piece in enumerate(text.splitlines(keepends=True), start=1):
        chunk = Chunk("a.json", (1, 1, 0), offset, line, piece.encode())
        counts += [len(parser.feed(chunk, Origin("r"), 0.0))]
        offset += len(piece)
    closing = [at for at, line in enumerate(text.splitlines()) if line.strip(" ,") == "}"]
    assert [at for at, count in enumerate(counts) if count] == closing


@pytest.mark.parametrize("word", ["NaN", "nan", "'nan'", "tensor(nan)", "np.float64(nan)"])
def test_a_loss_that_is_no_number_is_read(parse: Parse, word: str) -> None:
    (sample,) = samples(parse(f'    {{\n      "loss": {word},\n      "step": 4\n    }}\n'))
    assert isnan(sample.values["loss"])


def test_the_mean_over_a_whole_run_is_no_loss_of_a_step(parse: Parse) -> None:
    row = {"step": 4, "train_loss": 2.5, "train_runtime": 10.0}
    (sample,) = samples(parse(json.dumps([row], indent=2) + "\n"))
    assert (sample.values["loss_mean"], "loss" in sample.values) == (2.5, False)


def test_rows_without_a_counter_need_a_second_one_that_differs(parse: Parse) -> None:
    text = '{{\n  "loss": {},\n  "kl": 0.5\n}}\n'
    assert samples(parse(text.format(2.5) * 3)) == []
    assert len(samples(parse(text.format(2.5) + text.format(2.25)))) == 2


@pytest.mark.parametrize(
    "text",
    [
        'config: {\n  "epoch": 10,\n  "loss": 0.5\n}\n',
        '{\n  "train_micro_batch_size_per_gpu": 4,\n  "loss_scale_window": 100\n}\n',
        '{\n  "learning_rate": 4.7e-05,\n  "epoch": 3,\n  "loss": "mse"\n}\n',
        "int main() {\n  loss = 0.5;\n}\n",
        '{\n  "steps": 20000,\n  "lr": 0.1,\n  "loss_alpha": 0.5\n}\n',
        '{\n  "epoch": 100,\n  "loss": {\n    "name": "focal",\n    "alpha": 0.25\n  }\n}\n',
        '{\n  "train": {\n    "step": 20000, "grad_norm": 1.0,\n    "loss": "mse"\n  }\n}\n',
        '{"train": {"step": 20000, "grad_norm": 1.0, "loss": "mse"}}\n',
        "loss weights: {'ce_loss': 1.0, 'kl_loss': 0.5, 'step': 0}\n",
        '{\n  "losses": [\n    {"step": 3, "name": "mse", "loss_alpha": 0.3}\n  ]\n}\n',
        '{\n  "steps": 20000,\n  "lr": 0.1,\n  "loss": ["mse", "l1"]\n}\n',
        '{\n  "steps": 20000,\n  "lr": 0.1,\n  "loss": null\n}\n',
        "{'loss': {'weight': 1.0, 'name': 'mse'},\n 'lr': 0.1}\n",
        "[{'role': 'user', 'content': 'the loss is 0.5'}]\n",
    ],
)
def test_settings_code_and_texts_are_no_rows(parse: Parse, text: str) -> None:
    assert samples(parse(text)) == []


def test_an_error_in_a_document_is_an_event(parse: Parse) -> None:
    text = (
        '{\n  "error": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"\n}\n'
    )
    found = parse(text)
    assert [each.kind for each in found if isinstance(each, Event)] == [
        each.kind for each in parse(text.split("\n")[1] + "\n") if isinstance(each, Event)
    ]


def test_text_after_a_document_is_read_as_text(parse: Parse) -> None:
    text = '{\n  "step": 4,\n  "loss": 2.5\n}\nstep 5 loss 2.25\n{\nsome text\nstep 6 loss 2.125\n'
    assert [each.step for each in samples(parse(text))] == [4, 5, 6]


LINES = "".join(f'{{"step": {at}, "loss": {2.5 - at / 8}}}\n' for at in range(4, 8))
DICTS = "".join(
    f"{{'loss': {2.5 - at / 8}, 'grad_norm': 1.0, 'epoch': {at / 8}}}\n" for at in range(4, 8)
)


@pytest.mark.parametrize("rest", [LINES, DICTS], ids=["JSON", "dicts"])
@pytest.mark.parametrize(
    "cut",
    [
        '{"step": 4, ',
        '{"step": 4,\n',
        '{"a": {"step": 4,\n',
        "{'loss': 2.4,\n",
        "{'loss': 2.4,",
        '{\n"model": "x",\n',
        '{\n"model":\n"x"\n',
        "{\n",
        '{"rows": [{"step": 1, "kl": 2.5},\n',
        '{"rows": [\n',
        '[{"step": 1, "kl": 2.5}, {"step": 2, "kl": 2.5},\n',
    ],
)
def test_a_document_that_is_cut_hides_no_later_row(parse: Parse, cut: str, rest: str) -> None:
    losses = [each.values.get("loss") for each in samples(parse(cut + rest))]
    assert losses[-3:] == [2.5 - at / 8 for at in range(5, 8)]


@pytest.mark.parametrize("more", [0, 4, 17])
def test_a_line_of_a_mebibyte_that_is_cut_hides_no_later_row(parse: Parse, more: int) -> None:
    rows = json.dumps([{"step": at, "kl": 0.5} for at in range(60_000)])[: (1 << 20) + more]
    assert [each.step for each in samples(parse(f"{rows}\n{LINES}"))[-3:]] == [5, 6, 7]


def rows_of(*losses: float) -> list[dict[str, Any]]:
    return [{"step": 10 * at, "loss": loss} for at, loss in enumerate(losses, start=1)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("word", ["val", "test_history"])
@pytest.mark.parametrize(
    ("train", "evaluation"),
    [
        (rows_of(2.5, 2.25), rows_of(3.5, 3.25)),
        ({"step": [10, 20], "loss": [2.5, 2.25]}, {"step": [10, 20], "loss": [3.5, 3.25]}),
        ({"loss": [2.5, 2.25]}, {"loss": [3.5, 3.25]}),
        (
            {"epoch_1": {"loss": 2.5}, "epoch_2": {"loss": 2.25}},
            {"epoch_1": {"loss": 3.5}, "epoch_2": {"loss": 3.25}},
        ),
    ],
    ids=["arrays", "columns", "columns alone", "keyed"],
)
def test_what_stands_below_an_evaluation_is_its_own(
    parse: Parse, train: Any, evaluation: Any, word: str, indent: int | None
) -> None:
    def losses(document: dict[str, Any]) -> list[dict[str, float]]:
        found = samples(parse(json.dumps(document, indent=indent) + "\n"))
        return [{n: value for n, value in each.values.items() if "loss" in n} for each in found]

    trained, evaluated = [{"loss": 2.5}, {"loss": 2.25}], [{"eval_loss": 3.5}, {"eval_loss": 3.25}]
    assert losses({"train": train, word: evaluation}) == trained + evaluated
    assert losses({word: evaluation, "train": train}) == evaluated + trained


def test_the_text_before_a_document_may_name_an_evaluation(parse: Parse) -> None:
    row = json.dumps({"step": 4, "loss": 2.5}, indent=2)
    (sample,) = samples(parse(f"validation: {row}\n"))
    assert (sample.step, sample.values) == (4, {"eval_loss": 2.5})
    (sample,) = samples(parse(f"INFO test.py:33: {row}\n"))
    assert (sample.step, sample.values) == (4, {"loss": 2.5})


@pytest.mark.parametrize("document", [ROWS, NESTED, KEYED, {"val": KEYED, "train": KEYED}])
def test_a_pause_inside_a_document_changes_nothing(parse: Parse, document: Any) -> None:
    raw = (json.dumps(document, indent=2) + "\n").encode()
    whole = samples(parse(raw, path="a.json"))
    lines = raw.splitlines(keepends=True)
    for cut in range(1, len(lines)):
        parser, first = Parser(), b"".join(lines[:cut])
        found = parser.feed(Chunk("a.json", (1, 1, 0), 0, 1, first), Origin("r"), 0.0)
        found += parser.tick(2 * BLOCK_SECONDS)
        rest = Chunk("a.json", (1, 1, 0), len(first), cut + 1, raw[len(first) :])
        found += parser.feed(rest, Origin("r"), 3 * BLOCK_SECONDS)
        assert samples([*found, *parser.finish("a.json")]) == whole


def test_a_document_that_the_end_of_the_file_cuts_gives_its_last_row(parse: Parse) -> None:
    text = '{"rows": {\n"epoch_3": {\n"train": {"loss": 2.5},\n"val": {"loss": 3.5,\n'
    (sample,) = samples(parse(text))
    assert (sample.epoch, sample.values) == (3, {"loss": 2.5, "eval_loss": 3.5})


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "rows",
    [
        [{"text": "a", "loss": 2.5}, {"text": "b", "loss": 7.5}],
        [
            {"text": "a", "parts": {"loss": [2.5, 7.5]}},
            {"text": "b", "parts": {"loss": [0.5, 4.5]}},
        ],
    ],
)
def test_items_of_an_array_without_a_counter_are_no_rows(
    parse: Parse, rows: Any, indent: int | None
) -> None:
    assert samples(parse(json.dumps(rows, indent=indent) + "\n")) == []


def test_a_document_without_rows_ends(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BARREN", 8)
    row = '{"step": 4, "kl": 0.5}\n'  # one of JSON lines, but without a loss none of a document
    assert samples(parse('{"rows": [\n' + "1,\n" * 6 + row)) == []
    assert [each.step for each in samples(parse('{"rows": [\n' + "1,\n" * 7 + row))] == [4]
    keyed = json.dumps(KEYED, indent=2) + "\n"
    assert [each.step for each in samples(parse(keyed))] == [10, 20, 30, 40]


def test_a_line_of_more_than_a_mebibyte_is_no_part_of_a_document(
    parse: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_LINE", 64)
    text = '{\n"step": 4,\n"loss": 2.5,\n' + f'"kl": 0.5,{" " * 64}"lr": 0.5\n}}\n'
    (sample,) = samples(parse(text))
    assert (sample.step, sample.values["loss"], "kl" in sample.values) == (4, 2.5, False)


@pytest.mark.parametrize("indent", [None, 2])
def test_lists_beside_a_counter_are_no_rows(parse: Parse, indent: int | None) -> None:
    row = {"loss": [2.5, 2.25], "step": 3}
    found = samples(parse(json.dumps(row, indent=indent) + "\n"))
    assert [each for each in found if "loss" in each.values or each.step is None] == []
    kept = {"accuracy": 0.5, **row}
    (sample,) = samples(parse(json.dumps(kept, indent=indent) + "\n"))
    assert (sample.step, sample.values) == (3, {"accuracy": 0.5})


def test_a_row_may_have_values_of_numbered_layers(parse: Parse) -> None:
    row = {"step": 5, "accuracy": 0.5, "grad_norm": 1.0, "layer_1": {"grad_norm": 0.25}}
    (sample,) = samples(parse(json.dumps(row) + "\n"))
    assert (sample.step, sample.values["accuracy"], sample.values["grad_norm"]) == (5, 0.5, 1.0)
