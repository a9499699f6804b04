"""How much of a file is recognised: lines with records, formats, and what looks like metrics."""

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.coverage import KEPT_SAMPLES, Coverage, CoverageReader

TEXT = (
    "starting\n"
    "{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
    "{'loss': 2.4, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.2}\n"
    "{'loss': 2.3, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.3}\n"
    "{'loss': 2.2, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.4}\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.\n"
    "\n"
    "zz@@ 3.25 / 17.5 :: loss & norm"
)


def covered(path: str, data: bytes, cuts: tuple[int, ...] = ()) -> Coverage:
    reader = CoverageReader(Parser(), path)
    ends = [*cuts, len(data)]
    for start, end in zip([0, *cuts], ends, strict=True):
        line = data[:start].count(b"\n") + 1
        chunk = Chunk(path, (1, 2, 0), start, line, data[start:end], final=end == len(data))
        reader.feed(chunk, Origin("r"), 0.0)
    return reader.finish()


def test_lines_are_counted_with_an_unfinished_last_one() -> None:
    assert covered("a.log", b"one\ntwo\n").lines == 2
    assert covered("a.log", b"one\ntwo").lines == 2
    assert covered("a.log", b"one\rtwo\r").lines == 0
    assert covered("a.log", b"").lines == 0


def test_records_are_counted_by_type_kind_and_format() -> None:
    found = covered("a.log", TEXT.encode())
    assert (found.path, found.lines) == ("a.log", 8)
    assert found.types == {"sample": 4, "event": 1}
    assert found.kinds == {"cuda_oom": 1}
    (form,) = found.formats
    assert found.formats[form] == 4
    assert form not in ("inferred", "event fields")
    assert found.with_records == 5
    assert found.share == 5 / 8
    assert found.errors == 0


def test_the_first_samples_of_each_format_are_kept() -> None:
    found = covered("a.log", TEXT.encode())
    ((_, kept),) = found.first.items()
    assert [sample.values["loss"] for sample in kept] == [2.5, 2.4, 2.3]
    assert KEPT_SAMPLES == 3


def test_a_file_in_pieces_is_covered_as_the_whole() -> None:
    data = TEXT.encode()
    cuts = tuple(index + 1 for index, byte in enumerate(data) if byte == 0x0A)
    one, many = covered("a.log", data), covered("a.log", data, cuts)
    assert (many.lines, many.with_records) == (one.lines, one.with_records)
    assert (many.types, many.kinds, many.formats) == (one.types, one.kinds, one.formats)
    assert many.unknown.lines == one.unknown.lines


def test_rows_have_their_steps_and_lines_that_are_none_are_errors() -> None:
    rows = ['{"step": 7, "loss": 2}', '{"step": 5, "loss": 2}', '{"step": 9, "loss"']
    text = "\n".join([*rows, '{"step": 8, "loss": 1}\n'])
    found = covered("a.jsonl", text.encode())
    assert (found.steps, found.types["sample"]) == ((5, 8), 3)
    assert (found.errors, found.lines, found.with_records) == (1, 4, 3)


def test_a_file_without_steps_and_lines_has_neither() -> None:
    found = covered("a.log", b"")
    assert (found.steps, found.share, found.first) == (None, None, {})


def test_lines_that_look_like_metrics_and_gave_none_are_told() -> None:
    text = b"hello\nfrobnication | lossiness 3.25 | normal 17.5 | zz\n"
    found = covered("a.log", text)
    assert found.with_records + found.unknown.lines <= 2
    assert covered("a.log", b"hello\nworld\n").unknown.lines == 0


def test_no_format_is_named_that_may_not_be_the_log_s() -> None:
    bar = "{:3.0f}%|##   | {}/9 [00:10<00:10,  1.00it/s{}]\n"
    plain = "".join(bar.format(at * 11, at, "") for at in range(1, 9))
    assert set(covered("a.log", plain.encode()).formats) == {"generic"}
    other = "".join("Training: " + bar.format(at, at, ", loss=2.5, kl=1") for at in range(1, 9))
    found = covered("a.log", other.encode())
    assert set(found.formats) == {"tqdm"}
    assert found.first["tqdm"][0].values["kl"] == 1
    theirs = "".join("Training: " + bar.format(at, at, ", Loss=2.5, Text=1") for at in range(1, 9))
    assert set(covered("a.log", theirs.encode()).formats) == {"mmldlm"}
