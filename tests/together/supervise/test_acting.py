"""Real commands that hang, fail or log NaN under `ldlm-monitor run --on ...`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.host.supervise import evidence
from ldlm_monitor.host.supervise.run_folder import RunRecord, all_runs
from tests.together.live.conftest import Slack
from tests.together.supervise.conftest import RUN, Ran, family, signal_all, until

pytestmark = pytest.mark.live

TRAINING = """
import os, sys, time
attempt, fault = int(os.environ["LDLM_ATTEMPT"]), sys.argv[1]
first = int(os.environ.get("LDLM_RESUME_STEP", 0)) + 1 if attempt > 1 else 1
print("environment", {k: v for k, v in os.environ.items() if k.startswith("LDLM_S")}, flush=True)
for step in range(first, 41):
    at_fault = step == 25 and attempt == 1
    loss = "nan" if at_fault and fault == "nan" else 5 - step / 100
    print(f"step {step}/40 loss {loss}", flush=True)
    if step % 10 == 0:
        print(f"Saving checkpoint at iteration {step}", flush=True)
        print(f"successfully saved checkpoint at iteration {step}", flush=True)
    if at_fault and fault == "hang":
        time.sleep(600)
    if at_fault and fault == "crash":
        raise SystemExit(1)
    if at_fault and fault == "code":
        raise TypeError("step() takes 1 positional argument")
    if at_fault and fault == "nan":
        time.sleep(20)
    time.sleep(5 if fault == "endless" and step == 20 else 0.1)
"""


SETTINGS = "evaluation_interval = 1\n[stall]\nlimit_seconds = {running = 3}\n"


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slack]:
    server = Slack()
    monkeypatch.setenv("LDLM_SLACK_WEBHOOK_URL", server.url)
    monkeypatch.setenv("LDLM_SLACK_FOLLOW_UP_SECONDS", "0.5")
    yield server
    server.close()


def sent(slack: Slack) -> str:
    """All that was sent, of a run whose monitor has ended."""
    return "\n".join(slack.messages.get() for _ in range(slack.messages.qsize()))


def started(folder: Path, *words: str, settings: str = SETTINGS) -> subprocess.Popen[bytes]:
    (folder / "train.py").write_text(TRAINING)
    (folder / "ldlm-monitor.toml").write_text(settings)
    flags, fault = words[:-1], words[-1]
    return subprocess.Popen([*RUN, *flags, "--", sys.executable, "train.py", fault])


def ended(process: subprocess.Popen[bytes]) -> tuple[int, RunRecord, str]:
    code = process.wait(120)
    until(lambda: all(each.exit_code is not None for each in all_runs()))
    record = next(all_runs())
    return code, record, Path(record.log).read_text()


def test_a_hang_is_killed_and_trains_on_in_another_attempt(folder: Path, slack: Slack) -> None:
    code, record, log = ended(
        started(folder, "--on", "hang=stacks,kill", "--on", "crash=restart:1", "hang")
    )
    assert code == 0
    assert "TrainingStalled, --on hang=kill,stacks: SIGTERM" in log
    assert "attempt 2 starts" in log
    assert "step 40/40 loss 4.6" in log.split("attempt 2 starts")[1]
    assert "attempt 3" not in log
    kept = folder / "state/ldlm-monitor/runs" / record.name
    assert (kept / "evidence_1.json").exists()
    until((kept / "report.txt").exists, seconds=90)
    posted = sent(slack)
    assert "ldlm-monitor run acts on a failure" in posted
    assert "TrainingStalled, --on hang=kill,stacks: SIGTERM" in posted
    assert "ldlm-monitor run starts it again" in posted
    assert "restart 1 of 5 in 1d: TrainingStalled at step 25, after 1 s" in posted


def test_a_nan_is_followed_by_a_start_before_it(folder: Path, slack: Slack) -> None:
    code, record, log = ended(started(folder, "--on", "nan=kill", "--on", "crash=restart:1", "nan"))
    assert code == 0
    assert "'LDLM_SKIP_STEPS': '25-25'}" in log
    assert "step 21/40" in log.split("attempt 2 starts")[1].splitlines()[2]
    until((folder / "state/ldlm-monitor/runs" / record.name / "report.txt").exists, seconds=90)
    assert "NonFiniteLoss at step 25, after 1 s, from step 20" in sent(slack)


def test_a_crash_without_a_reaction_is_only_watched(folder: Path, slack: Slack) -> None:
    code, record, log = ended(started(folder, "crash"))
    assert (code, record.exit_code) == (1, 1)
    assert "attempt 2" not in log
    report = folder / "state/ldlm-monitor/runs" / record.name / "report.txt"
    until(lambda: report.exists() and bool(report.read_text()), seconds=90)
    assert "TrainingCrashed" in report.read_text()
    posted = sent(slack)
    assert "TrainingCrashed" in posted
    assert "RunActed" not in posted


def test_an_error_in_the_code_is_not_restarted(folder: Path, slack: Slack) -> None:
    code, record, log = ended(started(folder, "--on", "crash=restart:3", "code"))
    assert code == 1
    assert "no restart: STOP" in log
    assert "attempt 2 starts" not in log
    assert "restart 1 of" not in log, "nobody may be notified of a restart that is not made"
    until((folder / "state/ldlm-monitor/runs" / record.name / "report.txt").exists, seconds=90)
    posted = sent(slack)
    assert "ldlm-monitor run does not start it again" in posted
    assert "no restart: STOP" in posted
    assert "ldlm-monitor run starts it again" not in posted


def test_what_was_done_arrives_although_the_run_ends_long_before_news_are_due(
    folder: Path, slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the default pause between messages, to a receiver that is slow."""
    monkeypatch.delenv("LDLM_SLACK_FOLLOW_UP_SECONDS")
    slack.answer_seconds = 1.5
    _, record, _ = ended(started(folder, "--on", "hang=kill", "--on", "crash=restart:1", "hang"))
    until((folder / "state/ldlm-monitor/runs" / record.name / "report.txt").exists, seconds=90)
    posted = sent(slack)
    assert "ldlm-monitor run acts on a failure" in posted
    assert "ldlm-monitor run starts it again" in posted


