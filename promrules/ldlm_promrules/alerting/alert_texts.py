"""The annotations of an alert, which are expanded when somebody reads them."""

from collections.abc import Iterator, Mapping

from ldlm_promrules.templates.template import Template
from ldlm_promrules.templates.template_expansion import Context


class AlertTexts(Mapping[str, str]):
    """The texts of `templates` for an alert's labels and value at a time (Unix seconds).

    A template that asks for more than these is expanded at once: its answer may change.
    """

    def __init__(
        self,
        templates: Mapping[str, Template],
        labels: Mapping[str, str],
        value: float,
        at: float,
        context: Context,
    ) -> None:
        self._templates = templates
        self._given = labels, value, at, context
        self._known: dict[str, str] = {}
        for name, template in templates.items():
            if not template.is_steady:
                self._known[name] = template.expand(*self._given)

    def __getitem__(self, name: str) -> str:
        if name not in self._known:
            self._known[name] = self._templates[name].expand(*self._given)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._templates)

    def __len__(self) -> int:
        return len(self._templates)

    def __repr__(self) -> str:
        return repr(dict(self))
