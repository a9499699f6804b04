"""Who is told of what: the route tree, inhibition, matchers, in Alertmanager's semantics."""

import pytest

from ldlm_monitor.config.routing import InhibitRule, Route
from ldlm_monitor.config.time_intervals import TimeInterval
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.errors import ConfigError
from ldlm_monitor.model.matchers import parse_matcher
from ldlm_monitor.notify.routing import Routing

RECEIVERS = ("slack", "webhook", "apprise discord", "apprise ntfy")
CRASH = {"severity": "critical", "run": "a", "rank": "3"}


def routes(tree: dict, labels: dict[str, str], alert: str = "TrainingCrashed") -> list[str]:
    """`receiver < route` of each placement."""
    routing = Routing(RECEIVERS, Route.model_validate(tree))
    found = routing.placements(alert, labels, "7")
    return [f"{each.receiver} < {each.route.key}" for each in found]


def test_without_a_configuration_everybody_is_told_of_everything():
    assert routes({}, CRASH) == [f"{receiver} < route" for receiver in RECEIVERS]


def test_an_alert_goes_to_the_first_route_below_whose_matchers_hold():
    tree = {
        "receiver": "webhook",
        "routes": [
            {"matchers": ['severity="critical"', "run=~a|b"], "receiver": "slack"},
            {"matchers": ['severity="critical"'], "receiver": "apprise"},
        ],
    }
    assert routes(tree, CRASH) == ["slack < route.routes[0]"]
    assert routes(tree, {**CRASH, "run": "c"}) == [
        "apprise discord < route.routes[1]",
        "apprise ntfy < route.routes[1]",
    ]
    assert routes(tree, {**CRASH, "severity": "warning"}) == ["webhook < route"]


def test_with_continue_the_routes_behind_are_asked_too():
    critical = {"matchers": ["severity=critical"], "receiver": "slack"}
    by_name = {"matchers": ["alertname=TrainingCrashed"], "receiver": "webhook"}
    assert routes({"routes": [{**critical, "continue": True}, by_name]}, CRASH) == [
        "slack < route.routes[0]",
        "webhook < route.routes[1]",
    ]
    assert routes({"routes": [critical, by_name]}, CRASH) == ["slack < route.routes[0]"]


def test_the_deepest_route_that_holds_takes_the_alert_with_what_it_has_from_its_parents():
    tree = {
        "group_interval": "1m",
        "routes": [
            {
                "matchers": ["run=a"],
                "receiver": "slack",
                "group_by": ["alertname"],
                "mute_time_intervals": ["nights"],
                "routes": [{"matchers": ["severity=critical"], "group_wait": "10s"}],
            }
        ],
    }
    nights = TimeInterval.model_validate(
        {
            "name": "nights",
            "time_intervals": [{"times": [{"start_time": "00:00", "end_time": "24:00"}]}],
        }
    )
    routing = Routing(RECEIVERS, Route.model_validate(tree), (), [nights])
    (deep,) = routing.placements("X", CRASH, "7")
    assert (deep.receiver, deep.route.key) == ("slack", "route.routes[0].routes[0]")
    assert deep.route.group_by == ("alertname",)
    assert (deep.route.group_wait, deep.route.group_interval) == (10.0, 60.0)
    (shallow,) = routing.placements("X", {**CRASH, "severity": "error"}, "7")
    assert routing.is_muted(shallow.route.key, 0.0)
    assert not routing.is_muted(deep.route.key, 0.0), "quiet hours are not handed down"


def test_quiet_hours_of_the_root_are_those_of_what_no_route_takes_and_of_the_digest():
    always = TimeInterval.model_validate({"name": "always", "time_intervals": [{}]})
    tree = {"mute_time_intervals": ["always"], "routes": [{"matchers": ["severity=critical"]}]}
    routing = Routing(("slack",), Route.model_validate(tree), (), [always])

    def is_told(severity: str) -> bool:
        (found,) = routing.placements("X", {"severity": severity}, "7")
        return not routing.is_muted(found.route.key, 0.0)

    assert [is_told(each) for each in ("critical", "error", "info")] == [True, False, False]


def test_outside_of_its_active_times_a_route_is_muted():
    morning = {"times": [{"start_time": "06:00", "end_time": "12:00"}]}
    office = TimeInterval.model_validate({"name": "office", "time_intervals": [morning]})
    tree = Route.model_validate({"active_time_intervals": ["office"]})
    routing = Routing(("slack",), tree, (), [office])
    assert [routing.is_muted("route", hour * 3600.0) for hour in (5, 6, 11, 12)] == [
        True, False, False, True,
    ]  # fmt: skip


