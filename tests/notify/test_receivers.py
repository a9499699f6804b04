"""The receivers that the settings name, each with its policy."""

import pytest

from ldlm_monitor.config import Settings
from ldlm_monitor.model.errors import ConfigError
from ldlm_monitor.notify.receivers import group_policies, receivers, single_policies

BOT = {"bot_token": "xoxb-12345678", "channel": "C1"}


def settings(**tables: dict) -> Settings:
    return Settings.model_validate(tables)


def test_each_channel_of_a_bot_is_a_receiver_with_a_policy_of_its_own():
    more = {"C2": {"min_severity": "critical"}}
    given = settings(slack={**BOT, "min_severity": "error", "channels": more})
    known = list(receivers(given))
    policies = group_policies(given, known)
    assert {name: policy.min_severity for name, policy in policies.items()} == {
        "slack": "error",
        "slack:C2": "critical",
    }


def test_a_webhook_gets_single_notifications_by_its_own_policy():
    given = settings(webhook={"url": "https://example.org/a", "min_severity": "warning"})
    known = list(receivers(given))
    assert [each.name for each in known] == ["webhook"]
    assert group_policies(given, known) == {}
    assert single_policies(given)["webhook"].min_severity == "warning"


def test_more_channels_without_a_bot_are_refused():
    url = "https://hooks.slack.com/services/T/B/x"
    given = settings(slack={"webhook_url": url, "channels": {"C2": {}}})
    with pytest.raises(ConfigError, match=r"slack.channels: more channels need a bot; set slack"):
        list(receivers(given))
