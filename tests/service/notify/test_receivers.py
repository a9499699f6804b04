"""The receivers that the settings name, each with its policy."""

import pytest

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.notify.policy import Policy
from ldlm_monitor.service.notify.receivers import receivers_of

BOT = {"bot_token": "xoxb-12345678", "channel": "C1"}


def settings(**tables: dict) -> Settings:
    return Settings.model_validate(tables)


def test_each_channel_of_a_bot_is_a_receiver_with_a_policy_of_its_own():
    more = {"C2": {"min_severity": "critical"}}
    given = settings(slack={**BOT, "min_severity": "error", "channels": more})
    known = receivers_of(given.receivers)
    assert {each.name: each.policy.min_severity for each in known} == {
        "slack": "error",
        "slack:C2": "critical",
    }


def test_a_webhook_gets_single_notifications_by_its_own_policy():
    given = settings(webhook={"url": "https://example.org/a", "min_severity": "warning"})
    (webhook,) = receivers_of(given.receivers)
    assert webhook.name == "webhook"
    assert webhook.policy.min_severity == "warning"
    assert not isinstance(webhook.policy, Policy)


def test_more_channels_without_a_bot_are_refused():
    url = "https://hooks.slack.com/services/T/B/x"
    given = settings(slack={"webhook_url": url, "channels": {"C2": {}}})
    with pytest.raises(ConfigError, match=r"slack.channels: more channels need a bot; set slack"):
        list(receivers_of(given.receivers))