def test_a_run_in_the_background_is_stopped_by_name(folder: Path) -> None:
    (folder / "train.sh").write_text("echo step 1/9 loss 3\nsleep 600\n")
    left = subprocess.run(
        [*RUN, "--detach", "--", "bash", "train.sh"], capture_output=True, check=False, text=True
    )
    assert left.stdout.startswith("train_")
    until(lambda: any(each.is_running for each in all_runs()))
    subprocess.run([*RUN[:3], "stop", "train"], check=True)
    until(lambda: all(each.exit_code is not None for each in all_runs()))
    assert next(all_runs()).exit_code == 143


@pytest.mark.parametrize("by", ["stop", "SIGTERM", "SIGINT"])
def test_what_a_person_ends_is_no_crash_and_not_started_again(
    folder: Path, slack: Slack, by: str
) -> None:
    """As for a log that is followed, SIGTERM is a warning, since a scheduler may have sent it."""
    process = started(folder, "--on", "crash=restart:3", "endless")
    until(lambda: any("step 9/" in Path(each.log).read_text() for each in all_runs()))
    if by == "stop":
        subprocess.run([*RUN[:3], "stop", "train"], check=True)
    else:
        process.send_signal(getattr(signal, by))
    _, record, log = ended(process)
    assert "attempt 2" not in log
    report = folder / "state/ldlm-monitor/runs" / record.name / "report.txt"
    until(lambda: report.exists() and bool(report.read_text()), seconds=90)
    assert "TrainingCrashed" not in report.read_text() + sent(slack)
    assert ("JobKilled" in report.read_text()) == (by == "SIGTERM")
    assert ("STOP (" in report.read_text()) == (by != "SIGTERM")


