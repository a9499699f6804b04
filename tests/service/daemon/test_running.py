"""The whole daemon: what it says, whom it answers, what a reload and an end do."""

import json
import os
import signal
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.errors import ConfigError, UsageError
from ldlm_monitor.base.queries import Source
from tests.service.daemon.running import NAN, RUN, Running

Run = Callable[..., Running]
RULES = """
groups:
- name: own
  rules:
  - {alert: Far, expr: ldlm_train_step > 10}
"""


def test_a_nan_is_told_with_its_line_and_once_how_somebody_could_be_notified(
    run: Run, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    daemon = run()
    daemon.append(NAN)
    daemon.until_metric(f'ldlm_run_health{{run="{RUN}"}} 3')
    daemon.close()
    (line,) = [line for line in capfd.readouterr().out.splitlines() if "NonFiniteLoss" in line]
    assert f"{RUN}_node0.log:21" in line
    assert len([text for text in caplog.messages if "LDLM_SLACK_WEBHOOK_URL" in text]) == 1
    assert f"metrics on {daemon.url}/metrics, state in {daemon.settings.state_dir}" in caplog.text


def test_a_name_that_was_made_to_lead_here_is_answered_nothing(run: Run) -> None:
    daemon = run(allowed_hosts=("monitor.lan",))
    assert daemon.ask("/metrics", Host="monitor.lan:80")
    with pytest.raises(urllib.error.HTTPError, match="421") as refused:
        daemon.ask("/metrics", Host="evil.example")
    refused.value.close()


def test_what_a_rule_file_asks_for_in_vain_is_said_at_the_start(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "own.yml"
    rule = "{alert: A, expr: ldlm_trainig_loss > 3}"
    own.write_text(f"groups: [{{name: slow, interval: 500ms, rules: [{rule}]}}]")
    run(rules=(own,))
    assert "own.yml: group slow: interval 0.5s is not followed" in caplog.text
    assert "did you mean ldlm_train_loss?" in caplog.text


def test_what_is_not_there_yet_is_waited_for(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    daemon = run(files=(str(tmp_path / "late_*.log"),))
    assert "late_*.log: does not exist yet, waiting for it" in caplog.text
    (tmp_path / "late_1.log").write_text("step 7 loss 2.5\n")
    daemon.until_metric('ldlm_train_step{run="late_1"} 7')


def test_it_says_every_interval_how_the_runs_stand(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    daemon = run(interval=0.1)
    said = ""

    def has_stood_still() -> bool:
        nonlocal said
        said += capfd.readouterr().out
        return said.count("HEALTHY running  step 19/100") > 2

    daemon.until(has_stood_still)
    assert f"STATUS    {RUN}" in said


def test_a_reload_judges_by_new_rules_and_keeps_the_old_ones_where_it_fails(
    run: Run, tmp_path: Path
) -> None:
    own = tmp_path / "own.yml"
    own.write_text(RULES.replace("> 10", "> 1000"))
    daemon = run(rules=(own,))
    daemon.until_metric(f'ldlm_train_step{{run="{RUN}"}} 19')
    own.write_text("groups: 7")
    with pytest.raises(urllib.error.HTTPError) as failed:
        daemon.ask("/-/reload", "POST")
    assert "own.yml" in failed.value.read().decode()
    failed.value.close()
    assert "Far" not in daemon.ask("/api/v1/alerts")
    own.write_text(RULES)
    daemon.ask("/-/reload", "POST")
    daemon.until(lambda: "Far" in daemon.ask("/api/v1/alerts"))


def test_sighup_reloads_and_the_others_end_it(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own.yml"
    own.write_text(RULES.replace("> 10", "> 1000"))
    daemon = run(rules=(own,))
    own.write_text(RULES)
    os.kill(os.getpid(), signal.SIGHUP)
    daemon.until(lambda: "Far" in daemon.ask("/api/v1/alerts"))
    os.kill(os.getpid(), signal.SIGTERM)
    assert daemon.opening.ended()
    assert daemon.close() == (0, None)


def test_a_person_who_ends_it_gets_how_the_runs_stood(run: Run) -> None:
    daemon = run()
    daemon.until_metric(f'ldlm_train_step{{run="{RUN}"}} 19')
    os.kill(os.getpid(), signal.SIGINT)
    code, snapshot = daemon.close()
    assert code == 130
    assert snapshot is not None
    assert [(each.name, each.step) for each in snapshot.runs] == [(RUN, 19)]


def test_what_came_just_before_the_end_is_still_judged(run: Run) -> None:
    daemon = run()
    daemon.until_metric(f'ldlm_train_step{{run="{RUN}"}} 19')
    daemon.append("step 20/100 loss 2.5\n" + NAN)
    _, snapshot = daemon.close()
    assert snapshot is not None
    assert "NonFiniteLoss" in {each.name for each in snapshot.alerts}


def test_a_second_one_on_the_same_inputs_is_refused_and_pointed_to_the_first(run: Run) -> None:
    first = run()
    second = run()
    assert second.url == ""
    with pytest.raises(UsageError, match="follows these inputs already") as refused:
        second.close()
    assert f"attach {first.url}" in str(refused.value)


def test_an_address_that_was_asked_for_and_is_taken_is_an_error(run: Run, tmp_path: Path) -> None:
    taken = run().url.removeprefix("http://")
    second = run(listen=taken, state_dir=tmp_path / "other")
    with pytest.raises(UsageError, match="--listen: cannot listen on"):
        second.close()


def test_a_web_configuration_that_cannot_be_used_ends_the_start(run: Run, tmp_path: Path) -> None:
    web = tmp_path / "web.yml"
    web.write_text("basic_auth_users: {ada: hunter2}\n")
    with pytest.raises(ConfigError, match='basic_auth_users: the value of "ada"') as refused:
        run(web_config=web).close()
    assert "hunter2" not in str(refused.value)


def test_an_address_that_others_reach_without_credentials_is_warned_of(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run(listen="0.0.0.0:0")
    (warning,) = [text for text in caplog.messages if "everyone who reaches 0.0.0.0:" in text]
    assert "--web-config" in warning


def test_while_it_starts_a_screen_is_empty_and_a_key_is_told_to_wait(run: Run) -> None:
    daemon = run()
    opening: Any = type(daemon.opening)(daemon.settings, lambda: daemon.settings)
    assert opening.snapshot().runs == ()
    assert opening.held_back() == {}
    with pytest.raises(UsageError, match="still starting"):
        _ = opening.log
    source: Source = daemon.opening  # type: ignore[assignment]
    daemon.until(lambda: source.snapshot().runs != ())


def test_promql_is_answered_between_two_turns(run: Run) -> None:
    daemon = run()
    daemon.until_metric(f'ldlm_train_step{{run="{RUN}"}} 19')
    path = "/prometheus/api/v1/query?query=max(ldlm_train_step)"

    def is_at(step: str) -> bool:
        found = json.loads(daemon.ask(path))["data"]["result"]
        return [each["value"][1] for each in found] == [step]

    daemon.until(lambda: is_at("19"))
    daemon.append("step 20/100 loss 2.4\n")
    daemon.until(lambda: is_at("20"))


def test_agents_ask_a_daemon_that_lets_them(run: Run) -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    daemon = run(mcp=True)
    daemon.until_metric(f'ldlm_train_step{{run="{RUN}"}} 19')
    asked = {"name": "runs", "arguments": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    kinds = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
    answer = json.loads(daemon.ask("/mcp", "POST", body, **kinds))
    (content,) = answer["result"]["content"]
    (found,) = json.loads(content["text"])["runs"]
    assert (found["run"], found["step"]) == (RUN, 19)
    assert found["cite"].endswith("node0.log:20")


def test_prometheus_finds_it_while_it_runs(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "node17.json"
    daemon = run(file_sd=target, external_labels={"cluster": "a"})
    (found,) = json.loads(target.read_text())
    assert found["targets"] == [daemon.url.removeprefix("http://")]
    daemon.close()
    assert not target.exists()


def test_what_was_read_is_recorded_where_it_was_asked_for(run: Run, tmp_path: Path) -> None:
    from ldlm_monitor.finished.playback.timed_inputs import of_recording

    record = tmp_path / "run.ldlm"
    daemon = run(record=record)
    daemon.until_metric(f'ldlm_train_step{{run="{RUN}"}} 19')
    daemon.close()
    assert of_recording(record, daemon.settings, tmp_path)
