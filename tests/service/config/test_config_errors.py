"""A setting that cannot be used is answered in one line: where, what, remedy."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.service.config import Settings, load


def complaint(flags: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as raised:
        load(flags or {})
    error = raised.value
    assert error.where
    assert error.remedy
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("intervall = 3", "intervall: unknown key; did you mean interval?"),
        ("interval = 0", 'interval: "0" should be greater than 0; for example interval = 10'),
        ('interval = "x"', 'interval: "x" should be a number; for example interval = 10'),
        ("interval = true", 'interval: "true" should be a number; for example interval = 10'),
        ("interval = nan", 'interval: "nan" should be a finite number; for example interval = 10'),
        ("headless = 7", 'headless: "7" should be true or false; for example headless = true'),
        (
            'fail_on = "bad"',
            (
                "fail_on: \"bad\" should be 'critical', 'error', 'warning' or 'never'; "
                'for example fail_on = "error"'
            ),
        ),
        (
            'listen = "9847"',
            'listen: "9847" should be HOST:PORT; for example listen = "127.0.0.1:9847"',
        ),
        (
            'file_sd = "targets"',
            (
                'file_sd: "targets" should be a file whose name ends in .json; '
                'for example file_sd = "/shared/file_sd/node17.json"'
            ),
        ),
        ("rules = 3", 'rules: "3" should be a list; for example rules = ["rules/mine.yml"]'),
        ("rules = [3]", 'rules[0]: "3" should be a path; for example rules = ["rules/mine.yml"]'),
        (
            "stall = 3",
            ('stall: "3" should be a table; for example [stall] and below it floor_seconds = 30'),
        ),
        (
            "[stall]\nflor_seconds = 3",
            "stall.flor_seconds: unknown key; did you mean stall.floor_seconds?",
        ),
        (
            "[stall]\nzzz = 3",
            (
                "stall.zzz: unknown key; known: stall.floor_seconds, stall.limit_seconds, "
                "stall.startup_seconds"
            ),
        ),
        (
            "[stall]\nlimit_seconds = { evaluating = -4 }",
            (
                'stall.limit_seconds.evaluating: "-4" should be greater than 0; '
                "for example limit_seconds = { evaluating = 900 }"
            ),
        ),
        (
            '[slack]\nbot_token = "xoxb-1"',
            (
                "slack.bot_token: a secret does not belong in this file; "
                "set LDLM_SLACK_BOT_TOKEN, or name a file in slack.bot_token_file"
            ),
        ),
        (
            '[webhook]\nmatchers = ["severity"]',
            (
                'webhook.matchers[0]: "severity" should be a matcher such as severity="critical"; '
                "for example matchers = ['run!~\"debug.*\"']"
            ),
        ),
        (
            '[slack]\nquiet_hours = "22:00-7:00"',
            (
                'slack.quiet_hours: "22:00-7:00" should be two different times and a zone, as'
                " 22:00-07:00 Europe/Berlin;"
                ' for example quiet_hours = "22:00-07:00 Europe/Berlin"'
            ),
        ),
        (
            '[slack.channels.C0ONCALL]\nmin_sverity = "error"',
            (
                "slack.channels.C0ONCALL.min_sverity: unknown key; "
                "did you mean slack.channels.C0ONCALL.min_severity?"
            ),
        ),
        (
            '[slack]\nwebhook_url = "https://hooks.slack.com/services/T/B/x"',
            (
                "slack.webhook_url: a secret does not belong in this file; "
                "set LDLM_SLACK_WEBHOOK_URL, or name a file in slack.webhook_url_file"
            ),
        ),
    ],
)
def test_a_wrong_key_of_the_file_is_named_with_a_remedy(folder: Path, text: str, line: str) -> None:
    (folder / "ldlm-monitor.toml").write_text(text + "\n", encoding="utf-8")
    where, _, rest = complaint().partition(": ")
    assert rest == line
    names_line = "secret" not in line  # such a key may stand in a table within a line
    assert where == "ldlm-monitor.toml" + (f":{text.count(chr(10)) + 1}" if names_line else "")


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("LDLM_INTERVAL", "x", '"x" should be a number; for example LDLM_INTERVAL=10'),
        (
            "LDLM_HEADLESS",
            "perhaps",
            ('"perhaps" should be true or false; for example LDLM_HEADLESS=true'),
        ),
        ("LDLM_STALL_FLOR_SECONDS", "3", "unknown key; did you mean LDLM_STALL_FLOOR_SECONDS?"),
        ("LDLM_STALL", "3", '"3" should be a table; for example LDLM_STALL_FLOOR_SECONDS=30'),
    ],
)
def test_a_wrong_variable_is_named_as_it_is_spelled(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, line: str
) -> None:
    monkeypatch.setenv(name, value)
    assert complaint() == f"{name}: {line}"


MOVED = (
    "route trees, inhibition and time intervals are Alertmanager's; give them to the Alertmanager"
    " of alertmanager.urls, as in deploy/fleet/alertmanager.yml, or set matchers, min_severity and"
    " quiet_hours of [slack], [webhook] or [apprise]"
)


@pytest.mark.parametrize("key", ["route", "inhibit_rules", "time_intervals"])
def test_what_went_to_alertmanager_is_refused_with_one_line_that_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    text = f'[{key}]\nreceiver = "slack"\n' if key == "route" else f"[[{key}]]\nname = 1\n"
    (folder / "ldlm-monitor.toml").write_text(text, encoding="utf-8")
    assert complaint() == f"ldlm-monitor.toml: {key}: {MOVED}"
    (folder / "ldlm-monitor.toml").unlink()
    monkeypatch.setenv(f"LDLM_{key}_X".upper(), "1")
    assert complaint() == f"LDLM_{key}_X: ".upper() + MOVED


def test_a_wrong_flag_is_named_as_it_is_spelled() -> None:
    assert complaint({"interval": "-1"}) == (
        '--interval: "-1" should be greater than 0; for example --interval 10'
    )


def test_the_source_that_won_is_blamed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ldlm-monitor.toml").write_text("interval = 1\n", encoding="utf-8")
    monkeypatch.setenv("LDLM_INTERVAL", "x")
    assert complaint().startswith("LDLM_INTERVAL: ")


def test_a_secret_is_never_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDLM_SLACK_WEBHOOK_URL", "hooks.slack.com/services/T0/B0/sesame")
    text = complaint()
    assert "sesame" not in text
    assert text.startswith("LDLM_SLACK_WEBHOOK_URL: should be a URL")


def test_a_secret_does_not_show_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDLM_SLACK_WEBHOOK_URL", "https://hooks.slack.com/services/sesame")
    settings = load({})
    assert "sesame" not in f"{settings!r} {settings.model_dump_json()}"
    assert settings.slack.secret() == "https://hooks.slack.com/services/sesame"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LDLM_INTERVALL", "LDLM_INTERVAL"),
        ("LDLM_SLAK_CHANNEL", "LDLM_SLACK_CHANNEL"),
        ("LDLM_STATEDIR", "LDLM_STATE_DIR"),
        ("ldlm_confg", "LDLM_CONFIG"),
    ],
)
def test_a_mistyped_variable_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "1")
    assert complaint() == f"{name}: unknown variable; did you mean {meant}?"


@pytest.mark.parametrize("name", ["LDLM_FAULTS", "LDLM_DATA", "LDLM_RUN_DIR", "LDLM_SEED"])
def test_a_variable_of_the_training_is_let_be(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    assert load({}) == Settings()


def test_a_table_of_no_setting_is_named_with_its_line(folder: Path) -> None:
    (folder / "ldlm-monitor.toml").write_text("run = 'a'\n\n[slak]\nchannel = 'x'\n")
    assert complaint() == "ldlm-monitor.toml:3: slak: unknown key; did you mean slack?"


def test_a_byte_order_mark_is_no_error(folder: Path) -> None:
    (folder / "ldlm-monitor.toml").write_text("run = 'a'\n", "utf-8-sig")
    assert load({}).run == "a"


def test_nesting_without_end_is_no_bug_of_ours(folder: Path) -> None:
    (folder / "ldlm-monitor.toml").write_text("files = " + "[" * 20_000)
    assert "is not TOML" in complaint()


def test_a_folder_in_the_files_place_is_said(folder: Path) -> None:
    (folder / "ldlm-monitor.toml").mkdir()
    assert "Is a directory" in complaint()


def test_a_file_that_is_not_toml_is_said_so(folder: Path) -> None:
    (folder / "ldlm-monitor.toml").write_text("interval = \n", encoding="utf-8")
    assert complaint().startswith("ldlm-monitor.toml: is not TOML: ")


def test_a_file_that_is_not_text_is_said_so(folder: Path) -> None:
    (folder / "ldlm-monitor.toml").write_bytes(b'run = "\xff"\n')
    assert "not UTF-8" in complaint()


def test_a_file_that_was_named_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDLM_CONFIG", "no.toml")
    assert complaint() == (
        "no.toml: cannot be read (No such file or directory); "
        "mend it, or name a TOML file with --config PATH"
    )


def test_a_folder_is_no_configuration_file(folder: Path) -> None:
    (folder / "etc").mkdir()
    with pytest.raises(
        ConfigError, match=r"^etc: cannot be read \(Is a directory\); .* a TOML file"
    ):
        load({}, path=Path("etc"))


def test_a_run_has_a_name(folder: Path) -> None:
    assert complaint({"run": " "}) == '--run: " " should not be blank; for example --run gpt2-small'


def write_secret(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def test_the_webhook_may_stand_in_a_file(folder: Path) -> None:
    write_secret(folder / "url", "https://hooks.slack.com/services/T/B/x\n")
    settings = load({"slack": {"webhook_url_file": "url"}})
    assert settings.slack.secret() == "https://hooks.slack.com/services/T/B/x"
    assert load({}).slack.secret() is None


@pytest.mark.parametrize("text", ["", "not a URL", "https://a https://b"])
def test_a_webhook_file_without_one_url_is_an_error(folder: Path, text: str) -> None:
    write_secret(folder / "url", text)
    with pytest.raises(ConfigError, match="holds no URL"):
        load({"slack": {"webhook_url_file": "url"}}).slack.secret()


SECRET_FILES: dict[str, Callable[[Settings], object]] = {
    "slack.webhook_url_file": lambda settings: settings.slack.secret(),
    "alertmanager.authorization_file": lambda settings: settings.alertmanager.authorization(),
    "webhook.url_file": lambda settings: settings.webhook.target(),
    "webhook.secret_file": lambda settings: settings.webhook.secret(),
    "apprise.urls_file": lambda settings: settings.apprise.urls(),
    "heartbeat.url_file": lambda settings: settings.heartbeat.target(),
    "attach.token_file": lambda settings: settings.attach.bearer(),
    "attach.password_file": lambda settings: settings.attach.password(),
}


@pytest.mark.parametrize("key", SECRET_FILES)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_of_secrets_that_others_may_read_or_write_is_refused_in_one_line(
    folder: Path, key: str, mode: int
) -> None:
    write_secret(folder / "secret", "https://example.org/hunter2", mode)
    section, name = key.split(".")
    with pytest.raises(ConfigError) as refused:
        SECRET_FILES[key](load({section: {name: "secret"}}))
    assert str(refused.value) == (
        f"{key}: secret: is a secret that others may read (mode {mode:04o}); chmod 600 secret"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(("mode", "taken"), [(0o440, True), (0o400, True), (0o444, False)])
def test_a_secret_that_somebody_else_mounts_for_us_may_be_read_by_our_group(
    folder: Path, mode: int, taken: bool
) -> None:
    write_secret(folder / "token", "hunter2-hunter2", mode)
    os.chown(folder / "token", 65534, -1)
    attach = load({"attach": {"token_file": "token"}}).attach
    if taken:
        assert attach.bearer() == "hunter2-hunter2"
    else:
        with pytest.raises(ConfigError, match=r"mode 0444\); chmod o-rwx,g-w token"):
            attach.bearer()


@pytest.mark.parametrize(
    ("section", "key"),
    [("slack", "webhook_url"), ("webhook", "url"), ("heartbeat", "url"), ("attach", "token")],
)
def test_a_secret_is_refused_in_the_file_and_shown_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, section: str, key: str
) -> None:
    (folder / "ldlm-monitor.toml").write_text(f'[{section}]\n{key} = "https://hunter2"\n')
    with pytest.raises(ConfigError, match="does not belong in this file") as refused:
        load({})
    (folder / "ldlm-monitor.toml").unlink()
    monkeypatch.setenv(f"LDLM_{section}_{key}".upper(), "https://hunter2")
    settings = load({})
    shown = (str(refused.value), repr(settings), str(settings), settings.model_dump_json())
    assert not any("hunter2" in text for text in shown)


def test_a_secret_that_cannot_be_used_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDLM_HEARTBEAT_URL", "ftp://hunter2")
    with pytest.raises(ConfigError) as refused:
        load({})
    chain = traceback.format_exception(refused.value)
    assert "should be a URL that begins with https://" in str(refused.value)
    assert not any("hunter2" in line for line in chain)


def test_a_webhook_file_that_is_missing_is_an_error() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load({"slack": {"webhook_url_file": "url"}}).slack.secret()
