"""What nodes were worth at an earlier evaluation, and are still, because nothing changed."""

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ldlm_monitor.promql.expression import Dependence, dependence
from ldlm_monitor.promql.harmless import never_fails
from ldlm_monitor.promql.nodes import Aggregation, Binary, Call, Node, Value

ChangedAt: TypeAlias = Callable[[Iterable[str]], float]
"""When a series of one of these metrics last changed, began or ended (Unix seconds)."""


class Memory:
    """The last value of one node: `value` at the time `at`, and as long as it holds."""

    __slots__ = ("_changed_at", "_metrics", "_seconds", "at", "value")

    def __init__(self, on: Dependence, changed_at: ChangedAt) -> None:
        self.value: Value = 0.0
        self.at = math.inf
        self._metrics = on.metrics
        self._seconds = on.seconds
        self._changed_at = changed_at

    def holds(self, at: float) -> bool:
        """Whether the value at `at` is the last one."""
        return at >= self.at and self._changed_at(self._metrics) < self.at - self._seconds

    def keep(self, value: Value, at: float) -> None:
        """The node's value at `at`."""
        self.value, self.at = value, at


class Memo:
    """The memories of all nodes that an evaluator is asked, and which of them never fail.

    `changed_at` must tell of a change from the evaluation on in which it shows.
    """

    __slots__ = ("_changed_at", "_harmless", "_held", "_memories")

    def __init__(self, changed_at: ChangedAt) -> None:
        self._changed_at = changed_at
        self._memories: dict[int, Memory | None] = {}
        self._harmless: dict[int, bool] = {}
        self._held: list[Node] = []  # so that no other node gets the identity of one

    def of(self, node: Node) -> Memory | None:
        """The node's memory; None where its value may change by itself, or is quickly found."""
        try:
            return self._memories[id(node)]
        except KeyError:
            return self._begin(node)

    def _begin(self, node: Node) -> Memory | None:
        on = dependence(node) if isinstance(node, Aggregation | Binary | Call) else None
        memory = None if on is None else Memory(on, self._changed_at)
        self._held.append(node)
        self._memories[id(node)] = memory
        return memory

    def may_skip(self, node: Node) -> bool:
        """Whether the node need not be evaluated where its value does not matter."""
        harmless = self._harmless.get(id(node))
        if harmless is None:
            self._held.append(node)
            harmless = self._harmless[id(node)] = never_fails(node)
        return harmless
