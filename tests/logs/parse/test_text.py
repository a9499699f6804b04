"""Text logs: bars, phases, blocks, peeks and generations, as a follower meets them."""

from __future__ import annotations

import math

import pytest

from ldlm_monitor.base.chunk import Chunk, ClockMark, Origin
from ldlm_monitor.base.errors import FormatError
from ldlm_monitor.base.records import Event, Record, Sample
from ldlm_monitor.logs.parse import Parser, bar_clocks, clock_marks
from ldlm_monitor.logs.parse.vocabulary import MAX_KEY

ORIGIN = Origin(run="r", node="0")
BAR = "Training:  50%| | {n}/100 [00:28<01:19, 17.55it/s, Epoch=0/2, Loss=1.5, Text=1.2"


class Follower:
    """Appends text to one file and hands it to a parser."""

    def __init__(self) -> None:
        self.parser = Parser()
        self.offset = 0
        self.line = 1

    def write(self, text: str, now: float = 0.0, generation: int = 0) -> list[Record]:
        data = text.encode()
        chunk = Chunk("a.log", (1, 1, generation), self.offset, self.line, data)
        self.offset += len(data)
        self.line += data.count(b"\n")
        return self.parser.feed(chunk, ORIGIN, now)

    def peek(self, text: str, now: float = 0.0) -> list[Record]:
        chunk = Chunk("a.log", (1, 1, 0), self.offset, self.line, text.encode(), peek=True)
        return self.parser.feed(chunk, ORIGIN, now)


def kinds(records: list[Record]) -> list[str]:
    return [record.kind for record in records if isinstance(record, Event)]


def test_the_phases_of_training_are_told_by_the_bars(parse) -> None:
    evaluation = "Eval:  {n}0%|█ | {n}/10 [00:00<00:00, 36.34it/s]\x1b[A"
    records = parse(
        "\r".join(
            [
                "Skipping batches:  12%|█▏ | 120/1000 [00:01<00:08, 110.00it/s]",
                "Skipping batches:  24%|█▏ | 240/1000 [00:01<00:08, 110.00it/s]",
                BAR.format(n=50),
                evaluation.format(n=1),
                evaluation.format(n=9),
                BAR.format(n=51),
                BAR.format(n=100),
                BAR.format(n=100),
                "",
            ]
        )
    )
    assert kinds(records) == ["run_resumed", "eval_started", "eval_finished"]
    samples = [r for r in records if isinstance(r, Sample)]
    assert [s.step for s in samples] == [None, None, 50, None, None, 51, 100, 100]
    assert samples[4].values == {"eval_progress": 0.9}


def test_an_event_glued_to_a_bar_stands_where_its_own_text_begins(parse) -> None:
    bar = "\r" + BAR.format(n=3)
    glued = "W1121 07:07:43.000000 796 torch/x.py:1028] Sending process 803 closing signal SIGTERM"
    sample, event = parse(bar + glued + "\n")
    assert isinstance(sample, Sample)
    assert sample.position.offset == 1
    assert (event.kind, event.position.offset) == ("elastic_sigterm_peer", len(bar))
    assert event.message == "Sending process 803 closing signal SIGTERM"


def test_a_ranks_traceback_glued_to_a_bar_is_that_ranks_and_told_before_what_follows(parse) -> None:
    text = (
        "\r" + BAR.format(n=5) + "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "train.py", line 3, in main\n'
        "[rank1]: IndexError: Target 30521 is out of bounds.\n"
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "train.py", line 4, in main\n'
        '[rank0]:   File "train.py", line 9, in all_reduce\n'
        "[rank0]:     work.wait()\n"
        "[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:10976\n"
    )
    events = [record for record in parse(text) if isinstance(record, Event)]
    assert [(event.rank, event.kind) for event in events] == [
        (1, "python_exception"),
        (0, "gloo_peer_closed"),
    ]
    assert text.encode()[events[0].position.offset :].startswith(b"[rank1]: Traceback")


def test_two_messages_torn_into_one_line_are_two_events(parse) -> None:
    message = "WARNING: Invalid text_loss detected: nan"
    first, second = parse(f"{message}{message}\n\n")
    assert first.fields == second.fields
    assert (first.position.offset, second.position.offset) == (0, len(message))


def test_what_an_error_says_is_no_progress(parse) -> None:
    line = "2026-05-01 10:00:00 - trainer - {} - Saved checkpoint to out/step_100\n"
    assert kinds(parse(line.format("INFO"))) == ["checkpoint_saved"]
    assert "checkpoint_saved" not in kinds(parse(line.format("ERROR")))


