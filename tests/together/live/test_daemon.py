"""The daemon where what it follows, is asked or sends to is not as it should be: real processes."""

import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.live

LOG = "train_logs/train_20260129_101500_node0.log"
RUN = "train_20260129_101500"
NAN = "WARNING: Invalid text_loss detected: nan\n"


def test_a_monitor_that_was_stopped_reads_what_waits_before_it_judges_by_time(
    start, slack, append, tmp_path
):
    (tmp_path / "ldlm-monitor.toml").write_text("[stall.limit_seconds]\nrunning = 5.0\n")
    daemon = start("*.jsonl", slack=slack, shorter="judging_clock.STOPPED_SECONDS = 3.0").ready()

    def step(number: int, loss: str = "2.5") -> None:
        append("run.jsonl", f'{{"step": {number}, "loss": {loss}, "total_steps": 9500}}\n')

    step(0)
    daemon.wait_for_metric('ldlm_train_step{run="run"} 0')
    os.kill(daemon.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED)
    until = time.monotonic() + 7.0  # longer than the limit, and than what counts as a stop
    number = 1
    while time.monotonic() < until:
        step(number)
        number += 1
        threading.Event().wait(0.2)
    step(number, loss="NaN")
    os.kill(daemon.process.pid, signal.SIGCONT)
    assert "NonFiniteLoss firing" in slack.next()
    assert "TrainingStalled firing" in slack.next()  # now it hangs
    daemon.wait_for_message("this monitor was stopped")


def test_a_message_links_to_the_page_of_its_run(start, slack, append, bars, tmp_path):
    (tmp_path / "ldlm-monitor.toml").write_text('external_url = "https://monitor.lan/ldlm/"\n')
    append(LOG, bars(0, 5))
    daemon = start("train_logs/*.log", slack=slack).ready()
    append(LOG, NAN)
    assert f"<https://monitor.lan/ldlm/runs/{RUN}|" in slack.next()
    assert "CRITICAL" in daemon.get(f"/runs/{RUN}")


def test_what_waits_goes_out_after_a_kill_while_the_logs_are_still_read(start, slack, append, bars):
    append(LOG, bars(0, 40))
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes the request, and never answers
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/services/T/B/x"
        daemon = start("train_logs/*.log", slack=SimpleNamespace(url=url)).ready()
        append(LOG, NAN)
        daemon.until("FIRING", "NonFiniteLoss")
        daemon.stop(signal.SIGKILL)
    for number in range(200):
        append(f"train_logs/other{number}.log", bars(0, 400))
    daemon = start("train_logs/*.log", slack=slack)
    assert "NonFiniteLoss firing" in slack.next()
    with pytest.raises(urllib.error.HTTPError, match="503"):
        daemon.get("/-/ready")


def test_what_happened_while_it_was_down_is_told_once(start, slack, append, bars):
    append(LOG, bars(0, 40))
    start("train_logs/*.log", slack=slack).ready().stop()
    append(LOG, NAN + bars(40, 50))
    start("train_logs/*.log", slack=slack).ready().stop()
    assert "NonFiniteLoss firing" in slack.next()
    append("train_logs/other.log", bars(0, 5) + NAN)
    start("train_logs/*.log", slack=slack).ready()
    assert "other" in slack.next()
    assert slack.messages.empty()


def test_a_hang_that_was_told_is_not_told_again_although_the_log_was_written_to_since(
    start, slack, append, bars, tmp_path
):
    (tmp_path / "ldlm-monitor.toml").write_text("[stall.limit_seconds]\nrunning = 1.5\n")
    append(LOG, bars(0, 40))
    daemon = start("train_logs/*.log", slack=slack).ready()
    append(LOG, bars(40, 42) + "\n")
    assert "TrainingStalled firing" in slack.next()
    daemon.wait_for_metric('notifications_total{outcome="sent",receiver="slack"} 1')
    daemon.stop()
    append(LOG, "some library has something to say\n")
    daemon = start("train_logs/*.log", slack=slack).ready()
    daemon.until("FIRING", "TrainingStalled")
    append(LOG, bars(42, 44) + "\n")
    assert "TrainingStalled resolved" in slack.next()


def test_an_end_amid_the_first_reading_loses_no_news(start, slack, append, bars):
    append(LOG, bars(0, 40))
    start("train_logs/*.log", slack=slack).ready().stop()
    append(LOG, NAN + bars(40, 10_000))
    # Too early to have read all that: whatever it managed, the message must still arrive.
    start("train_logs/*.log", slack=slack).stop()
    start("train_logs/*.log", slack=slack).ready()
    assert "NonFiniteLoss firing" in slack.next()


