"""Reads YAML as Prometheus reads it: scalars as written, no key twice, keys without value.

Prometheus reads with Go's yaml.v3, which decodes into typed fields: `1.50` of a label is its text.
"""

from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ldlm_promrules.errors import RuleError, first_problem

ModelT = TypeVar("ModelT", bound=BaseModel)

_RESOLVED = frozenset({"tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"})
"""The tags that a scalar's form may set; YAML's others would turn texts into numbers or dates."""


class Keys(BaseModel):
    """A mapping with known keys; one without a value counts as missing."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}


class StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A YAML loader that refuses a key written twice; PyYAML would silently drop the first.

    libyaml's loader is ten times as fast as PyYAML's own, but not part of every build of PyYAML.
    """

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge what `<<` names; own keys win. Raises ConstructorError for a key written twice."""
        if len({_key(key) for key, _ in node.value}) != len(node.value):
            raise yaml.constructor.ConstructorError(
                None, None, "a key is written twice in one mapping", node.start_mark
            )
        super().flatten_mapping(node)
        # PyYAML puts merged keys first, and flattens a node again for each `<<` that names it.
        node.value = list({_key(pair[0]): pair for pair in node.value}.values())


class TextLoader(StrictLoader):
    """Keeps every scalar as written: the value 1.50 of a label is the text `1.50`."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own class attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _RESOLVED]
        for first, resolvers in StrictLoader.yaml_implicit_resolvers.items()
    }


def _key(node: yaml.Node) -> Hashable:
    return (node.tag, node.value) if isinstance(node, yaml.ScalarNode) else id(node)


def read_file(path: Path, loader: type[StrictLoader], model: type[ModelT], form: str) -> ModelT:
    """Read YAML with `loader` as `model`. Raises RuleError; wrong content has the remedy `form`."""
    try:
        document = yaml.load(path.read_bytes(), loader)  # safe: `loader` is a SafeLoader
    except OSError as problem:
        raise RuleError(
            f"cannot be read: {problem.strerror}", where=str(path), remedy="check name and rights"
        ) from problem
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise _unreadable(problem, path) from problem
    try:
        return model.model_validate({} if document is None else document)
    except ValidationError as problem:
        raise invalid(problem, str(path), form) from None


def _unreadable(problem: Exception, path: Path) -> RuleError:
    if isinstance(problem, yaml.MarkedYAMLError) and problem.problem_mark is not None:
        mark = problem.problem_mark
        where = f"{path}, line {mark.line + 1}, column {mark.column + 1}"
        context = f" ({problem.context})" if problem.context else ""
        return RuleError(f"{problem.problem}{context}", where=where, remedy="write it as YAML")
    line = " ".join(str(problem).split())
    return RuleError(line, where=str(path), remedy="write it as YAML")


def invalid(problem: ValidationError, where: str, form: str) -> RuleError:
    """The first problem of wrong content as an error, with its key."""
    key, what = first_problem(problem)
    return RuleError(f"{key}: {what}" if key else what, where=where, remedy=form)
