"""Companions are found as they come, and as the log comes to show whose they are."""

import os
from pathlib import Path

import pytest

from ldlm_callback import HealthCallback
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.text.lines import StatusLines
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.file_identity import Known
from ldlm_monitor.logs.source.file_system import DIRECT
from ldlm_monitor.logs.source.input_patterns import resolve
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.discovery import COMPANION_SECONDS, Inputs

NOW = 1_769_681_700.0
BAR = "Training:   1%|▏  | 1/95 [00:01<01:34,  1.00it/s, Epoch=0/1, Progress=1.0%, Loss=2.5]\r\n"


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    write(tmp_path / "train_logs/train_20260129_101500_node0.log", "* World size: 2\n")
    patterns = resolve([str(tmp_path / "train_logs/*.log")], base=tmp_path)
    inputs = Inputs(patterns, Monitor(), companions=True, disk=DIRECT)
    assert names(inputs, NOW) == ["train_20260129_101500_node0.log"]
    return inputs


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    """Logs of one launch on two nodes, and what its callback writes."""
    for node, second in ((0, "00"), (1, "03")):
        log = tmp_path / f"train_logs/train_20260129_1015{second}_node{node}.log"
        write(log, BAR)
    (tmp_path / "saved/out").mkdir(parents=True)
    callback = HealthCallback(run="qwen-7b", out=tmp_path / "saved/out", rank=0, world_size=2)
    callback.on_step(2, loss=2.5)
    callback.close()
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def names(inputs: Inputs, now: float) -> list[str]:
    return [str(each.path.name) for each in inputs.joining(now, None)]


def test_rows_that_are_written_later_join_their_log(inputs: Inputs, tmp_path: Path) -> None:
    log = tmp_path / "train_logs/train_20260129_101500_node0.log"
    write(log, "Working directory: /cluster/saved/run_a\n")
    write(tmp_path / "saved/run_a/training_log.jsonl", '{"step": 1}\n')
    assert names(inputs, NOW + COMPANION_SECONDS) == ["training_log.jsonl"]
    assert names(inputs, NOW + 100 * COMPANION_SECONDS) == []


def test_a_log_that_grew_may_say_whose_rows_they_are(inputs: Inputs, tmp_path: Path) -> None:
    for run in ("run_a", "run_b"):
        write(tmp_path / f"saved/{run}/training_log.jsonl", '{"step": 1}\n')
    assert names(inputs, NOW + COMPANION_SECONDS) == []
    log = tmp_path / "train_logs/train_20260129_101500_node0.log"
    write(log, f"Working directory: {tmp_path}/saved/run_b\n")
    (joining,) = inputs.joining(NOW + 100 * COMPANION_SECONDS, None)
    assert joining.path == tmp_path / "saved/run_b/training_log.jsonl"


@pytest.mark.parametrize("trained", [30, 60, 150])
def test_rows_join_at_most_a_quarter_later_than_their_run_has_trained(
    inputs: Inputs, tmp_path: Path, trained: int
) -> None:
    """On a loaded machine what shows whose rows they are may come minutes after the first step."""
    log = tmp_path / "train_logs/train_20260129_101500_node0.log"
    write(log, BAR)
    inputs._monitor.feed(Chunk(str(log), (1, 1, 0), 0, 1, BAR.encode()), NOW)
    for second in range(5, trained, 5):
        assert names(inputs, NOW + second) == []
    write(tmp_path / "saved/run_a/training_log.jsonl", '{"step": 1, "loss": 2.5}\n')
    write(log, "Working directory: /cluster/saved/run_a\n")
    late = max(trained / 4, 2 * COMPANION_SECONDS)
    found = [
        each for second in range(int(late) + 1) for each in names(inputs, NOW + trained + second)
    ]
    assert found == ["training_log.jsonl"]


def test_a_run_of_which_nothing_is_known_yet_is_called_as_its_callback_calls_it(
    two_nodes: Path,
) -> None:
    monitor = Monitor()
    patterns = resolve([str(two_nodes / "train_logs/*.log")], base=two_nodes)
    inputs = Inputs(patterns, monitor, companions=True, disk=DIRECT)
    joining = inputs.joining(NOW, None)
    assert len(joining) == 3
    assert {monitor.names.origin(str(each.path)).run for each in joining} == {"qwen-7b"}
    assert {monitor.names.origin(str(each.path)).node for each in joining} == {"0", "1", None}


