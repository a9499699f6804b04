"""Binary operations on vectors: which elements meet, and under which labels.

Semantics: Prometheus `promql/engine.go`, `VectorBinop` and the set operators.
"""

from collections.abc import Callable

from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.model.points import Labels
from ldlm_monitor.promql.floats import ARITHMETIC, COMPARISON
from ldlm_monitor.promql.labels import Rename, signature_of, unmarked, without_name
from ldlm_monitor.promql.nodes import Binary, Matching, Vector

SET_OPERATORS = frozenset({"and", "or", "unless"})


def combine_sets(operator: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    """`and`, `or`, `unless`."""
    signature = signature_of(matching.on, matching.labels)
    if operator == "or":
        known = {signature(labels) for labels, _ in left}
        return left + [sample for sample in right if signature(sample[0]) not in known]
    known = {signature(labels) for labels, _ in right}
    keep = operator == "and"
    return [sample for sample in left if (signature(sample[0]) in known) is keep]


def combine_scalars(node: Binary, left: float, right: float) -> float:
    """Both sides are scalars; a comparison yields 0 or 1."""
    compare = COMPARISON.get(node.operator)
    if compare is not None:
        return float(compare(left, right))
    return ARITHMETIC[node.operator](left, right)


def combine_with_scalar(
    node: Binary, vector: Vector, scalar: float, unnamed: Rename, *, scalar_left: bool
) -> Vector:
    """One side is a scalar; a comparison that filters keeps the vector's values and names."""
    compare = COMPARISON.get(node.operator)
    if compare is None:
        compute = ARITHMETIC[node.operator]
        if scalar_left:
            return [(unnamed(labels), compute(scalar, value)) for labels, value in vector]
        return [(unnamed(labels), compute(value, scalar)) for labels, value in vector]
    if scalar_left:
        verdicts = [compare(scalar, value) for _, value in vector]
    else:
        verdicts = [compare(value, scalar) for _, value in vector]
    if node.as_bool:
        return [
            (unnamed(sample[0]), float(verdict))
            for sample, verdict in zip(vector, verdicts, strict=True)
        ]
    return [sample for sample, verdict in zip(vector, verdicts, strict=True) if verdict]


def combine_vectors(node: Binary, left: Vector, right: Vector, unnamed: Rename) -> Vector:
    """Elements of both sides that share a signature.

    Raises RuleError where a group has several elements on a side that may hold one.
    """
    if not left or not right:
        return []
    swapped = node.matching.many == "right"
    many, one = (right, left) if swapped else (left, right)
    signature = signature_of(node.matching.on, node.matching.labels)
    partners = _index_by_signature(one, signature, side="left" if swapped else "right")
    compute = _elementwise(node)
    rename = _result_labels(node, unnamed)
    taken: set[tuple[Labels, Labels | None]] = set()
    result: Vector = []
    for labels, value in many:
        group = signature(labels)
        partner = partners.get(group)
        if partner is None:
            continue
        outcome = compute(partner[1], value) if swapped else compute(value, partner[1])
        if outcome is None:
            continue
        metric = rename(labels, partner[0])
        claim = (group, metric if node.matching.many else None)
        if claim in taken:
            raise RuleError(
                "multiple matches for labels",
                remedy=(
                    "name the grouping labels that keep results apart in group_left/group_right"
                    if node.matching.many
                    else "many-to-one matching must be explicit (group_left/group_right)"
                ),
            )
        taken.add(claim)
        result.append((metric, outcome))
    return result


def _index_by_signature(
    vector: Vector, signature: Callable[[Labels], Labels], *, side: str
) -> dict[Labels, tuple[Labels, float]]:
    found: dict[Labels, tuple[Labels, float]] = {}
    for sample in vector:
        group = signature(sample[0])
        if group in found:
            shown = ", ".join(f'{name}="{value}"' for name, value in group)
            raise RuleError(
                f"several series for the match group {{{shown}}} on the {side}-hand side",
                remedy="many-to-many matching is not allowed: aggregate, or match on more labels",
            )
        found[group] = sample
    return found


def _elementwise(node: Binary) -> Callable[[float, float], float | None]:
    """The operation on a pair; None where a filtering comparison does not hold."""
    compare = COMPARISON.get(node.operator)
    if compare is None:
        return ARITHMETIC[node.operator]
    holds = compare
    if node.as_bool:
        return lambda left, right: float(holds(left, right))
    return lambda left, right: left if holds(left, right) else None


def _result_labels(node: Binary, unnamed: Rename) -> Callable[[Labels, Labels], Labels]:
    """The labels of a pair's result, from those of the many side and of the one side."""
    matching = node.matching
    listed = frozenset(matching.labels)
    include = frozenset(matching.include)
    first = without_name if node.operator in ARITHMETIC else unmarked

    def paired(labels: Labels, other: Labels) -> Labels:
        del other
        kept = first(labels)
        if matching.on or listed:
            kept = tuple(pair for pair in kept if (pair[0] in listed) is matching.on)
        return kept

    def grouped(labels: Labels, other: Labels) -> Labels:
        kept = first(labels)
        if not include:
            return kept
        pairs = [pair for pair in kept if pair[0] not in include]
        pairs += [pair for pair in other if pair[0] in include]
        return tuple(sorted(pairs))

    combined = paired if matching.many is None else grouped
    if not node.as_bool:
        return combined
    return lambda labels, other: unnamed(combined(labels, other))
