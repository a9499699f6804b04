"""`[[expect]]`: lines that must come in time, as the format and the rules that they become.

The line becomes an event `expected_NAME` and the times become rules of `ExpectationMissed`, in two
files that every command then reads as those of `formats` and `rules`.

Each start imports this module for its model, and few have expectations: what only these need is
imported by the functions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.base.setting_types import Section
from ldlm_promrules.durations import parse_duration
from ldlm_promrules.golang import quoted

ALERT: Final = "ExpectationMissed"
_START: Final = "ldlm_run_start_timestamp_seconds"
_CAME: Final = "ldlm_last_event_timestamp_seconds"
_VALUE: Final = "ldlm_run_expected_value"
_LIMIT = re.compile(r"(?P<is>[<>]=?|[!=]=) ?(?P<number>-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
_NAMED_GROUP = re.compile(r"\(\?P<\w+>")  # which Hyperscan does not know


def _duration(value: object) -> object:
    return f"{value}s" if isinstance(value, int) and not isinstance(value, bool) else value


def _checked_duration(text: str) -> str:
    if not parse_duration(text):
        raise ValueError("should be longer than 0")
    return text


def _checked_limit(text: str) -> str:
    if not _LIMIT.fullmatch(text):
        raise ValueError("should be a comparison with a number")
    return text


def _checked_pattern(text: str) -> str:
    import re2

    from ldlm_monitor.logs.parse.patterns import checked_pattern

    try:
        checked_pattern(text)
    except re2.error as error:
        raise ValueError(f"is no regular expression of RE2: {error}") from None
    return text


Duration = Annotated[str, BeforeValidator(_duration), AfterValidator(_checked_duration)]
Limit = Annotated[str, AfterValidator(_checked_limit)]
Pattern = Annotated[str, Field(min_length=1), AfterValidator(_checked_pattern)]


class Expectation(Section):
    """A line that must come: `ExpectationMissed` fires where it does not, or its value is wrong."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,60}$", examples=["checkpoint"])
    """Its name in the alert: letters, digits and `_`."""
    line: Pattern = Field(examples=["saved checkpoint"])
    """A text, or a regular expression (RE2), that the line contains."""
    example: str = Field(default="", examples=["saved checkpoint to /ckpt/500"])
    """A line that has it; needed where `line` does not match itself."""
    within: Duration | None = Field(default=None, examples=["20m"])
    """How long after the run's start, or its restart, the first one must have come."""
    every: Duration | None = Field(default=None, examples=["30m"])
    """How long after each of them the next one must have come."""
    value: Limit | None = Field(default=None, examples=["> 0"])
    """What must hold of the number in the last line, which the group `(?P<value>...)` of `line`
    matches."""
    severity: Literal["critical", "error", "warning", "info"] = "warning"
    """The alert's severity."""
    run: Pattern | None = Field(default=None, examples=["nightly-.*"])
    """The runs of which it is expected, as a regular expression of whole names; by default all."""

    @model_validator(mode="after")
    def _consistent(self) -> Expectation:
        from ldlm_monitor.logs.parse.patterns import checked_pattern

        pattern = checked_pattern(self.line)  # of bytes, as it is used: `[é]` matches half of an é
        if pattern.search(self.shown.encode(), 0) is None:
            raise ValueError("needs `example`, a line that it matches")
        if (self.value is not None) != ("value" in (name for name, _ in pattern.groups)):
            raise ValueError("needs `value` and the group `(?P<value>...)` of `line` together")
        if not (self.within or self.every or self.value):
            raise ValueError("needs `within`, `every` or `value`")
        return self

    @property
    def shown(self) -> str:
        """A line that it matches."""
        return self.example or self.line

    @property
    def kind(self) -> str:
        """The kind of its events."""
        return f"expected_{self.name}"


def format_of(expected: Sequence[Expectation]) -> dict[str, Any]:
    """The format file by which the lines are known, as a document of YAML."""
    return {
        "format": "expectations",
        "events": [
            {
                "kind": each.kind,
                "severity": "info",
                "role": "context",
                "at": "beside",
                "shapes": [{"trigger": _trigger(each.line), "pattern": each.line}],
                "fields": {"value": "float"} if each.value else {},
                "examples": [{"line": each.shown}],
            }
            for each in expected
        ],
        "meanings": {each.kind: {"is": ["expected"]} for each in expected},
    }


def rules_of(expected: Sequence[Expectation]) -> dict[str, Any]:
    """The rule file with their alerts, as a document of YAML."""
    return {"groups": [{"name": "expectations", "rules": [*_rules(expected)]}]}


def _rules(expected: Sequence[Expectation]) -> Iterator[dict[str, Any]]:
    for each in expected:
        run = "" if each.run is None else f"run=~{quoted(each.run)}"
        kind = f'kind="{each.kind}"'
        came = f"{_CAME}{{{','.join(filter(None, (kind, run)))}}}"
        if each.within:
            start = f"{_START}{{{run}}}"
            late = f"time() - max by (cluster, run) ({start}) > {parse_duration(each.within):g}"
            not_yet = f"{late} unless on (cluster, run) {came}"
            yield _rule(each, "within", not_yet, f"did not come within {each.within}")
        if each.every:
            late = f"time() - max by (cluster, run) ({came}) > {parse_duration(each.every):g}"
            yield _rule(each, "every", late, f"did not come again within {each.every}")
        if each.value:
            last = came.replace(_CAME, _VALUE)
            wrong = f"{last} unless on (cluster, run) ({last} {each.value})"
            text = f"should be {each.value}, and is {{{{ $value }}}}"
            yield _rule(each, "value", f"max by (cluster, run) ({wrong})", text)


def _rule(each: Expectation, missed: str, expr: str, what: str) -> dict[str, Any]:
    ended = 'ldlm_run_state{state=~"finished|crashed|killed|ended"} == 1'
    return {
        "alert": ALERT,
        "expr": f"({expr}) unless on (cluster, run) {ended}",
        "labels": {"severity": each.severity, "expectation": each.name, "missed": missed},
        "annotations": {
            "summary": f"{{{{ $labels.run }}}}: {each.name} {what}",
            "description": "The settings expect such a line ([[expect]]), and the run goes on.",
            "action": "See whether what writes the line hangs, fails, or writes it otherwise now.",
        },
    }


def _trigger(line: str) -> str:
    """The pattern as Hyperscan has it, which finds the lines that are looked at."""
    return _NAMED_GROUP.sub("(?:", line)


def written(expected: Sequence[Expectation]) -> tuple[Path, Path]:
    """The format file and the rule file of expectations, in the user's cache; raises ConfigError.

    Equal expectations have the same files, so that they are written once.
    """
    from hashlib import sha256

    import yaml

    texts = [
        yaml.safe_dump(each, sort_keys=False, allow_unicode=True)
        for each in (format_of(expected), rules_of(expected))
    ]
    digest = sha256("".join(texts).encode()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    folder = base / "ldlm-monitor-expectations" / digest
    paths = folder / "format.yml", folder / "rules.yml"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, text in zip(paths, texts, strict=True):
            if not path.exists() or path.read_bytes() != text.encode():
                _replace(path, text)
    except OSError as error:
        raise ConfigError(
            f"cannot be written to {folder} ({error.strerror})",
            where="what [[expect]] becomes",
            remedy="set XDG_CACHE_HOME to a folder that can be written",
        ) from error
    return paths


def _replace(path: Path, text: str) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as part:
        part.write(text)
    os.replace(part.name, path)