def test_rows_that_are_named_beside_their_log_are_of_its_run(two_nodes: Path) -> None:
    """As a shell expands `saved/out/*.jsonl`: they are also companions of each other."""
    callback = HealthCallback(run="qwen-7b", out=two_nodes / "saved/out", rank=1, world_size=2)
    callback.close()
    log = two_nodes / "out.log"
    write(log, BAR)
    rows = [two_nodes / f"saved/out/health_rank{rank}.jsonl" for rank in (0, 1)]
    replay = Replay(Settings(files=tuple(map(str, (log, *rows)))))
    assert [*replay.transitions()]
    assert [run.name for run in replay.snapshot().runs] == ["qwen-7b"]


def joined_late(folder: Path, monitor: Monitor) -> list[Path]:
    """What joins a log that trained, and whose loss was lost, before its callback wrote."""
    log = folder / "train_logs/train_20260129_101500_node0.log"
    lost = BAR.replace("2.5", "nan").encode()
    monitor.feed(Chunk(str(log), (1, 1, 0), 0, 1, lost), NOW)
    patterns = resolve([str(log)], base=folder)
    inputs = Inputs(patterns, monitor, companions=True, disk=DIRECT)
    return [each.path for each in inputs.joining(NOW, None)]


def test_a_run_that_was_told_of_keeps_its_name_and_says_which_its_callback_gives_it(
    two_nodes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Alerts, silences and messages know it by that: another name would send them twice."""
    caplog.set_level("INFO")
    monitor = Monitor()
    joining = joined_late(two_nodes, monitor)
    assert {monitor.names.origin(str(each)).run for each in joining} == {"train_20260129_101500"}
    (notice,) = [text for text in caplog.messages if "qwen-7b" in text]
    assert notice == (
        "train_20260129_101500: its callback calls it qwen-7b; "
        "the old name stays, because alerts may have been sent under it"
    )
    before = list(monitor.engine.active_keys())
    (rows,) = [each for each in joining if each.name == "health_rank0.jsonl"]
    first = b"".join(rows.read_bytes().splitlines(keepends=True)[:-1])  # it goes on
    again = monitor.feed(Chunk(str(rows), (1, 2, 0), 0, 1, first), NOW + 1.0)
    assert [each.key for each in again if each.state == "firing"] == []
    assert list(monitor.engine.active_keys()) == before
    (line,) = StatusLines().of(monitor.snapshot(), 0.0)
    assert "train_20260129_101500 (qwen-7b)  " in line


def test_where_the_user_names_the_run_nobody_asks_what_its_callback_calls_it(
    two_nodes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    joined_late(two_nodes, Monitor(names=RunNames("mine")))
    assert not [text for text in caplog.messages if "qwen-7b" in text]


def test_a_replay_calls_a_run_as_its_callback_does_unless_the_user_says_otherwise(
    two_nodes: Path,
) -> None:
    def runs(**changes: str) -> set[str]:
        files = tuple(str(path) for path in (two_nodes / "train_logs").iterdir())
        replay = Replay(Settings(files=files, **changes))
        list(replay.transitions())
        return {run.name for run in replay.snapshot().runs}

    assert runs() == {"qwen-7b"}
    assert runs(run="mine") == {"mine"}


def test_a_log_that_appears_while_the_folder_is_listed_is_found_at_the_next_look(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.log", "* World size: 2\n")
    os.utime(tmp_path, (NOW, NOW))
    inputs = Inputs(
        resolve([str(tmp_path / "*.log")], base=tmp_path), Monitor(), companions=False, disk=DIRECT
    )

    def known() -> list[Known]:
        write(tmp_path / "b.log", "* World size: 2\n")  # the folder has been listed
        return []

    (first,) = inputs.joining(NOW, None, known)
    assert first.path.name == "a.log"
    assert names(inputs, NOW + 1) == ["b.log"]