def test_a_receiver_none_keeps_an_alert_from_all():
    tree = {"routes": [{"matchers": ["alertname=LossSpike"], "receiver": "none"}]}
    assert routes(tree, CRASH, alert="LossSpike") == []


def test_a_route_to_somebody_unknown_is_refused_in_one_line():
    with pytest.raises(ConfigError) as refused:
        routes({"routes": [{"matchers": ["run=a"], "receiver": "slakc"}]}, CRASH)
    assert str(refused.value) == (
        'route.routes[0].receiver: no receiver "slakc" is configured; '
        "known: slack, webhook, apprise discord, apprise ntfy, all, none"
    )


def group(group_by: list[str], **labels: str) -> str:
    routing = Routing(("slack",), Route(group_by=tuple(group_by)))
    return routing.placements("A", {**CRASH, **labels}, labels.pop("incident", "7"))[0].group


@pytest.mark.parametrize(
    ("group_by", "same", "other"),
    [
        (["incident"], {"rank": "9"}, {"incident": "8"}),
        (["run"], {"rank": "9", "incident": "8"}, {"run": "b"}),
        (["..."], {}, {"rank": "9"}),
        (["missing"], {"run": "b"}, {"missing": "x"}),
    ],
)
def test_alerts_are_told_together_that_have_the_same_group_labels(group_by, same, other):
    assert group(group_by, **same) == group(group_by)
    assert group(group_by, **other) != group(group_by)


def test_with_no_group_labels_all_are_told_together():
    assert group([]) == group([], run="b", incident="8")


def test_info_is_collected_for_a_digest_unless_a_route_takes_it():
    info = {**CRASH, "severity": "info"}
    (told,) = Routing(("slack",), Route()).placements("A", info, "7")
    assert (told.route.key, told.route.group_wait, told.group) == ("digest", 3600.0, "{}")
    (told,) = Routing(("slack",), Route(digest_interval=0)).placements("A", info, "7")
    assert told.route.key == "route"
    taken = Route.model_validate({"routes": [{"matchers": ["severity=info"]}]})
    (told,) = Routing(("slack",), taken).placements("A", info, "7")
    assert told.route.key == "route.routes[0]"


def fires(alert: str, state: str = "firing", **labels: str) -> Transition:
    return Transition(
        time=0.0, alert=alert, state=state, previous="inactive", reason="", labels=labels,
        value=1.0, active_at=0.0,
    )  # fmt: skip


RULE = InhibitRule.model_validate(
    {
        "source_matchers": ["alertname=TrainingCrashed"],
        "target_matchers": ["severity=~warning|critical"],
        "equal": ["run"],
    }
)


def test_a_target_is_kept_back_while_a_source_with_equal_labels_fires():
    routing = Routing(("slack",), inhibit_rules=[RULE])
    slow = {"severity": "warning", "run": "a"}
    assert not routing.is_inhibited("ThroughputDrop", slow)
    routing.note(fires("TrainingCrashed", run="a", severity="critical"))
    assert routing.is_inhibited("ThroughputDrop", slow)
    assert not routing.is_inhibited("ThroughputDrop", {**slow, "run": "b"})
    assert not routing.is_inhibited("ThroughputDrop", {**slow, "severity": "error"})
    routing.note(fires("TrainingCrashed", "ended", run="a", severity="critical"))
    assert not routing.is_inhibited("ThroughputDrop", slow)


def test_what_is_source_and_target_does_not_inhibit_itself():
    routing = Routing(("slack",), inhibit_rules=[RULE])
    crash = {"run": "a", "severity": "critical"}
    routing.note(fires("TrainingCrashed", **crash))
    assert not routing.is_inhibited("TrainingCrashed", crash)


def test_labels_that_both_lack_are_equal():
    rule = RULE.model_copy(update={"equal": ("node",)})
    routing = Routing(("slack",), inhibit_rules=[rule])
    routing.note(fires("TrainingCrashed", run="a", severity="critical"))
    assert routing.is_inhibited("LossSpike", {"severity": "warning", "run": "b"})
    assert not routing.is_inhibited("LossSpike", {"severity": "warning", "node": "n1"})


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