def test_a_job_whose_processes_are_all_sent_sigterm_is_reported_before_its_front_ends(
    folder: Path, slack: Slack
) -> None:
    """Slurm's way to end a job; it kills what is left of it when the script, our caller, ends."""
    # A stall limit that is shorter than a kill is doubtful would be reported before it.
    process = started(folder, "endless", settings=SETTINGS.replace("= 3", "= 60"))
    until(lambda: any("step 9/" in Path(each.log).read_text() for each in all_runs()))
    signal_all(family(process.pid), signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    (record,) = all_runs()
    report = (folder / "state/ldlm-monitor/runs" / record.name / "report.txt").read_text()
    assert record.exit_code == 128 + signal.SIGTERM
    assert Path(record.log).read_text().count("asked to end by SIGTERM") == 1
    assert "killed" in report
    assert "JobKilled firing (warning)" in sent(slack)


def test_a_crash_in_a_job_is_reported_before_its_script_goes_on(
    folder: Path, slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert started(folder, "crash").wait(100) == 1
    (record,) = all_runs()
    assert (folder / "state/ldlm-monitor/runs" / record.name / "report.txt").read_text()
    assert "TrainingCrashed" in sent(slack)


def test_a_second_signal_ends_the_wait_for_the_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LDLM_EVALUATION_INTERVAL", "60")  # so that it would be long
    process = started(folder, "endless")
    until(lambda: any("step 9/" in Path(each.log).read_text() for each in all_runs()))
    process.terminate()
    until(lambda: next(all_runs()).exit_code is not None)
    assert process.poll() is None
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    (record,) = all_runs()
    report = folder / "state/ldlm-monitor/runs" / record.name / "report.txt"
    assert not report.exists()
    until(report.exists)  # its monitor goes on


def test_reports_find_a_run_by_its_name(run: Callable[..., Ran], folder: Path) -> None:
    text = "\n".join(f"step {step}/20 loss {3 - step / 50}" for step in range(1, 21))
    run("sh", "-c", f"printf '{text}\\n'", flags=["--run", "exp"])
    shown = subprocess.run([*RUN[:3], "report", "exp"], capture_output=True, check=False, text=True)
    assert "exp_" in shown.stdout
    assert "20" in shown.stdout


def test_of_the_environment_only_harmless_variables_keep_their_values(
    run: Callable[..., Ran], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "DOCKER_AUTH_CONFIG", "OF_A_NAME_THAT_SAYS_NOTHING", "SLURM_PASSWORD"):
        monkeypatch.setenv(name, f"hunter {name}")
    for name in ("NCCL_DEBUG", "WORLD_SIZE", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, f"{len(name)}")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "http://bob:hunter@proxy:3128")
    ran = run("true")
    assert ran.record is not None
    until(lambda: next(all_runs()).surroundings is not None)
    path = folder / "state/ldlm-monitor/runs" / ran.record.name / "run.json"
    kept = json.loads(path.read_text())["surroundings"]["environment"]
    assert "hunter" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert kept["HF_TOKEN"] == kept["OF_A_NAME_THAT_SAYS_NOTHING"] == "[redacted]"
    assert (kept["NCCL_DEBUG"], kept["WORLD_SIZE"], kept["SLURM_JOB_ID"]) == ("10", "10", "12")
    assert kept["NCCL_SOCKET_IFNAME"] == "http://[redacted]@proxy:3128"


def test_secrets_of_the_command_reach_it_at_each_start_and_no_file(
    run: Callable[..., Ran], folder: Path
) -> None:
    script = "[ $2 = hunter22hunter ] && [ $LDLM_ATTEMPT = 2 ] && echo both || exit 3"
    flags = ["--on", "crash=restart:1"]
    ran = run("bash", "-c", script.replace("hunter22", "hunter2'2'"), "x", "--password",
              "hunter22hunter", flags=flags)  # fmt: skip
    assert (ran.stdout, ran.code) == (b"both\n", 0)
    assert ran.record is not None
    log = Path(ran.record.log).read_text()
    assert [
        line.endswith('"--password", "[redacted]"]')
        for line in log.splitlines()
        if "starts" in line
    ] == [True, True]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert Path(ran.record.log) in files
    assert [path.name for path in files if b"hunter22hunter" in path.read_bytes()] == []


def test_a_command_longer_than_a_pipe_is_started(run: Callable[..., Ran]) -> None:
    words = ["w" * 100_000] * 5
    assert run("sh", "-c", "echo $#", "x", *words).stdout == b"5\n"


def test_a_full_disk_costs_the_log_and_not_the_command(folder: Path) -> None:
    script = "for i in 1 2 3; do head -c 100000 /dev/zero; done; echo end"
    limited = f"ulimit -f 100; exec {' '.join(RUN)} -- sh -c '{script}'"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, check=False)
    assert (len(done.stdout), done.returncode) == (300_004, 0)
    (log,) = (folder / "logs").iterdir()
    assert log.stat().st_size <= 102_400


PY_SPY = """#!/bin/sh
[ "$3" != 2 ] || exec sleep 60
echo "Thread $3 (idle): MainThread"
echo "    step (train.py:9) HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123"
"""


def test_stacks_are_kept_without_secrets_and_never_waited_for_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """py-spy's stand-in answers for one process and hangs for the other."""
    (folder / "py-spy").write_text(PY_SPY)
    (folder / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(evidence, "STACK_SECONDS", 1.0)
    found = dict(evidence.stacks([1, 2]))
    assert found["1"].splitlines()[0] == "Thread 1 (idle): MainThread"
    assert "step (train.py:9)" in found["1"]
    assert "hf_abc" not in found["1"]
    assert found["2"] == ""


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
rank = "import os, time; open('rank.pid', 'w').write(str(os.getpid())); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", rank], start_new_session=True)
for step in range(1, 30):
    print(f"step {step}/40 loss 2.5", flush=True)
    time.sleep(0.05)
time.sleep(600)
"""


def test_a_kill_ends_ranks_in_sessions_of_their_own_too(folder: Path) -> None:
    """As torchrun's are; neither they nor their launcher heed SIGTERM."""
    (folder / "launch.py").write_text(STUBBORN)
    (folder / "ldlm-monitor.toml").write_text(SETTINGS)
    code, _, log = ended(
        subprocess.Popen([*RUN, "--on", "hang=kill", "--", sys.executable, "launch.py"])
    )
    assert code == 137
    assert "the command did not end: SIGKILL" in log
    rank = int((folder / "rank.pid").read_text())
    until(lambda: not Path(f"/proc/{rank}").exists() or "Z" in state_of(rank))


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