def test_an_alert_in_an_old_log_is_shown_and_not_told(start, slack, append, bars):
    path = append(LOG, bars(0, 5) + NAN)
    os.utime(path, (1e9, 1e9))
    daemon = start("train_logs/*.log", slack=slack).ready()
    append("train_logs/other.log", bars(0, 5) + NAN)
    assert "other" in slack.next()
    assert slack.messages.empty()
    assert not [line for line in daemon.printed() if RUN in line and "RESOLVED" in line]


def test_the_step_log_that_appears_later_is_followed_too(start, append, bars):
    append(LOG, "Working directory: /somewhere/saved/qwen\n" + bars(0, 5))
    daemon = start("train_logs/*.log").ready()
    append("saved/qwen/training_log.jsonl", '{"epoch": 0, "step": 5, "loss": NaN, "lr": 0.1}\n')
    assert "training_log.jsonl:1" in daemon.until("FIRING", "NonFiniteLoss", RUN)


def test_rows_of_an_earlier_launch_are_not_taken_for_this_one(start, append, bars, tmp_path):
    rows = "saved/qwen/training_log.jsonl"
    append(rows, '{"epoch": 0, "step": 900, "loss": NaN}\n')
    append(LOG, "Working directory: /somewhere/saved/qwen\n")
    daemon = start("train_logs/*.log").ready()
    (tmp_path / rows).write_text("")
    append(LOG, bars(0, 2))
    append(
        rows, '{"epoch": 0, "step": 0, "loss": 2.5}\n{"epoch": 0, "step": 1, "loss": Infinity}\n'
    )
    assert "training_log.jsonl:2" in daemon.until("FIRING", "NonFiniteLoss", RUN)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_the_code_of_the_contract(start, append, bars, number, code):
    append(LOG, bars(0, 5))
    assert start("train_logs/*.log").ready().stop(number) == code


def test_an_unreadable_file_and_a_pipe_do_not_keep_the_others_from_being_watched(
    start, slack, append, bars, tmp_path
):
    append(LOG, bars(0, 5))
    os.mkfifo(tmp_path / "train_logs/pipe.log")
    # Also root cannot read this one.
    (tmp_path / "train_logs/locked.log").symlink_to("/proc/self/mem")
    start("train_logs/*.log", slack=slack).ready()
    append(LOG, NAN)
    assert RUN in slack.next()


def test_a_nan_is_sent_while_another_log_is_far_behind(start, slack, append, bars):
    """The backlog is of a form that takes long to judge, and shorter than a turn of fast ones."""
    slow = "train_logs/train_20260130_120000_node0.log"
    append(LOG, bars(0, 40))
    append(slow, "step 0 | loss 2.5\n")
    daemon = start("train_logs/*.log", slack=slack).ready()
    append(slow, "".join(f"step {step} | loss 2.5 | lr 1.0e-04\n" for step in range(1, 120_000)))
    append(LOG, NAN)
    assert "NaN" in slack.next()
    assert "ldlm_monitor_behind_bytes 0\n" not in daemon.get("/metrics")


def test_few_descriptors_and_many_logs_leave_some_for_http(start, slack, append, bars):
    for number in range(300):
        append(f"train_logs/other{number}.log", bars(0, 5))
    append(LOG, bars(0, 5))
    daemon = start("train_logs/*.log", slack=slack, open_files=64).ready()
    append(LOG, NAN)
    assert RUN in slack.next()
    assert "ldlm_train_step" in daemon.get("/metrics")


def command(daemon, method, path, **fields):
    """Send a command as JSON; the answer's document."""
    body = json.dumps(fields).encode() if fields else None
    request = urllib.request.Request(daemon.url() + path, data=body, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read())


def test_a_silence_keeps_an_alert_from_slack_over_a_restart_until_it_ends(
    start, slack, append, bars
):
    append(LOG, bars(0, 40))
    append("train_logs/other.log", bars(0, 40))
    daemon = start("train_logs/*.log", slack=slack).ready()
    silence = command(
        daemon,
        "POST",
        "/api/v1/silences",
        matchers=[{"name": "run", "value": RUN}],
        endsAt=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600)),
        createdBy="ada",
        comment="known",
    )["silenceID"]
    append(LOG, NAN)
    assert "silenced by ada" in daemon.until("FIRING", RUN)
    append("train_logs/other.log", NAN)
    assert "other" in slack.next()
    daemon.wait_for_metric(f'ldlm_run_health{{run="{RUN}"}} 3')
    daemon.stop()

    again = start("train_logs/*.log", slack=slack).ready()
    assert "silenced by ada" in again.until("FIRING", RUN)
    (kept,) = command(again, "GET", "/api/v1/silences")["silences"]
    assert (kept["id"], kept["status"]["state"]) == (silence, "active")
    assert slack.messages.empty()
    command(again, "DELETE", f"/api/v1/silences/{silence}")
    message = slack.next()
    assert "NonFiniteLoss firing" in message
    assert RUN in message
