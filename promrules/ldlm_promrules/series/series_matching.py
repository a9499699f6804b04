"""Which series a selector selects."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from ldlm_promrules.golang import compile_pattern
from ldlm_promrules.samples import Labels, Matcher


def is_matched(labels: Labels, matchers: Iterable[Matcher]) -> bool:
    """Whether a series of these labels satisfies all matchers."""
    return all(satisfies(matcher, labels) for matcher in matchers)


def satisfies(matcher: Matcher, labels: Labels) -> bool:
    """Whether one matcher accepts a series of these labels (with `__name__`)."""
    value = next((v for name, v in labels if name == matcher.name), "")
    if matcher.op == "=":
        return value == matcher.value
    if matcher.op == "!=":
        return value != matcher.value
    found = compile_pattern(matcher.value).fullmatch(value) is not None
    return found == (matcher.op == "=~")


class _Labelled(Protocol):
    labels: Labels


S = TypeVar("S", bound=_Labelled)


class MatchedSeries(Generic[S]):
    """The series of `by_name` that satisfy all `matchers`, in their order there.

    `by_name`: lists of series by metric, and of all series under None. A list may grow; one from
    which series were removed must be another object.
    """

    def __init__(self, by_name: Mapping[str | None, list[S]], matchers: Sequence[Matcher]) -> None:
        self._by_name = by_name
        self._name = next((m.value for m in matchers if (m.name, m.op) == ("__name__", "=")), None)
        self._matchers = matchers
        self._listed: list[S] = []
        self._seen = 0
        self._matched: list[S] = []

    def __call__(self) -> list[S]:
        """The matching series; callers must not change the list."""
        listed = self._by_name.get(self._name)
        if listed is None:
            return []
        if listed is not self._listed:
            self._listed, self._seen, self._matched = listed, 0, []
        if len(listed) > self._seen:
            fresh = listed[self._seen :]
            self._matched += [each for each in fresh if is_matched(each.labels, self._matchers)]
            self._seen = len(listed)
        return self._matched
