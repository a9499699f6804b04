"""Which run, node and rank a file belongs to."""

import json
import os
from pathlib import Path

import pytest

from ldlm_monitor.base.chunk import Origin
from ldlm_monitor.logs.parse.run_names import RunNames, launch_time, origin_of

LAUNCH = "train_20260129_101500"
PODS = "/var/log/pods"
UID = "0b2d9a70-1c7e-4a43-9f62-4a1f3f1c3d11"


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        ("train_logs/train_20260129_101500_node0.log", Origin(LAUNCH, node="0")),
        ("saved/qwen_l2t/training_log.jsonl", Origin("qwen_l2t")),
        ("/data/exp7/saved/training_log.jsonl", Origin("exp7")),
        ("saved/qwen_l2t/health_rank3.jsonl", Origin("qwen_l2t", rank=3)),
        ("exp7/console.out", Origin("exp7")),
        ("nccl_debug_1.log", Origin("nccl_debug", node="1")),
        ("logs/job7_9dotthhq/attempt_0/3/stderr.log", Origin("job7", rank=3)),
        (f"logs/{'r' * 200}_9dotthhq/attempt_0/3/stderr.log", Origin("r" * 128, rank=3)),
        ("slurm-48213.out", Origin("slurm-48213")),
        ("slurm-48213_7.out", Origin("slurm-48213_7")),
        (f"{'r' * 300}.log", Origin("r" * 128)),
        ("finetune.log", Origin("finetune")),
        ("runs/Nov21_host/events.out.tfevents.1.host.1.0", Origin("Nov21_host")),
        ("fit/exp7/validation/events.out.tfevents.1.host.1.0.v2", Origin("exp7")),
        ("events.out.tfevents.1", Origin("events.out.tfevents")),
        (f"mlruns/0/{'ab' * 16}/metrics/train/loss", Origin("ab" * 16)),
        (f"{PODS}/training_ldlm-1-x7k2p_{UID}/trainer/0.log", Origin("ldlm", node="1")),
        (f"{PODS}/training_ldlm-worker-12_{UID}/pytorch/3.log", Origin("ldlm", node="12")),
        (f"{PODS}/training_ldlm-master-0_{UID}/pytorch/0.log", Origin("ldlm", node="0")),
        (f"{PODS}/training_notebook_{UID}/main/0.log", Origin("notebook")),
        ("-", Origin("stdin")),
    ],
)
def test_a_path_has_run_node_and_rank(path: str, origin: Origin) -> None:
    assert origin_of(path) == origin


def test_the_name_that_the_user_gives_wins_everywhere() -> None:
    names = RunNames("mine")
    assert names.origin("saved/other/training_log.jsonl").run == "mine"
    assert names.origin("train_logs/train_20260129_101500_node1.log") == Origin("mine", node="1")


def test_a_name_in_the_file_replaces_that_of_the_path_unless_it_is_empty_or_the_user_gave_one() -> (
    None
):
    given, named, unnamed = RunNames("mine"), RunNames(), RunNames()
    for names, name in ((given, "theirs"), (named, "theirs"), (unnamed, "")):
        names.rename(names.origin("exp7/console.out").run, name)
    runs = [names.origin("exp7/console.out").run for names in (given, named, unnamed)]
    assert runs == ["mine", "theirs", "exp7"]


def test_nodes_of_one_launch_that_stamped_their_logs_seconds_apart_are_one_run() -> None:
    names = RunNames()
    first = names.origin("logs/train_20260129_101500_node0.log")
    second = names.origin("logs/train_20260129_101503_node1.log")
    assert (first.run, second.run) == (LAUNCH, LAUNCH)
    assert (first.node, second.node) == ("0", "1")


def test_the_same_node_a_minute_later_is_another_launch() -> None:
    names = RunNames()
    names.origin("logs/train_20260129_101500_node0.log")
    assert names.origin("logs/train_20260129_101600_node0.log").run == "train_20260129_101600"


def test_a_companion_shares_the_run_of_its_log_and_keeps_its_own_rank() -> None:
    names = RunNames()
    names.tie("saved/qwen/health_rank3.jsonl", LAUNCH)
    assert names.origin("saved/qwen/health_rank3.jsonl") == Origin(LAUNCH, rank=3)


def test_the_stamp_of_a_launch_is_local_time() -> None:
    first, later = (
        launch_time(f"train_20260129_{clock}_node0.log") for clock in ("101500", "101503")
    )
    assert first is not None
    assert later is not None
    assert later - first == 3
    assert launch_time("train.log") is None
    assert launch_time("train_20269999_101500.log") is None


def test_a_name_that_is_no_utf_8_gives_a_label_that_is() -> None:
    one, other = (
        origin_of(os.fsdecode(b"logs/a" + end + b".log")).run for end in (b"\xff", b"\xfe")
    )
    assert one != other
    assert (one + other).encode()


NAMES = (Path(__file__).parent / "log_names.txt").read_text("utf-8").splitlines()


def test_a_full_file_that_was_renamed_is_of_its_logs_run() -> None:
    names = ("logs/train_20260129_101500.log.2", "logs/train_20260129_101500.log")
    assert origin_of(names[0]) == origin_of(names[1])


@pytest.mark.parametrize("line", [line for line in NAMES if "|" in line])
def test_a_name_of_a_real_log_gives_run_node_and_rank(line: str) -> None:
    path, run, node, rank = (None if part == "-" else part for part in line.split(" | "))
    assert origin_of(str(path)) == Origin(str(run), node, None if rank is None else int(rank))


@pytest.mark.parametrize(
    "name",
    [
        "frank2",
        "rerank_4",
        "lora_rank8",
        "low-rank-16",
        "qlora_rank_64",
        "rank16_alpha32",
        "anode2",
        "1node8gpu",
        "episode3",
        "prank0x",
        "train_rank2b",
        "node4x",
    ],
)
def test_a_word_that_ends_in_rank_or_node_is_no_rank_and_no_node(name: str) -> None:
    assert origin_of(f"logs/{name}.log") == Origin(name)


@pytest.mark.parametrize(
    "name",
    [
        "x_rank2",
        "x.rank-2",
        "x-rank_2",
        "x_local_rank2",
        "x_rank2_of_8",
        "rank2_x",
        "x_RANK2",
        "x_rank2.stderr",
        "x_rank2_20260129_101500",
        "x_rank2.node1",
    ],
)
def test_a_rank_stands_between_separators(name: str) -> None:
    assert origin_of(f"logs/{name}.log").rank == 2


@pytest.mark.parametrize("turned", ["\u202e", "\u2066", "\u200b", "\x9b", "\x00"])
def test_a_name_shows_what_is_invisible_in_it(turned: str) -> None:
    """However the run got its name: each output and address then has the same."""
    shown = f"ab{json.dumps(turned)[1:-1]}cd"
    assert origin_of(f"logs/ab{turned}cd/train.log").run == shown
    assert origin_of("train.log", f"ab{turned}cd").run == shown
    names = RunNames()
    names.rename(names.origin("exp/train.log").run, f"ab{turned}cd")
    assert names.origin("exp/train.log").run == shown
    names.tie("other/health_rank0.jsonl", f"ab{turned}cd")
    assert names.origin("other/health_rank0.jsonl").run == shown