def test_a_number_at_the_end_of_an_unfinished_file_is_unknown(parse) -> None:
    (whole,) = parse("Step 20: Loss = 0.5000, LR = 0.0001\n")
    (cut,) = parse("Step 20: Loss = 0.5000, LR = 0.0001")
    assert whole.values == {"loss": 0.5, "learning_rate": 0.0001}
    assert cut.values == {"loss": 0.5}


def test_a_peek_gives_a_bar_once_and_never_an_event() -> None:
    file = Follower()
    (shown,) = file.peek(BAR.format(n=7))
    assert isinstance(shown, Sample)
    assert shown.values["loss"] == 1.5
    assert "loss_text" not in shown.values
    assert file.peek(BAR.format(n=7)) == []
    assert file.write(BAR.format(n=7) + "\r") == []
    assert file.peek("WARNING: Invalid text_loss detected: nan") == []
    assert kinds(file.write("WARNING: Invalid text_loss detected: nan\n")) == ["nonfinite_metric"]


def test_a_bar_that_was_peeked_while_half_written_comes_again_whole() -> None:
    file = Follower()
    (half,) = file.peek(BAR.format(n=7)[:40])
    (whole,) = file.write(BAR.format(n=7) + "\r")
    assert (half.step, "loss" in half.values) == (7, False)
    assert (whole.step, whole.values["loss"]) == (7, 1.5)


def test_a_block_is_complete_after_two_seconds_of_silence() -> None:
    file = Follower()
    assert file.parser.open_until() == math.inf
    assert file.write("Traceback (most recent call last):\n", now=10.0) == []
    assert file.write('  File "a.py", line 3, in f\nValueError: bad\n', now=11.0) == []
    assert file.parser.open_until() == 13.0
    assert file.parser.tick(12.9) == []
    (event,) = file.parser.tick(13.0)
    assert (event.message, event.fields["line"], event.node) == ("ValueError: bad", 3, "0")
    assert event.position.offset == 0
    assert file.parser.open_until() == math.inf


def test_a_new_generation_of_a_file_starts_clean_and_loses_no_open_block() -> None:
    file = Follower()
    file.write("ERROR: Invalid loss detected at step 4\n  Total loss: nan\n")
    file.offset, file.line = 0, 1
    records = file.write("  Text loss: 1.0\n", generation=1)
    assert kinds(records) == ["nonfinite_metric", "skipped_step"]
    (event, *_) = [r for r in records if isinstance(r, Event)]
    assert "loss_text" not in event.fields


def test_an_error_block_gives_event_skipped_step_and_sample_at_the_error_line(parse) -> None:
    ruler = "=" * 60
    block = [
        ruler,
        "ERROR: Invalid gradient norm at step 7",
        ruler,
        "  Gradient norm: inf",
        "  Loss: 6.262142",
        "  Skipping optimizer step and resetting gradients...",
        ruler,
    ]
    event, skipped, sample = parse("\n".join(["", *block, "", ""]))
    assert (event.kind, skipped.kind) == ("nonfinite_metric", "skipped_step")
    assert isinstance(sample, Sample)
    assert (sample.step, sample.values["loss"]) == (7, 6.262142)
    assert math.isinf(sample.values["grad_norm"])
    assert {r.position.offset for r in (event, skipped, sample)} == {1 + len(ruler) + 1}


def test_two_ranks_that_write_the_same_block_at_once_give_two_events(parse) -> None:
    block = [
        "ERROR: Invalid loss detected at step 4",
        "  Total loss: nan",
        "  Text loss: nan",
        "  Skipping this batch...",
    ]
    records = parse("".join(f"{line}\n{line}\n" for line in block))
    events = [r for r in records if isinstance(r, Event) and r.kind == "nonfinite_metric"]
    assert [e.fields["value"] for e in events] == ["nan", "nan"]
    assert all(math.isnan(e.fields["loss_text"]) for e in events)


def test_tracebacks_of_prefixed_ranks_come_apart_line_by_line(parse) -> None:
    def trace(rank: int) -> list[str]:
        lines = [
            "Traceback (most recent call last):",
            f'  File "r{rank}.py", line {rank}, in f',
            f"    fail({rank})",
            f"ValueError: rank {rank}",
        ]
        return [f"[default{rank}]:[rank{rank}]: {line}" for line in lines]

    mixed = [line for pair in zip(trace(1), trace(2), strict=True) for line in pair]
    events = parse("\n".join([*mixed, ""]))
    assert [(e.rank, e.message, e.fields["file"]) for e in events] == [
        (1, "ValueError: rank 1", "r1.py"),
        (2, "ValueError: rank 2", "r2.py"),
    ]


