"""The main job, with real processes, files and HTTP: what a user sees who starts it."""

import json
import os
import signal
import subprocess
import sys
import urllib.error

import pytest

pytestmark = pytest.mark.live

LOG = "train_logs/train_20260129_101500_node0.log"
RUN = "train_20260129_101500"
NAN = "WARNING: Invalid text_loss detected: nan\n"


def test_a_nan_line_appended_to_a_followed_log_reaches_slack(start, slack, append, bars):
    append(LOG, bars(0, 40))
    daemon = start("train_logs/*.log", slack=slack).ready()
    append(LOG, NAN)
    message = slack.next()
    for part in ("NonFiniteLoss", RUN, "Invalid text_loss detected: nan", f"{LOG}:1", "39"):
        assert part in message
    assert "FIRING" in daemon.until("NonFiniteLoss")


def test_a_log_that_appears_later_is_followed_from_its_start(start, slack, append, bars):
    daemon = start("train_logs/*.log", slack=slack).ready()
    assert "waiting" in daemon.log.read_text()
    append(LOG, bars(0, 5) + NAN)
    assert "NonFiniteLoss" in slack.next()


def test_a_hang_is_told_at_its_limit_and_its_end_too(start, slack, append, bars, tmp_path):
    # Seconds enough for its end to be sent before the run, which takes no more steps, stalls again.
    (tmp_path / "ldlm-monitor.toml").write_text("[stall.limit_seconds]\nrunning = 3.0\n")
    append(LOG, bars(0, 40))
    start("train_logs/*.log", slack=slack).ready()
    append(LOG, bars(40, 42))
    assert "TrainingStalled firing" in slack.next()
    append(LOG, bars(41, 42))  # a redraw of the same step is no progress
    append(LOG, bars(42, 44))
    assert "TrainingStalled resolved" in slack.next()


def test_metrics_and_health_pages_answer(start, append, bars):
    append(LOG, bars(0, 5) + NAN)
    daemon = start("train_logs/*.log").ready()
    assert daemon.get("/-/healthy") == "healthy\n"
    metrics = daemon.get("/metrics")
    assert f'ldlm_train_step{{run="{RUN}"}} 4\n' in metrics
    assert f'ldlm_train_nonfinite_total{{quantity="loss_text",run="{RUN}"}} 1\n' in metrics
    (run,) = json.loads(daemon.get("/api/v1/runs"))["runs"]
    assert (run["name"], run["health"], run["step"]) == (RUN, "CRITICAL", 4)


def test_what_was_told_before_a_kill_is_not_told_again_and_what_was_not_is(
    start, slack, append, bars
):
    append(LOG, bars(0, 40))
    daemon = start("train_logs/*.log", slack=slack).ready()
    append(LOG, NAN)
    assert "NonFiniteLoss firing" in slack.next()
    daemon.wait_for_metric('notifications_total{outcome="sent",receiver="slack"} 1')
    daemon.stop(signal.SIGKILL)
    append(LOG, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    start("train_logs/*.log", slack=slack).ready()
    assert "OutOfMemory firing" in slack.next()
    assert slack.messages.empty()


def test_rules_are_loaded_anew_on_sighup_and_over_http_and_bad_ones_are_refused(
    start, append, bars, tmp_path
):
    rules = tmp_path / "mine.yml"
    rule = "groups: [{name: g, rules: [{alert: Many, expr: ldlm_train_step > %s}]}]\n"
    rules.write_text(rule % 1000)
    append(LOG, bars(0, 40))
    daemon = start("train_logs/*.log", "--rules", "mine.yml").ready()
    rules.write_text(rule % 10)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until("FIRING", "Many")
    rules.write_text("groups: [{name: g, rules: [{alert: Many, expr: 'nonsense('}]}]\n")
    with pytest.raises(urllib.error.HTTPError) as refused:
        daemon.post("/-/reload")
    assert "mine.yml" in refused.value.read().decode()
    assert "mine.yml" in daemon.log.read_text()
    rules.write_text(rule % 1000)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        daemon.post("/-/reload", Origin="http://a.page.example")
    assert daemon.post("/-/reload") == "reloaded\n"
    daemon.until("RESOLVED", "Many")


def test_ctrl_c_prints_the_health_report(start, append, bars):
    append(LOG, bars(0, 40))
    daemon = start("train_logs/*.log").ready()
    assert daemon.stop(signal.SIGINT) == 130
    assert any("health report" in line for line in daemon.printed())


def test_standard_input_is_followed_to_its_end(append, bars, tmp_path):
    text = bars(0, 5) + NAN
    done = subprocess.run(
        [sys.executable, "-m", "ldlm_monitor", "-", "--headless", "--listen", "127.0.0.1:0"],
        input=text,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    assert "NonFiniteLoss" in done.stdout
