"""Random PromQL: well-typed expressions over the series of `worlds`.

What Prometheus 2.42 and 3 answer differently is not asked for: samples at the edge of a
range (worlds), a deviation of Inf and ties of topk (kinds of series), and subqueries
whose range ends on a step (`grid`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

FINITE = ("steps", "total", "level", "owner")
ANY = (*FINITE, "gauge", "wait_bucket")
LABELS = ("run", "rank", "user", "le")
ARITHMETIC = ("+", "-", "*", "/", "%", "^", "atan2")
COMPARISON = ("==", "!=", "<", ">", "<=", ">=")
OVER_TIME = (
    *("avg", "min", "max", "sum", "count", "stddev", "stdvar", "last", "present"),
    "quantile",
)
OVER_RANGE = (
    *(f"{name}_over_time" for name in OVER_TIME),
    *("delta", "idelta", "irate", "deriv", "changes", "resets"),
    *("predict_linear", "double_exponential_smoothing"),
)
AGGREGATIONS = (
    *("sum", "avg", "min", "max", "count", "group", "quantile", "count_values"),
    *("stddev", "stdvar", "topk", "bottomk"),
)
MATHEMATICS = (
    *("abs", "ceil", "floor", "sgn", "sqrt", "exp", "ln", "log2", "log10", "deg", "rad"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "round", "clamp", "clamp_min", "clamp_max"),
)
STEEP = {"sin": 10, "cos": 10, "tan": 1, "exp": 10, "sinh": 10, "cosh": 10}
"""How far from zero these are asked about: beyond, they make much of the last digit."""
DATES = (
    *("minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month"),
    *("month", "year"),
)
NUMBERS = ("0", "1", "2", "-1", "0.5", "3.25", "10", "1e3", "0x1F", "Inf", "-Inf", "NaN")
RANKS = ("0", "0.3", "0.5", "0.9", "1", "-1", "2")
REGEXES = ("a|b", "a", ".*", ".+", "[01]", "", "x|", "0|2", "nothing")


@dataclass(frozen=True)
class Place:
    """Where in an expression a part of it stands.

    `depth` is how much deeper it may go, `grid` whether it is evaluated at the steps of
    a subquery (multiples of ten seconds; else five seconds beside them), `start` when
    the world begins.
    """

    depth: int
    grid: bool
    start: float

    def below(self, *, grid: bool | None = None) -> "Place":
        return Place(self.depth - 1, self.grid if grid is None else grid, self.start)


class Writer:
    """Writes an expression from hypothesis' choices."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def one_of(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self._draw(st.integers(0, 99)) < percent

    def some(self, options: Sequence[str], most: int = 3) -> list[str]:
        return self._draw(st.lists(st.sampled_from(options), unique=True, max_size=most))

    # Selectors.

    def selector(self, metrics: Sequence[str] = ANY) -> str:
        if metrics is ANY and self.chance(5):
            return self.one_of(('{run="a"}', '{__name__=~"gauge|level"}', '{rank!=""}', "nothing"))
        matchers = []
        for label in self.some(LABELS, 2):
            operator = self.one_of(("=", "!=", "=~", "!~"))
            values = REGEXES if "~" in operator else ("a", "b", "0", "1", "x", "")
            matchers.append(f'{label}{operator}"{self.one_of(values)}"')
        if matchers and self.chance(60):
            matchers = matchers[:1]
        inner = "{" + ",".join(matchers) + "}" if matchers and self.chance(30) else ""
        return self.one_of(metrics) + inner

    def shift(self, place: Place) -> tuple[str, bool]:
        """Offset and `@`, and whether what they lead to is a step of a subquery."""
        grid = place.grid
        parts = []
        if self.chance(15):
            parts.append(f"offset {self.one_of(('10s', '1m', '-20s', '-1m30s', '1m40s'))}")
        if self.chance(15):
            time = place.start + 10 * self._draw(st.integers(0, 70)) + 5
            parts.append(f"@ {self.one_of((f'{time:.0f}', f'{time:.3f}', 'start()', 'end()'))}")
            grid = False
        if self.chance(50):
            parts.reverse()
        return "".join(f" {part}" for part in parts), grid

    def instant(self, place: Place, metrics: Sequence[str] = ANY) -> str:
        return self.selector(metrics) + self.shift(place)[0]

    def window(self, place: Place, metrics: Sequence[str] = ANY) -> str:
        if place.depth > 1 and self.chance(30):
            return self.subquery(place)
        seconds = 5 * self._draw(st.integers(1, 60))
        return f"{self.selector(metrics)}[{seconds}s]{self.shift(place)[0]}"

    def subquery(self, place: Place, operand: str | None = None) -> str:
        """Its range begins five seconds beside the steps.

        It holds a step if its operand has an `@`: what that fixes, Prometheus evaluates
        once, even where there is no step for which the result is needed. In subqueries
        of subqueries 2.42 moves what is fixed.
        """
        shift, grid = self.shift(place)
        if operand is None:
            operand = self.vector(place.below(grid=True)) if self.chance(85) else "vector(time())"
        if "@" in operand and "@" in shift:
            shift, grid = "", place.grid
        if "@" in operand and "s:" in operand:
            operand = "vector(time())"
        step = self.one_of(("", "10s", "20s", "30s", "1m"))
        least = 7 if "@" in operand else 1
        seconds = 10 * self._draw(st.integers(least, 20)) + (5 if grid else 0)
        return f"({operand})[{seconds}s:{step}]{shift}"

    # Scalars.

    def number(self) -> str:
        return self.one_of(NUMBERS)

    def scalar(self, place: Place) -> str:
        kind = self._draw(st.integers(0, 9)) if place.depth > 0 else 0
        if kind < 5:
            return self.number()
        if kind == 5:
            return self.one_of(("time()", "pi()"))
        if kind == 6:
            return f"scalar({self.vector(place.below())})"
        if kind == 7:
            return f"-{self.scalar(place.below())}"
        left, right = self.scalar(place.below()), self.scalar(place.below())
        if kind == 8:
            return f"({left} {self.one_of(COMPARISON)} bool {right})"
        return f"({left} {self.one_of(ARITHMETIC)} {right})"

    # Vectors.

    def vector(self, place: Place) -> str:
        if place.depth <= 0:
            return self.instant(place)
        return self.one_of(
            (
                self.instant,
                self.rate,
                self.over_range,
                self.over_range,
                self.aggregation,
                self.aggregation,
                self.binary,
                self.binary,
                self.binary,
                self.mathematics,
                self.function,
                self.labels,
            )
        )(place)

    def rate(self, place: Place) -> str:
        name = self.one_of(("rate", "increase"))
        if place.depth > 1 and self.chance(20):
            return f"{name}({self.subquery(place, self.instant(place, ('total',)))})"
        seconds = 5 * self._draw(st.integers(1, 60))
        selector = self.selector(("steps", "total", "wait_bucket"))
        if selector.startswith("wait_bucket"):
            selector = selector.replace("wait_bucket", "total", 1)
        return f"{name}({selector}[{seconds}s]{self.shift(place)[0]})"

    def over_range(self, place: Place) -> str:
        name = self.one_of(OVER_RANGE)
        window = self.window(place)
        if name == "predict_linear" and "@" in window:
            name = "deriv"  # of what `@` fixes, 2.42 predicts in a subquery but once
        if name == "quantile_over_time":
            return f"{name}({self.one_of(RANKS)}, {window})"
        if name == "predict_linear":
            return f"{name}({window}, {self.one_of(('0', '60', '-10'))})"
        if name == "double_exponential_smoothing":
            return f"{name}({window}, 0.5, {self.one_of(('0.1', '0.25'))})"
        return f"{name}({window})"

    def aggregation(self, place: Place) -> str:
        name = self.one_of(AGGREGATIONS)
        if name in {"topk", "bottomk"}:
            operand = self.instant(place, ("level",))
        elif name in {"stddev", "stdvar"}:
            operand = self.instant(place, FINITE)
        elif name == "count_values":  # of values that no arithmetic has rounded
            operand = self.instant(place)
        else:
            operand = self.vector(place.below())
        if name == "quantile":
            operand = f"{self.one_of(RANKS)}, {operand}"
        elif name in {"topk", "bottomk"}:
            operand = f"{self.one_of(('1', '2', '3', '0', '-1', '1.9'))}, {operand}"
        elif name == "count_values":
            operand = f'"{self.one_of(("value", "run", "rank"))}", {operand}'
        grouping = f"{self.one_of(('by', 'without'))} ({', '.join(self.some(LABELS))})"
        kind = self._draw(st.integers(0, 2))
        if kind == 0:
            return f"{name}({operand})"
        return f"{name} {grouping} ({operand})" if kind == 1 else f"{name}({operand}) {grouping}"

    def binary(self, place: Place) -> str:
        if self.chance(25):
            return self.with_scalar(place)
        if self.chance(25):
            return self.set_operation(place)
        operator = self.operator()
        if self.chance(30):
            many = self.vector(place.below()) if self.chance(50) else self.instant(place)
            include = self.one_of(("", "(user)", "()"))
            if self.chance(50):
                return self.applied(many, f"{operator} on (run) group_left {include}", "owner")
            return self.applied("owner", f"{operator} on (run) group_right {include}", many)
        if self.chance(40):
            left, right = self.instant(place), self.instant(place)
        else:
            left, right = self.vector(place.below()), self.vector(place.below())
        return self.applied(left, operator + self.matching(grouped=True), right)

    def operator(self) -> str:
        """Filters are the rarer: what they leave is often nothing."""
        if self.chance(65):
            return self.one_of(ARITHMETIC)
        return self.one_of(COMPARISON) + (" bool" if self.chance(50) else "")

    def applied(self, left: str, operator: str, right: str) -> str:
        """In brackets. Prometheus 2.42 forgets to drop the name after atan2, `abs` does it."""
        if operator.startswith("%") and "(" in left + right:
            operator = operator.replace("%", "-")  # remainders of what was rounded
        if operator.startswith("atan2"):
            return f"abs(({left}) {operator} ({right}))"
        return f"({left} {operator} {right})"

    def matching(self, *, grouped: bool) -> str:
        if self.chance(40):
            return ""
        on = self.chance(50)
        labels = self.some(LABELS) if self.chance(40) else ["run", "rank"] if on else []
        text = f" {'on' if on else 'ignoring'} ({', '.join(labels)})"
        if grouped and self.chance(40):
            include = self.some([label for label in LABELS if label not in labels], 1)
            text += f" group_{self.one_of(('left', 'right'))} ({', '.join(include)})"
        return text

    def set_operation(self, place: Place) -> str:
        left, right = self.vector(place.below()), self.vector(place.below())
        operator = self.one_of(("and", "or", "unless"))
        return f"({left} {operator}{self.matching(grouped=False)} {right})"

    def with_scalar(self, place: Place) -> str:
        vector, scalar = self.vector(place.below()), self.scalar(place.below())
        left, right = (vector, scalar) if self.chance(60) else (scalar, vector)
        operator = self.operator()
        if operator not in {"atan2", "%"} and self.chance(30):
            return f"{left} {operator} {right}"
        return self.applied(left, operator, right)

    def mathematics(self, place: Place) -> str:
        name = self.one_of(MATHEMATICS)
        operand = self.vector(place.below())
        if name in STEEP:
            return f"{name}(clamp({operand}, -{STEEP[name]}, {STEEP[name]}))"
        if name == "clamp":
            return f"clamp({operand}, {self.number()}, {self.number()})"
        if name in {"clamp_min", "clamp_max"}:
            return f"{name}({operand}, {self.scalar(place.below())})"
        if name == "round" and self.chance(50):
            return f"round({operand}, {self.one_of(('0.5', '2', '10', '0.25'))})"
        return f"{name}({operand})"

    def function(self, place: Place) -> str:
        below = place.below()
        clock = self.one_of(("", "clock", "clock + 86400 * 31", "vector(time() * 3)"))
        buckets = self.one_of(
            (
                *("wait_bucket", "sum by (le, run) (wait_bucket)", "level", "odd_bucket"),
                *("rate(wait_bucket[45s])", "rate(wait_bucket[105s])"),
            )
        )
        return self.one_of(
            (
                lambda: f"vector({self.scalar(below)})",
                lambda: f"absent({self.vector(below)})",
                lambda: f"absent({self.selector()})",
                lambda: f"absent_over_time({self.window(place)})",
                lambda: f"timestamp({self.timed(below)})",
                lambda: f"{self.one_of(DATES)}({clock})",
                lambda: f"-{self.vector(below)}",
                lambda: f"{self.one_of(('sort', 'sort_desc'))}({self.vector(below)})",
                lambda: f"histogram_quantile({self.one_of(RANKS)}, {buckets})",
                lambda: f"({self.vector(below)})",
            )
        )()

    def timed(self, place: Place) -> str:
        """Prometheus' timestamp() forgets an offset beside an `@`."""
        vector = self.vector(place)
        return f"-({vector})" if "@" in vector and "offset" in vector else vector

    def labels(self, place: Place) -> str:
        operand = self.vector(place.below())
        target = self.one_of(("run", "rank", "new", "__name__"))
        if self.chance(50):
            source = self.one_of(("run", "rank", "missing", "__name__"))
            value = self.one_of(("$1", "n-$1", "fixed", "", "$2$1", "${1}x"))
            regex = self.one_of(("(.*)", "(a|0)", "(.)(.*)", "b", ""))
            return f'label_replace({operand}, "{target}", "{value}", "{source}", "{regex}")'
        sources = "".join(f', "{label}"' for label in self.some((*LABELS, "missing")))
        return f'label_join({operand}, "{target}", "-"{sources})'


@st.composite
def expressions(draw: st.DrawFn, start: float, depth: int = 4) -> str:
    """An instant vector or a scalar, to be evaluated five seconds beside tens."""
    writer, place = Writer(draw), Place(depth, grid=False, start=start)
    return writer.scalar(place) if writer.chance(5) else writer.vector(place)


@st.composite
def sortings(draw: st.DrawFn, start: float) -> str:
    """A sort of values that all differ."""
    writer, place = Writer(draw), Place(1, grid=False, start=start)
    return f"{writer.one_of(('sort', 'sort_desc'))}({writer.instant(place, ('level',))})"