def test_another_ranks_output_inside_a_traceback_stays_outside_of_it(parse) -> None:
    text = "\n".join(
        [
            "Traceback (most recent call last):",
            '  File "a.py", line 3, in f',
            "WARNING: Invalid text_loss detected: nan",
            BAR.format(n=7),
            "    g()",
            "IndexError: Target 30521 is out of bounds.",
            "",
        ]
    )
    records = parse(text)
    assert kinds(records) == ["python_exception", "nonfinite_metric"]
    assert records[0].message == "IndexError: Target 30521 is out of bounds."
    assert "WARNING" not in records[0].fields["traceback"]


def test_a_very_long_traceback_keeps_its_head_and_its_tail(parse) -> None:
    frames = [f'  File "f{n}.py", line {n}, in f' for n in range(5000)]
    (event,) = parse("\n".join(["Traceback (most recent call last):", *frames, "E.rr: x", ""]))
    text = event.fields["traceback"]
    assert len(text) < 17_000
    assert text.startswith("Traceback")
    assert text.endswith("E.rr: x")
    assert "lines left out" in text


def test_a_prefix_gives_time_only_where_it_names_its_zone(parse) -> None:
    line = "WARNING: Invalid text_loss detected: nan\n"
    stamps = [
        "2026-06-11T11:44:19Z ",
        "2026-06-11T13:44:19.000+02:00 stderr F ",
        "2026-06-11 11:44:19 ",
        "E1121 06:29:03.311000 14209 a/b.py:3] ",
    ]
    times = [parse(stamp + line)[0].time for stamp in stamps]
    assert times == [1781178259.0, 1781178259.0, None, None]


def test_json_lines_inside_a_text_log_are_samples(parse) -> None:
    (sample,) = parse('starting\n{"step": 3, "train_loss": NaN, "lr": 0.1}\n{"half": 1\n')
    assert (sample.step, sample.position.line) == (3, 2)
    assert sample.values.keys() == {"loss", "learning_rate"}


def test_clock_marks_of_prefixed_and_plain_bars() -> None:
    data = ("x\r[rank0]:" + BAR.format(n=5) + "\r" + BAR.format(n=6) + "\n").encode()
    first, second = clock_marks(data, 100)
    assert first == ClockMark(102, 5, 28.0)
    assert (second.step, data[second.offset - 100 :][:8]) == (6, b"Training")


def test_the_clock_of_any_bar_stands_where_its_record_begins() -> None:
    bars = "".join(f" 50%|#| {step}/9 [00:0{step}<00:01]{end}" for step, end in enumerate("\r \n"))
    found = [(total, mark) for total, mark in bar_clocks(f"x\n{bars}".encode(), 100)]
    second = 102 + len(bars) // 3
    marks = [ClockMark(at, step, float(step)) for step, at in enumerate((102, second, second))]
    assert found == [(9, mark) for mark in marks]


def test_the_records_of_bars_are_looked_for_no_farther_back_than_the_bar_before() -> None:
    class Searched(bytes):
        bytes = 0

        def rfind(self, text: bytes, start: int, stop: int) -> int:
            Searched.bytes += stop - start
            return super().rfind(text, start, stop)

    data = Searched("".join(f" 50%|#| {n}/999 [00:01<00:01]\r" for n in range(999)).encode())
    assert len([*bar_clocks(data)]) == 999
    assert Searched.bytes < 2 * len(data)


def test_bars_of_an_evaluation_have_a_clock_of_their_own() -> None:
    data = (BAR.format(n=5) + "\n\rEval:  25%|██ | 5/20 [00:30<01:30,  6.00s/it]\x1b[A\n").encode()
    bar, evaluation = clock_marks(data)
    assert not bar.inner
    assert (evaluation.inner, evaluation.elapsed) == (True, 30.0)


def test_a_users_format_file_adds_to_the_packaged_ones(tmp_path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(
        "format: mine\nlines:\n- name: row\n  trigger: 'my step '\n"
        "  pattern: 'my step (?P<step>\\d+) loss (?P<l>{{number}})'\n  values: {loss: l}\n"
        "  examples: [{line: 'my step 1 loss 2', step: 1, values: {loss: 2}}]\n"
    )
    parser = Parser([path])
    data = b"my step 4 loss 0.5\nStep 20: Loss = 0.5, LR = 0.1\n"
    records = parser.feed(Chunk("a", (1, 1, 0), 0, 1, data), ORIGIN, 0.0)
    assert [r.step for r in records if isinstance(r, Sample)] == [4, 20]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("format: [", "is not YAML"),
        ("format: x\nevent: []", "event"),
        (
            (
                "format: x\nlines: [{name: a, trigger: b, pattern: '(?=x)', examples:"
                " [{line: b, values: {}}]}]"
            ),
            "look-around",
        ),
        (
            (
                "format: x\nlines: [{name: a, trigger: '(', pattern: b, examples:"
                " [{line: b, values: {}}]}]"
            ),
            "trigger",
        ),
        ("format: x\nlines: [{name: a, trigger: b, pattern: b}]", "lines.0.examples"),
        ("format: x\nsource: 2026-02-30", "not YAML"),
    ],
)
def test_a_bad_format_file_is_refused_with_file_key_and_remedy(tmp_path, text, says) -> None:
    path = tmp_path / "bad.yml"
    path.write_text(text)
    with pytest.raises(FormatError) as refused:
        Parser([path])
    assert str(refused.value).startswith(str(path))
    assert says in str(refused.value)
    assert refused.value.remedy


