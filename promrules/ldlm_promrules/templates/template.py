"""Go's templates as Prometheus expands them in the labels and annotations of alerts.

PyPI has bindings of Go's `text/template` (`py-go-template`, `cognihub-pygotemplate`), whose
functions cannot be Python's, so that neither `query` nor a bound of time would be possible.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ldlm_promrules.errors import RuleError, shorten
from ldlm_promrules.templates.template_expansion import (
    NAMES,
    NO_CONTEXT,
    VARIABLES,
    Context,
    Expansion,
)
from ldlm_promrules.templates.template_syntax import TemplateParser
from ldlm_promrules.templates.template_tree import Nodes

_SHOWN = 80  # characters of a template in an error. A choice: more show more, fewer fit a line


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template; `source` is its text. `is_steady`: neither `query` nor `now` is in it."""

    source: str
    nodes: Nodes
    templates: Mapping[str, Nodes]
    is_steady: bool

    @classmethod
    def parse(cls, source: str) -> "Template":
        """Parse a template. Raises RuleError for what Prometheus 3 would refuse."""
        parser = TemplateParser(NAMES, ("$", *VARIABLES))
        try:
            nodes = parser.parse(source)
        except ValueError as problem:
            where = f"template {shorten(' '.join(source.split()), _SHOWN)!r}"
            remedy = "see Prometheus' template reference"
            raise RuleError(str(problem), where=where, remedy=remedy) from None
        return cls(source, nodes, parser.templates, not parser.called & {"query", "now"})

    @property
    def is_text(self) -> bool:
        """Whether it is the same text for every alert."""
        return all(isinstance(node, str) for node in self.nodes)

    def expand(
        self, labels: Mapping[str, str], value: float, at: float = 0.0, of: Context = NO_CONTEXT
    ) -> str:
        """The text for an alert's labels and value at a time (Unix seconds).

        An error becomes the text, as in Prometheus: an alert with a wrong text is better than none.
        """
        if self.is_text:
            return "".join(map(str, self.nodes))
        try:
            return Expansion(self.templates, at, of).text(self.nodes, labels, value)
        except (ValueError, RuleError, OverflowError, RecursionError) as problem:
            return f"<error expanding template: {problem}>"
