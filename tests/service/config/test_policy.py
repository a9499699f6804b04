"""The policy of a receiver: matchers, least severity, quiet hours."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from ldlm_monitor.base.alert import parse_matcher
from ldlm_monitor.service.config import Settings, load
from ldlm_monitor.service.notify.policy import Policy, QuietHours, StreamPolicy, parse_quiet_hours

CRASH = {"severity": "critical", "run": "a", "rank": "3"}


def is_quiet(hours: str, moment: str) -> bool:
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()
    return StreamPolicy(quiet_hours=hours).is_quiet(at)


@pytest.mark.parametrize("severity", ["critical", "error", "warning", "info", "none", "page", None])
def test_by_default_a_receiver_gets_everything_whatever_its_severity(severity):
    labels = {"run": "a"} if severity is None else {"run": "a", "severity": severity}
    assert Policy().accepts("NonFiniteLoss", labels)


@pytest.mark.parametrize(
    ("least", "accepted"),
    [
        ("critical", ["critical"]),
        ("error", ["critical", "error"]),
        ("warning", ["critical", "error", "warning"]),
        ("info", ["critical", "error", "warning", "info", "page"]),
    ],
)
def test_the_least_severity_is_the_last_that_is_sent(least, accepted):
    policy = StreamPolicy(min_severity=least)
    severities = ("critical", "error", "warning", "info", "page")
    assert [each for each in severities if policy.accepts("A", {"severity": each})] == accepted


@pytest.mark.parametrize(
    ("matchers", "accepted"),
    [
        (["run=a"], True),
        (["run=a", 'severity="critical"'], True),
        (["run=a", 'severity="info"'], False),
        (['run!~"debug.*|a"'], False),
        (["alertname=TrainingCrashed"], True),
        ('alertname=~"Training.*"', True),
        (['node=""'], True),
    ],
)
def test_all_matchers_must_hold_on_the_labels_and_the_name(matchers, accepted):
    assert StreamPolicy(matchers=matchers).accepts("TrainingCrashed", CRASH) is accepted


@pytest.mark.parametrize(
    ("hours", "quiet", "loud"),
    [
        ("22:00-07:00", "2026-01-30 22:00:00", "2026-01-30 21:59:59"),
        ("22:00-07:00", "2026-01-30 06:59:59", "2026-01-30 07:00:00"),
        ("12:00-13:00 UTC", "2026-01-30 12:59:59", "2026-01-30 13:00:00"),
        ("09:00-10:00 Europe/Berlin", "2026-07-01 07:30", "2026-07-01 08:30"),
        ("09:00-10:00 Europe/Berlin", "2026-12-01 08:30", "2026-12-01 07:30"),
    ],
)
def test_quiet_hours_are_a_part_of_each_day_at_their_place(hours, quiet, loud):
    assert is_quiet(hours, quiet)
    assert not is_quiet(hours, loud)


def test_critical_alerts_do_not_wait_unless_that_is_asked_for():
    severities = ("critical", "error", "info", "page")
    assert [StreamPolicy().waits_in_quiet_hours(each) for each in severities] == [
        False, True, True, True,
    ]  # fmt: skip
    assert all(StreamPolicy(quiet_max_severity="critical").waits_in_quiet_hours(each)
               for each in severities)  # fmt: skip


@pytest.mark.parametrize(
    "wrong", ["22:00", "22:00-24:00", "7:00-8:00", "07:00-07:00", "22:00-07:00 Berlin", 7, True]
)
def test_what_are_no_quiet_hours_is_refused(wrong):
    with pytest.raises(ValidationError, match="should"):
        StreamPolicy(quiet_hours=wrong)


def test_parsed_quiet_hours_are_taken_as_they_are():
    hours = QuietHours(60, 120)
    assert parse_quiet_hours(hours) is hours


def test_each_receiver_has_its_policy_by_file_or_variable(folder, monkeypatch):
    (folder / "ldlm-monitor.toml").write_text(
        '[slack]\nmin_severity = "warning"\nrepeat_interval_seconds = 60\n'
        '[slack.channels.C0ONCALL]\nmin_severity = "critical"\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("LDLM_WEBHOOK_MATCHERS", 'run="a,b",severity!=info')
    monkeypatch.setenv("LDLM_APPRISE_QUIET_HOURS", "22:00-07:00")
    settings = load({})
    assert settings.slack.min_severity == "warning"
    assert settings.slack.channels["C0ONCALL"].min_severity == "critical"
    assert [each.value for each in settings.webhook.matchers] == ["a,b", "info"]
    assert settings.apprise.quiet_hours == QuietHours(22 * 60, 7 * 60)


def test_a_variable_holds_the_channels_as_json(monkeypatch):
    monkeypatch.setenv("LDLM_SLACK_CHANNELS", '{"C1": {"min_severity": "error"}}')
    assert load({}).slack.channels == {"C1": Policy(min_severity="error")}


def test_a_digest_is_repeated_once_a_day_by_default():
    policy = Settings().slack
    assert policy.repeat_seconds(digest=False) == 4 * 3600
    assert policy.repeat_seconds(digest=True) == 24 * 3600


@pytest.mark.parametrize(
    ("text", "holds", "fails"),
    [
        ('severity="critical"', "critical", "critical2"),
        ("severity = critical", "critical", ""),
        ("severity!=info", "critical", "info"),
        ('severity=~"crit.*|error"', "error", "an error"),
        ('severity!~"warn.*"', "error", "warning"),
        (r'severity="a \"b\" \\ c"', r'a "b" \ c', "a"),
        (r'severity=~"a\.b\\.c"', "a.b.c", "axb.c"),
        ('severity=""', "", "x"),
        ('severity="a,b"', "a,b", "a"),
    ],
)
def test_matchers_are_written_as_in_alertmanager(text, holds, fails):
    matcher = parse_matcher(text)
    assert matcher.holds({"severity": holds})
    assert not matcher.holds({"severity": fails})


@pytest.mark.parametrize(
    "text", ["severity", "=x", 'severity="a', '1a="b"', 'a="b", c="d"', '{a="b"}', 'a=~"("', ""]
)
def test_what_is_no_matcher_is_refused(text):
    with pytest.raises(ValueError, match=r"should be a matcher|quotes|regular expression"):
        parse_matcher(text)
