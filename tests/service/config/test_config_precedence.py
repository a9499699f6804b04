"""Where a setting's value comes from."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.service.config import Settings, load


def test_without_any_source_the_defaults_hold() -> None:
    settings = load({})
    assert settings.model_fields_set == set()
    assert (settings.interval, settings.evaluation_interval, settings.fail_on) == (
        10,
        5,
        "critical",
    )
    assert (settings.stall.floor_seconds, settings.stall.startup_seconds) == (30, 600)
    assert settings.companions
    assert settings.rules == ()


def test_flag_beats_environment_beats_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ldlm-monitor.toml").write_text(
        'interval = 1\nrun = "file"\nlog_format = "json"\n', encoding="utf-8"
    )
    monkeypatch.setenv("LDLM_INTERVAL", "2")
    monkeypatch.setenv("LDLM_RUN", "environment")
    settings = load({"interval": "3"})
    assert (settings.interval, settings.run, settings.log_format) == (3, "environment", "json")


def test_the_keys_of_a_table_are_merged_one_by_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "ldlm-monitor.toml").write_text(
        "[stall]\nfloor_seconds = 40\nlimit_seconds = { evaluating = 900 }\n", encoding="utf-8"
    )
    monkeypatch.setenv("LDLM_STALL_STARTUP_SECONDS", "1200")
    monkeypatch.setenv("LDLM_STALL_FLOOR_SECONDS", "50")
    stall = load({}).stall
    assert (stall.floor_seconds, stall.startup_seconds) == (50, 1200)
    assert stall.limit_seconds == {"evaluating": 900}


def test_a_variable_lists_paths_as_PATH_does_and_limits_as_pairs(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LDLM_FILES", "a.log:logs/*.log")
    monkeypatch.setenv("LDLM_RULES", "mine.yml")
    monkeypatch.setenv("LDLM_STALL_LIMIT_SECONDS", "evaluating=900,checkpointing=1800")
    monkeypatch.setenv("LDLM_ALLOWED_HOSTS", "monitor.lan:gpu-07")
    monkeypatch.setenv("LDLM_EXTERNAL_LABELS", "cluster=a,job_id=4711")
    settings = load({})
    assert settings.external_labels == {"cluster": "a", "job_id": "4711"}
    assert settings.allowed_hosts == ("monitor.lan", "gpu-07")
    assert settings.files == ("a.log", "logs/*.log")
    assert settings.rules == (Path("mine.yml"),)
    assert settings.stall.limit_seconds == {"evaluating": 900, "checkpointing": 1800}


def test_an_empty_variable_is_as_if_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDLM_INTERVAL", "")
    assert load({}).interval == 10


def test_the_file_can_be_named_by_flag_or_variable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "one.toml").write_text("interval = 1\n", encoding="utf-8")
    (folder / "two.toml").write_text("interval = 2\n", encoding="utf-8")
    monkeypatch.setenv("LDLM_CONFIG", "two.toml")
    assert load({}).interval == 2
    assert load({}, path=Path("one.toml")).interval == 1


def test_relative_paths_of_a_file_are_relative_to_its_folder(folder: Path) -> None:
    (folder / "etc").mkdir()
    (folder / "etc/monitor.toml").write_text(
        'files = ["logs/*.log", "/var/log/train.log", "-"]\nrules = ["mine.yml"]\n'
        'state_dir = "state"\n[slack]\nwebhook_url_file = "url"\n',
        encoding="utf-8",
    )
    settings = load({}, path=folder / "etc/monitor.toml")
    assert settings.files == (f"{folder}/etc/logs/*.log", "/var/log/train.log", "-")
    assert settings.rules == (folder / "etc/mine.yml",)
    assert settings.state_dir == folder / "etc/state"
    assert settings.slack.webhook_url_file == folder / "etc/url"


def test_an_address_that_was_asked_for_differs_from_the_default() -> None:
    """A taken default gives way to the next free port; a taken wish is an error."""
    assert "listen" not in load({}).model_fields_set
    assert "listen" in load({"listen": "127.0.0.1:9847"}).model_fields_set


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:9847", ("127.0.0.1", 9847)),
        ("[::1]:0", ("::1", 0)),
        ("gpu-07:80", ("gpu-07", 80)),
    ],
)
def test_an_address_is_host_and_port(listen: str, address: tuple[str, int]) -> None:
    assert load({"listen": listen}).listen_address == address


def test_settings_made_directly_read_nothing_else_and_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LDLM_INTERVAL", "2")
    settings = Settings(files=("a.log",))
    assert settings.interval == 10
    with pytest.raises(ValidationError, match="frozen"):
        settings.interval = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", ["run", "severity", "__address__", "gpu-type", "2nd"])
def test_a_label_that_is_none_or_is_taken_already_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="should"):
        load({"external_labels": {name: "a"}})


@pytest.mark.parametrize(
    "url",
    ["monitor.lan", "ftp://m.lan", "https://m.lan/?a", "https://u:p@m.lan", "https://m.lan/|"],
)
def test_the_address_for_people_is_a_url_to_which_a_path_can_be_added(url: str) -> None:
    with pytest.raises(ConfigError, match="should"):
        load({"external_url": url})
    assert load({"external_url": "https://m.lan/ldlm/"}).external_url == "https://m.lan/ldlm"


@pytest.mark.parametrize("name", ["http://monitor.lan", "monitor.lan:9847", "*", "", "a b"])
def test_an_allowed_host_is_a_name_without_scheme_and_port(name: str) -> None:
    with pytest.raises(ConfigError, match="should be a host's name"):
        load({"allowed_hosts": (name,)})
