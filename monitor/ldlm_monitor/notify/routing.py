"""Who is told of which alert, in what company, and what keeps it back: no clock, no file.

The semantics of Alertmanager (dispatch/route.go, inhibit/inhibit.go, timeinterval/).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ldlm_monitor.config.routing import (
    ALL_LABELS,
    EVERYBODY,
    INCIDENT,
    NOBODY,
    InhibitRule,
    Route,
    SubRoute,
    every_route,
)
from ldlm_monitor.config.time_intervals import TimeInterval
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.errors import ConfigError
from ldlm_monitor.model.matchers import LabelMatcher, parse_matcher

T = TypeVar("T")

ROOT: Final = "route"
DIGEST: Final = "digest"
_OF_CHANNEL = ":"
"""`slack:#oncall` is a receiver only where a route names it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A route with what it has from its parents. Durations are seconds.

    `key` leads to it, as `route.routes[0]`.
    """

    key: str
    receivers: tuple[str, ...]
    group_by: tuple[str, ...]
    group_wait: float
    group_interval: float
    repeat_interval: float
    matchers: tuple[LabelMatcher, ...] = ()
    goes_on: bool = False
    muted_in: tuple[str, ...] = ()
    active_in: tuple[str, ...] = ()
    children: list[Node] = field(default_factory=list)

    def match(self, labels: Mapping[str, str]) -> list[Node]:
        """The routes that take an alert: below this one, or this one itself."""
        if not all(matcher.holds(labels) for matcher in self.matchers):
            return []
        found: list[Node] = []
        for child in self.children:
            taken = child.match(labels)
            found += taken
            if taken and not child.goes_on:
                break
        return found or [self]


@dataclass(frozen=True, slots=True)
class Placement:
    """An alert's way to one receiver: by which route, and with which others it is told."""

    receiver: str
    route: Node
    group: str


class Routing:
    """The route tree over the receivers that there are.

    `note` tells it what fires, for inhibition. Raises ConfigError for a route to a receiver
    that is not configured.
    """

    def __init__(
        self,
        receivers: Sequence[str],
        route: Route | None = None,
        inhibit_rules: Sequence[InhibitRule] = (),
        time_intervals: Sequence[TimeInterval] = (),
    ) -> None:
        self._receivers = tuple(receivers)
        self._intervals = {each.name: each for each in time_intervals}
        self._rules = tuple(inhibit_rules)
        self._firing: dict[str, dict[str, str]] = {}
        self._nodes: dict[str, Node] = {}
        self._root = self._tree(route or Route())

    def placements(self, alert: str, labels: Mapping[str, str], incident: str) -> list[Placement]:
        """Where an alert goes, each receiver once a route."""
        told = {**labels, "alertname": alert}
        found = {}
        for node in self._root.match(told):
            group = _group_of(node, {**told, INCIDENT: incident})
            for receiver in node.receivers:
                placement = Placement(receiver, node, group)
                found[receiver, node.key] = placement
        return list(found.values())

    def node(self, key: str) -> Node:
        """The route by its key; the root where the tree has changed since."""
        return self._nodes.get(key, self._root)

    def is_muted(self, key: str, now: float) -> bool:
        """Whether nothing goes by that route at `now` (Unix seconds)."""
        node = self.node(key)
        if any(self._intervals[name].holds(now) for name in node.muted_in):
            return True
        active = node.active_in
        return bool(active) and not any(self._intervals[name].holds(now) for name in active)

    def note(self, transition: Transition) -> None:
        """An alert fires, or ended: also where nobody is told of it."""
        if not self._rules:
            return
        if transition.state == "firing":
            told = {**transition.labels, "alertname": transition.alert}
            self._firing = {**self._firing, transition.key: told}
        elif transition.key in self._firing:
            self._firing = {k: v for k, v in self._firing.items() if k != transition.key}

    def is_inhibited(self, alert: str, labels: Mapping[str, str]) -> bool:
        """Whether another alert that fires makes it needless to tell of this one.

        As in Alertmanager, what is both source and target of a rule does not inhibit itself.
        """
        told = {**labels, "alertname": alert}
        return any(
            _hold(rule.target_matchers, told)
            and any(
                _hold(rule.source_matchers, source)
                and not (_hold(rule.source_matchers, told) and _hold(rule.target_matchers, source))
                and all(source.get(name, "") == told.get(name, "") for name in rule.equal)
                for source in self._firing.values()
            )
            for rule in self._rules
        )

    def _tree(self, route: Route) -> Node:
        root = Node(
            key=ROOT,
            receivers=self._named(route.receiver, ROOT),
            group_by=route.group_by,
            group_wait=route.group_wait,
            group_interval=route.group_interval,
            repeat_interval=route.repeat_interval,
            muted_in=route.mute_time_intervals,
            active_in=route.active_time_intervals,
        )
        self._nodes[root.key] = root
        self._grow(root, route.routes)
        if route.digest_interval:
            digest = Node(
                key=DIGEST,
                receivers=root.receivers,
                group_by=(),
                group_wait=route.digest_interval,
                group_interval=route.digest_interval,
                repeat_interval=max(route.repeat_interval, 24 * route.digest_interval),
                matchers=(parse_matcher("severity=info"),),
                muted_in=root.muted_in,
                active_in=root.active_in,
            )
            self._nodes[digest.key] = digest
            root.children.append(digest)
        return root

    def _grow(self, parent: Node, routes: Sequence[SubRoute]) -> None:
        for number, given in enumerate(routes):
            key = f"{parent.key}.routes[{number}]"
            named = given.receiver
            node = Node(
                key=key,
                receivers=parent.receivers if named is None else self._named(named, key),
                group_by=_first(given.group_by, parent.group_by),
                group_wait=_first(given.group_wait, parent.group_wait),
                group_interval=_first(given.group_interval, parent.group_interval),
                repeat_interval=_first(given.repeat_interval, parent.repeat_interval),
                matchers=given.matchers,
                goes_on=given.continue_,
                muted_in=given.mute_time_intervals,
                active_in=given.active_time_intervals,
            )
            self._nodes[key] = node
            parent.children.append(node)
            self._grow(node, given.routes)

    def _named(self, name: str, key: str) -> tuple[str, ...]:
        if name == EVERYBODY:
            return tuple(each for each in self._receivers if _OF_CHANNEL not in each)
        if name == NOBODY:
            return ()
        found = tuple(
            each for each in self._receivers if each == name or each.startswith(f"{name} ")
        )
        if not found:
            known = ", ".join([*self._receivers, EVERYBODY, NOBODY])
            raise ConfigError(
                f'no receiver "{name}" is configured',
                where=f"{key}.receiver",
                remedy=f"known: {known}",
            )
        return found


def channels(route: Route) -> Iterator[str]:
    """The names of receivers that routes give, each once."""
    yield from dict.fromkeys(each.receiver for _, each in every_route(route) if each.receiver)


def _first(given: T | None, inherited: T) -> T:
    return inherited if given is None else given


def _hold(matchers: Collection[LabelMatcher], labels: Mapping[str, str]) -> bool:
    return all(matcher.holds(labels) for matcher in matchers)


def _group_of(node: Node, labels: Mapping[str, str]) -> str:
    """The labels that tell its group from others of the route, as text."""
    everything = ALL_LABELS in node.group_by
    names = [name for name in labels if name != INCIDENT] if everything else node.group_by
    return json.dumps({name: labels.get(name, "") for name in sorted(names)}, ensure_ascii=True)
