"""Files of the ranks and nodes of one launch are one run; those of several launches are not."""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ldlm_monitor.logs.history import launches
from ldlm_monitor.logs.history.launches import join_launches
from ldlm_monitor.logs.parse.run_names import RunNames

Text = Callable[[int], str]
HOURS = 3600.0
EPOCH = 1_769_681_700.0


def steps(number: int = 0, *, began: float | None = 0.0, total: int = 100, head: str = "") -> str:
    """Thirty steps whose losses differ with `number`; None: without times."""
    first = datetime(2026, 1, 29, 10, 15, tzinfo=UTC) + timedelta(seconds=began or 0.0)
    lines = [head]
    for step in range(30):
        at = "" if began is None else f"{first + timedelta(seconds=step):%Y-%m-%d %H:%M:%S} "
        lines.append(f"{at}step {step}/{total} loss {3 - step / 50 + number / 10:.4f}\n")
    return "".join(lines)


def joined(folder: Path, files: dict[str, str], **more: bool) -> tuple[dict[str, str], list[str]]:
    """The run of each file, and the notices."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    paths, names = [folder / name for name in files], RunNames()
    notices = [
        each.replace(f"{folder}/", "") for each in join_launches(paths, paths, names, **more)
    ]
    return {name: names.origin(str(folder / name)).run for name in files}, notices


def count(runs: dict[str, str]) -> int:
    return len({*runs.values()})


@pytest.mark.parametrize(
    "names",
    [
        [f"logs/rank_{rank}.log" for rank in range(4)],
        [f"train_rank{rank}.log" for rank in range(4)],
        [f"logs/train_node{node}.log" for node in range(2)],
        [f"rank_{rank}/train.log" for rank in range(4)],
        [f"node{node}/rank_{rank}.log" for node in range(2) for rank in range(2)],
        [f"attempt_0/{rank}/std{end}.log" for rank in range(2) for end in ("out", "err")],
        [f"attempt_{attempt}/0/stdout.log" for attempt in range(2)],
        [f"ranks/none_ab12_d_8/attempt_0/{rank}/stdout.log" for rank in range(2)],
        [f"out/1/rank.{rank}/stdout" for rank in range(4)],
        ["output/log.txt", *(f"output/log.txt.rank{rank}" for rank in range(1, 4))],
        [f"48213_{rank}_log.out" for rank in range(4)],
        [f"20260129_101500_gpu7_device{rank}_rank{rank}.log" for rank in range(4)],
        [f"nemo_log_globalrank-{rank}_localrank-{rank % 2}.txt" for rank in range(4)],
        [f"log/workerlog.{rank}" for rank in range(4)],
        [f"session_2026/logs/worker-{at}a0f-01000000-7{at}.out" for at in range(3)],
    ],
)
def test_names_that_differ_in_a_rank_or_node_alone_are_one_run(
    names: list[str], tmp_path: Path
) -> None:
    runs, notices = joined(tmp_path, {name: steps(at) for at, name in enumerate(names)})
    assert count(runs) == 1
    assert not any("not of the run" in each for each in notices)


def test_the_notice_says_what_they_have_in_common(tmp_path: Path) -> None:
    same = {f"logs/rank_{rank}.log": steps() for rank in range(4)}
    _, notices = joined(tmp_path, same)
    common = "names differ in the rank alone, equal steps and losses, begun within 1s"
    assert notices == [f"logs/rank_0.log and 3 more are one run: {common}"]
    empty = {"b/train_node0.log": steps(began=None), "b/train_node1.log": ""}
    _, notices = joined(tmp_path, empty)
    assert notices == [
        "b/train_node0.log and b/train_node1.log are one run: names differ in the node alone"
    ]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (steps(began=4 * HOURS), "one ended 3h 59m before the other began"),
        (steps(total=200), "one has 100 steps and the other 200"),
    ],
)
@pytest.mark.parametrize("name", ["train_node{}.log", "rank_{}.log"])
def test_a_file_of_another_launch_is_a_run_of_its_own(
    name: str, other: str, why: str, tmp_path: Path
) -> None:
    first, second = name.format(0), name.format(1)
    runs, (notice,) = joined(tmp_path, {first: steps(), second: other})
    assert count(runs) == 2
    assert notice == f"{second}: not of the run of {first}, because {why}; --run NAME joins them"


def test_files_that_begin_at_the_same_step_hours_apart_are_two_launches(tmp_path: Path) -> None:
    """A long run on one node, and another that began while it went on."""
    long = "2026-01-29 10:15:00 begins\n" + steps() + "2026-01-29 20:00:00 step 90/100 loss 1.0\n"
    runs, _ = joined(tmp_path, {"node0.log": long, "node1.log": steps(began=4 * HOURS)})
    assert count(runs) == 2
    late = steps(began=4 * HOURS, head="joins\n").replace("step 0/", "step 60/")
    runs, _ = joined(tmp_path, {"node0.log": long, "node1.log": late})
    assert count(runs) == 1


@pytest.mark.parametrize("numbers", [(4, 8, 16), (4, 8, 12, 16), (1, 2), (0, 4)])
def test_ranks_of_matrices_are_none_of_processes(numbers: tuple[int, ...], tmp_path: Path) -> None:
    runs, _ = joined(tmp_path, {f"lora/rank_{each}.log": steps(each) for each in numbers})
    assert count(runs) == len(numbers)


@pytest.mark.parametrize(
    "name",
    ["run_{}", "seed{}", "fold_{}", "exp{}", "worker{}", "gpu{}", "slurm-48213_{}", "lr0.{}", "{}"],
)
@pytest.mark.parametrize(
    "text",
    [
        steps,
        lambda at: steps(began=at * HOURS),
        lambda _: steps(began=None),
        lambda at: steps(at, began=None),
        lambda _: "",
        lambda at: steps(at, head="[rank0]: world_size: 1\n"),
    ],
    ids=["together", "one by one", "no times", "no times, other losses", "empty", "rank 0 each"],
)
def test_other_numbers_are_those_of_runs(name: str, text: Text, tmp_path: Path) -> None:
    files = {f"sweep/{name.format(at)}.log": text(at) for at in range(3)}
    assert count(joined(tmp_path, files)[0]) == 3


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (steps, 0),
        (lambda at: steps(began=at * HOURS), 0),
        (lambda at: steps().replace("2.4", f"{at}2.4"), 60 * launches.COMPARED),
    ],
    ids=["other losses", "other times", "the same first losses"],
)
def test_of_many_files_only_those_are_compared_that_may_be_of_one_launch(
    text: Text, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = list[object]()
    proof = launches._proof
    monkeypatch.setattr(launches, "_proof", lambda *args: compared.append(args) or proof(*args))
    runs, _ = joined(tmp_path, {f"sweep/exp_{at}.log": text(at) for at in range(60)})
    assert count(runs) == 60
    assert len(compared) <= most


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (lambda _: steps(), "they begin together and have the same losses at 30 steps"),
        (
            lambda at: steps(at, head=f"[rank{at}]: world_size: 4\n"),
            "each calls itself the rank of its name, of 4",
        ),
        (
            lambda at: steps(
                at,
                head=f"n1:7:9 [0] NCCL INFO comm 0x7f rank {at} nranks 4 commId 0x6f5e7d - Init\n",
            ),
            "their NCCL communicator is the same",
        ),
    ],
)
@pytest.mark.parametrize("name", ["job/{}.log", "worker{}.log", "slurm-48213_{}.out"])
def test_what_they_hold_shows_that_one_launch_wrote_them(
    name: str, text: Text, why: str, tmp_path: Path
) -> None:
    files = {name.format(at): text(at) for at in range(4)}
    runs, notices = joined(tmp_path, files)
    assert count(runs) == 1
    assert notices == [f"{name.format(0)} and 3 more are one run: {why}"]
    assert not re.search(r"\d$", next(iter(runs.values()))) or "48213" in next(iter(runs.values()))


def test_each_file_of_numbers_has_its_rank(tmp_path: Path) -> None:
    paths, names = [tmp_path / f"job/{rank}.log" for rank in range(3)], RunNames()
    (tmp_path / "job").mkdir()
    for path in paths:
        path.write_text(steps())
    assert [*join_launches(paths, paths, names)]
    found = [names.origin(str(path)) for path in paths]
    assert [(each.run, each.rank) for each in found] == [("job", 0), ("job", 1), ("job", 2)]


def runs_of(paths: Iterable[Path], names: RunNames) -> list[str]:
    return [names.origin(str(path)).run for path in paths]


def test_a_rank_that_is_found_later_joins_the_run_of_those_that_were_read(tmp_path: Path) -> None:
    paths, names = [tmp_path / f"rank_{rank}.log" for rank in range(3)], RunNames()
    for path in paths:
        path.write_text(steps())
    assert [*join_launches(paths[:2], paths[:2], names)]
    before = runs_of(paths[:2], names)
    assert [*join_launches(paths[2:], paths, names)] == []  # one notice of a launch
    assert runs_of(paths, names) == [*before, before[0]]


def test_the_user_joins_all_or_none(tmp_path: Path) -> None:
    files = {f"x_rank{rank}.log": steps() for rank in range(3)}
    runs, notices = joined(tmp_path, files, joins=False)
    assert count(runs) == 3
    assert notices == []
    paths, given = [tmp_path / name for name in files], RunNames("mine")
    assert [*join_launches(paths, paths, given)] == []
    assert {*runs_of(paths, given)} == {"mine"}


@pytest.mark.parametrize(
    "names",
    [
        ["RUN_ab12_d_8/attempt_0/0/stdout.log", "RUN_ab12_d_8/attempt_1/0/stdout.log"],
        ["100_ab12_d_8/attempt_0/0/stdout.log", "100_xy12_d_8/attempt_0/0/stdout.log"],
        ["48213_0_log.out", "48213_1_log.out"],
        ["train_rank0.log", "train_rank0.log.1", "train_rank1.log.1"],
    ],
)
def test_a_launch_with_a_name_goes_on_after_any_pause(names: list[str], tmp_path: Path) -> None:
    """Attempts, jobs that are queued again, and full files that were renamed."""
    files = {name: steps(began=-at * 4 * HOURS) for at, name in enumerate(names)}
    assert count(joined(tmp_path, files)[0]) == 1


def test_a_rank_that_prints_only_what_it_waited_for_in_vain_is_of_the_run(tmp_path: Path) -> None:
    timeout = "2026-01-29 10:45:40 ERROR Watchdog caught collective operation timeout\n"
    runs, _ = joined(tmp_path, {"rank_0.log": steps(), "rank_1.log": timeout})
    assert count(runs) == 1


def test_a_rank_that_prepared_data_before_the_first_step_is_of_the_run(tmp_path: Path) -> None:
    prepared = steps(head="2026-01-29 09:00:00 tokenizing\n" + "waits\n" * 400)
    runs, _ = joined(tmp_path, {"rank_0.log": prepared, "rank_1.log": steps()})
    assert count(runs) == 1


def test_the_files_of_a_second_launch_are_one_run_too(tmp_path: Path) -> None:
    files = {f"node{at}/train.log": steps(began=0.0 if at < 2 else 9 * HOURS) for at in range(4)}
    runs, _ = joined(tmp_path, files)
    assert runs["node0/train.log"] == runs["node1/train.log"]
    assert runs["node2/train.log"] == runs["node3/train.log"]
    assert count(runs) == 2
    assert count(joined(tmp_path, files, joins=False)[0]) == 4


@pytest.mark.parametrize("text", ["0001-01-01 00:00:00 begins\n", f"process rank: {'9' * 5000}\n"])
@pytest.mark.parametrize("name", ["rank_{}.log", "worker_{}.log"])
def test_no_text_ends_the_search(name: str, text: str, tmp_path: Path) -> None:
    runs, _ = joined(tmp_path, {name.format(0): steps(head=text), name.format(1): steps()})
    assert count(runs) == 1


@pytest.mark.parametrize(
    ("names", "runs"),
    [
        ([f"multirun/2026-11-29/10-00-00/{at}/train.log" for at in range(3)], 3),
        ([f"exp/{at}/stdout.log" for at in range(3)], 3),
        ([f"{at}/train_rank{rank}.log" for at in range(2) for rank in range(2)], 2),
        ([f"seeds/{at}/rank_{rank}/train.log" for at in range(2) for rank in range(2)], 2),
        ([f"{at}/exp_rank{rank}.log" for at in range(3) for rank in range(2)], 3),
        ([f"{at}/train_rank0.log" for at in range(2)], 2),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_number_of_a_folder_is_that_of_an_experiment(
    names: list[str], runs: int, at_once: bool, tmp_path: Path
) -> None:
    paths, found = [tmp_path / name for name in names], RunNames()
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(steps())
    for end in [len(paths)] if at_once else range(1, len(paths) + 1):
        _ = [*join_launches(paths[0 if at_once else end - 1 : end], paths[:end], found)]
    assert len({*runs_of(paths, found)}) == runs


def test_no_join_parts_what_stamps_of_names_made_one_run(tmp_path: Path) -> None:
    files = {f"train_20260129_10150{node}_node{node}.log": steps() for node in range(3)}
    assert count(joined(tmp_path, files)[0]) == 1
    assert count(joined(tmp_path, files, joins=False)[0]) == 3


def printed(losses: Iterable[str]) -> str:
    """A step a second with these losses."""
    clock = "2026-01-29 10:{:02d}:{:02d}"
    return "".join(
        f"{clock.format(at // 60, at % 60)} step {at} loss {loss} {'-' * 30}\n"
        for at, loss in enumerate(losses)
    )


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (["0.67", "0.63", *["0.61"] * 28], ["0.67", "0.64", *["0.61"] * 28]),
        (["2.303"] * 30, ["2.303"] * 30),
        (
            [f"{3 - at / 1000:.4f}" for at in range(900)],
            [f"{3 - at / 1000 - (at > 600):.4f}" for at in range(900)],
        ),
    ],
    ids=["few decimals", "warm-up", "apart later on"],
)
def test_losses_that_are_near_are_not_the_same(
    first: list[str], other: list[str], tmp_path: Path
) -> None:
    runs, _ = joined(tmp_path, {"fold_0.log": printed(first), "fold_1.log": printed(other)})
    assert count(runs) == 2


def test_launches_one_after_the_other_that_begin_at_the_same_step_are_two(tmp_path: Path) -> None:
    runs, _ = joined(tmp_path, {"node0.log": steps(), "node1.log": steps(1, began=500.0)})
    assert count(runs) == 2


@pytest.mark.parametrize(("rows", "apart"), [(1, 0.001), (1, 3.0), (5, 7.0)])
def test_ranks_that_are_found_with_their_first_rows_are_one_run(
    rows: int, apart: float, tmp_path: Path
) -> None:
    """Clocks of nodes differ by seconds: the files of some end before those of others begin."""
    files = {
        f"job/health_rank{rank}.jsonl": "".join(
            json.dumps({"step": step, "loss": 2.5 + rank, "time": EPOCH + rank % 2 * apart + step})
            + "\n"
            for step in range(rows)
        )
        for rank in range(20)
    }
    runs, _ = joined(tmp_path, files)
    assert {*runs.values()} == {"job"}


def test_an_old_file_of_the_lowest_number_does_not_part_the_others(tmp_path: Path) -> None:
    old = {"worker_0.log": steps(9, began=-24 * HOURS)}
    runs, notices = joined(tmp_path, old | {f"worker_{at}.log": steps() for at in (1, 2, 3)})
    assert count(runs) == 2
    assert runs["worker_1.log"] == runs["worker_3.log"] != runs["worker_0.log"]
    assert len(notices) == 1


def test_a_bug_in_the_comparison_leaves_the_names_of_the_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, disk: object) -> None:
        raise ValueError(path, disk)

    monkeypatch.setattr(launches, "glance", fail)
    runs, notices = joined(tmp_path, {f"exp_{at}.log": steps(at) for at in range(2)})
    assert set(runs.values()) == {"exp_0", "exp_1"}
    assert notices[0].startswith("cannot compare files, and follows them by name: ValueError")