def test_a_key_of_a_line_of_any_form_is_bounded(parse) -> None:
    (sample,) = parse("step 5 loss: 2.0 " + "a" * 3000 + "=5\n")
    assert sample.values == {"loss": 2.0, "a" * MAX_KEY: 5.0}


def test_a_traceback_of_which_only_the_first_line_is_there_is_no_failure(parse) -> None:
    (event,) = parse("so Python says: Traceback (most recent call last):\nand goes on\n")
    assert (event.kind, event.severity, event.fields["role"]) == (
        "python_exception",
        "info",
        "context",
    )


def test_the_tracebacks_inside_a_failure_table_are_part_of_it(parse) -> None:
    text = "\n".join(
        [
            "train.py FAILED",
            "------------",
            "Root Cause (first observed failure):",
            "[0]:",
            "  rank      : 1 (local_rank: 1)",
            "  exitcode  : 1 (pid: 12) ",
            "  traceback : Traceback (most recent call last):",
            '    File "/job/train.py", line 11, in main',
            "  RuntimeError: [/gloo/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:9",
            "  ",
            "============",
            "",
        ]
    )
    (table,) = parse(text)
    (row,) = table.fields["failures"]
    assert table.kind == "elastic_failure_table"
    assert (row["kind"], row["role"]) == ("gloo_peer_closed", "victim")
    assert row["message"].startswith("RuntimeError: [/gloo")


def test_an_event_at_the_end_of_an_unfinished_file_has_no_cut_number(parse) -> None:
    (event,) = parse("* FLOPs per batch: 1.33e+08\n")
    assert event.fields["flops_per_batch"] == 133000000.0
    assert parse("* FLOPs per batch: 1.33") == []


def test_a_bar_that_the_terminal_cut_within_its_loss_gives_no_loss(parse) -> None:
    bar = (
        "\rTraining:   5%| | {0}/900 [00:{0}<00:37, 15.92it/s, Epoch=0/1, Progress=5.0%, Loss=2.{1}"
    )
    found = parse("".join(bar.format(step, step % 7) for step in range(10, 40)))
    assert [each.step for each in found] == [*range(10, 40)]
    assert not any("loss" in each.values for each in found)


def test_a_comma_may_stand_within_a_number_that_was_cut(parse) -> None:
    whole = (
        "step: 10  loss: 6.4321  grad_norm: 1.5  memory: 52.78GiB(66.65%)  tps: 11,251"
        "  tflops: 203.71"
    )
    for length in (3, 4, 5):
        (sample,) = parse(whole[: whole.index("11,251") + length])
        assert "tokens_per_second_per_device" not in sample.values
        assert sample.values["loss"] == 6.4321


@pytest.mark.parametrize(
    "cut",
    [
        "Epoch 1 | iter 128 step 32 | loss train: 9.812, va",
        "epoch: 0|step: 1|ppo_ep: 1|act_loss: 0.29|cri",
        "Epoch 0: :   0%|          | 10/100000 [00:25<70:12:34, v_num=q, reduced_train_loss=10.90",
    ],
)
def test_a_line_that_was_cut_is_not_taken_for_one_of_another_form(parse, cut: str) -> None:
    """Whole, they count micro-batches, name the losses of two models, and print a global step."""
    assert parse(cut) == []


def test_a_key_whose_quotes_were_cut_is_none(parse) -> None:
    (sample,) = parse("al_loss': 0.5, 'loss': 0.25, 'epoch': 1.0\n")
    assert sample.values == {"loss": 0.25}


def test_what_a_line_of_run_quotes_is_not_the_trainings(parse) -> None:
    """The command, and the reasons of a decision."""
    ours = "2026-11-24T16:22:32.140Z ldlm-monitor run: "
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. step 3 loss 5"
    started, failed, alone = (
        parse(f"{text}\n")
        for text in (
            f'{ours}attempt 1 starts: ["bash", "-c", "{words}"]',
            f"{ours}the command ended with exit code 127: {words}",
            words,
        )
    )
    assert kinds(started) == ["run_started"]
    assert len(started) == 1
    assert kinds(failed) == ["elastic_worker_failed"]
    assert "cuda_oom" in kinds(alone)
