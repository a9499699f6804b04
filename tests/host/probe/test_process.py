"""Which processes are a training's, by what they have open; all of them real."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from ldlm_monitor.host.probe.process import environment, family, listens, look

from .conftest import wait_until


def found(log: Path, **named: int) -> set[int]:
    return set(family([str(log)], named).members)


def test_whoever_writes_the_log_is_found_and_whoever_reads_it_is_not(tmp_path, train) -> None:
    training = train("sleep")
    log = tmp_path / "train.log"
    with subprocess.Popen(["tail", "-f", log], stdout=subprocess.DEVNULL) as reader:
        seen = found(log)
        reader.kill()
    assert seen == {training.pid}


def test_whoever_writes_the_pipe_of_tee_is_found(tmp_path, train) -> None:
    training = train("sleep", tee=True)
    seen = family([str(tmp_path / "train.log")])
    assert {training.pid, training.tee.pid} == set(seen.members)
    assert [each.pid for each in seen.ranks.values()] == [training.pid]


def test_who_feeds_a_training_is_not_part_of_it(tmp_path) -> None:
    feeder = (
        "import subprocess, sys, time\n"
        "train = [sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(600)']\n"
        "with open(sys.argv[1], 'wb') as log:\n"
        "    training = subprocess.Popen(train, stdin=subprocess.PIPE, stdout=log)\n"
        "print(training.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    log = tmp_path / "train.log"
    with subprocess.Popen([sys.executable, "-c", feeder, log], stdout=subprocess.PIPE) as process:
        training = int(process.stdout.readline())
        wait_until(lambda: log.stat().st_size and look(training).state == "S")
        seen = found(log)
        process.kill()
        os.kill(training, signal.SIGKILL)
    assert seen == {training}


def test_a_log_that_was_renamed_to_another_folder_or_linked_is_still_its_log(
    tmp_path, train
) -> None:
    training = train("sleep")
    (tmp_path / "logs").mkdir()
    os.link(tmp_path / "train.log", tmp_path / "logs" / "train.log")
    assert found(tmp_path / "logs" / "train.log") == {training.pid}


def test_another_log_of_the_same_name_is_another(tmp_path, train) -> None:
    train("sleep")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/train.log").touch()
    assert found(tmp_path / "logs/train.log") == set()


def test_the_main_process_of_a_rank_is_not_one_that_it_forked(tmp_path, train) -> None:
    zero, one = train("fork", rank=0), train("sleep", rank=1)
    log = tmp_path / "train.log"
    wait_until(lambda: len(found(log)) == 3)
    ranks = family([str(log)]).ranks
    assert {rank: each.pid for rank, each in ranks.items()} == {0: zero.pid, 1: one.pid}


def test_the_main_process_of_a_batch_script_is_what_it_waits_for(tmp_path) -> None:
    log = tmp_path / "train.log"
    train = "import time; sum(range(3_000_000)); print(1, flush=True); time.sleep(600)"
    script = f"{sys.executable} -c '{train}'\ntrue\n"
    with log.open("wb") as file:
        batch = subprocess.Popen(
            ["bash", "-c", script],
            stdout=file,
            env={**os.environ, "SLURM_PROCID": "0"},
            start_new_session=True,
        )
    wait_until(lambda: log.stat().st_size)
    seen = family([str(log)])
    os.killpg(batch.pid, signal.SIGKILL)
    batch.wait()
    assert len(seen.members) == 2
    assert [(rank, each.parent) for rank, each in seen.ranks.items()] == [(0, batch.pid)]


def test_a_process_that_a_heartbeat_names_is_found_without_a_log(train) -> None:
    training = train("sleep")
    ranks = family([], {5: training.pid}).ranks
    assert {rank: each.pid for rank, each in ranks.items()} == {5: training.pid}


def test_the_monitor_itself_is_never_the_training(tmp_path) -> None:
    log = tmp_path / "train.log"
    with log.open("w"):
        assert found(log) == set()


def test_states_are_the_kernels_own(train) -> None:
    training = train("sleep")
    wait_until(lambda: look(training.pid).state == "S")
    os.kill(training.pid, signal.SIGSTOP)
    wait_until(lambda: look(training.pid).state == "T")
    os.kill(training.pid, signal.SIGKILL)
    wait_until(lambda: look(training.pid).state == "Z")
    assert look(training.pid).status == signal.SIGKILL
    training.process.wait()
    assert look(training.pid) is None


def test_an_exit_code_is_read_of_who_was_not_waited_for(train) -> None:
    training = train("exit", "3")
    wait_until(lambda: look(training.pid).state == "Z")
    assert look(training.pid).status == 3 << 8


def test_a_name_that_imitates_the_fields_behind_it_fools_nobody(tmp_path) -> None:
    program = tmp_path / "a) Z 1 2 3 ("
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "import time; time.sleep(600)"]) as process:
        seen = look(process.pid)
        process.kill()
    assert seen is not None
    assert (seen.parent, seen.state != "Z") == (os.getpid(), True)


def test_only_the_variables_that_are_asked_for_are_read(train) -> None:
    training = train("sleep", rank=2, AWS_SECRET_ACCESS_KEY="s3cret")
    assert environment(training.pid, ["RANK", "HOMELESS"]) == {"RANK": "2"}


def test_who_listens_on_a_port_is_told(train) -> None:
    program = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    bystander = train("sleep")
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        port = int(server.stdout.readline())
        answers = [
            listens([server.pid], port),
            listens([bystander.pid], port),
            listens([server.pid], port + 1),
        ]
        server.kill()
    assert answers == [True, False, False]
