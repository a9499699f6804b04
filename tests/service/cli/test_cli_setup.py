"""What a new user sets up by one command each: configuration, boards, service, completion."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.service.config import load

Ask = Callable[..., Any]


def test_init_names_the_logs_that_are_there(ask: Ask, folder: Path, examples: Path) -> None:
    shutil.copytree(examples, folder / "train_logs")
    (folder / "requirements.txt").write_text("numpy\n")
    (folder / "odd [1]").mkdir()
    (folder / "odd [1]/run.out").write_text("nothing of ours\n")
    answer = ask("init")
    assert (answer.code, answer.err) == (0, "")
    assert "train_logs/*.log: 3 files, the newest is mm" in answer.out.lower().replace("-", "")
    assert "Slack: no webhook" in answer.out
    names = ("odd [[]1]/*.out", "train_logs/*.log")
    assert {os.path.relpath(name, folder) for name in load({}).files} == set(names)
    assert "train_20261121_083451" in ask("--once", "--fail-on", "never").out


def test_init_without_a_log_names_where_one_may_come(ask: Ask, folder: Path) -> None:
    assert "no log found here" in ask("init").out
    assert [Path(name).parent.name for name in load({}).files] == ["train_logs"]


def test_init_uses_a_file_with_slacks_url(ask: Ask, folder: Path) -> None:
    (folder / "slack-webhook.url").touch(mode=0o600)
    (folder / "slack-webhook.url").write_text("https://hooks.slack.com/services/x")
    assert "Slack: slack-webhook.url is used" in ask("init").out
    assert load({}).slack.webhook_url_file is not None


def test_init_leaves_a_configuration_as_it_is(ask: Ask, folder: Path) -> None:
    (folder / "ldlm-monitor.toml").write_text("interval = 3\n")
    answer = ask("init")
    assert answer.code == 2
    assert answer.err.startswith("ldlm-monitor: ldlm-monitor.toml: is there already; ")
    assert (folder / "ldlm-monitor.toml").read_text() == "interval = 3\n"


def test_the_boards_are_written_into_a_folder(ask: Ask, folder: Path) -> None:
    answer = ask("dashboards", "export", "new/boards")
    ours = Path(__file__).resolve().parents[3] / "dashboards"
    written = {path.name: path.read_text("utf-8") for path in (folder / "new/boards").iterdir()}
    assert written == {path.name: path.read_text("utf-8") for path in ours.glob("*.json")}
    assert answer.out.splitlines() == [f"new/boards/{name}" for name in sorted(written)]


def test_boards_that_cannot_be_written_are_said_so(ask: Ask, folder: Path) -> None:
    (folder / "a").touch()
    answer = ask("dashboards", "export", "a")
    assert (answer.code, answer.err.count("\n")) == (2, 1)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_unit_of_a_folder_with_odd_letters(
    ask: Ask, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = folder / "50% ü $HOME"
    odd.mkdir()
    monkeypatch.chdir(odd)
    unit = folder / "ldlm-monitor.service"
    unit.write_text(ask("service", "install", "--print", 'a "b" $c.log', "logs").out)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", unit], capture_output=True, text=True, check=False
    )
    assert "ldlm-monitor.service" not in done.stderr
    assert f"WorkingDirectory={folder}/50%% ü $HOME\n" in unit.read_text()
    assert '"a \\"b\\" $$c.log" "logs"\n' in unit.read_text()


def test_a_service_that_cannot_be_installed_leaves_nothing(
    ask: Ask, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's systemd is asked: it is sought where none can be."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={folder}/none")
    answer = ask("service", "install", "logs")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert ask("service", "uninstall").err.endswith("ldlm-monitor.service: is not installed\n")


def test_a_service_without_a_log_to_follow_is_refused(ask: Ask) -> None:
    assert "no file is named" in ask("service", "install").err


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, which needs root")
@pytest.mark.parametrize("words", [("service", "install", "x.log"), ("--install-completion",)])
def test_a_user_without_home_and_name_is_answered_in_a_line_and_gets_no_folder(
    words: tuple[str, ...],
) -> None:
    nobody = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
    plain = {"PATH": os.environ["PATH"], "SHELL": "/bin/bash"}
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        command = [*nobody, sys.executable, "-m", "ldlm_monitor", *words]
        done = subprocess.run(command, cwd=name, env=plain, capture_output=True, check=False)
        if b"No module named" in done.stderr or b"Permission denied\n" in done.stderr:
            pytest.skip("that user may not read the program")
        assert os.listdir(name) == []
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"a bug of ours" not in done.stderr
