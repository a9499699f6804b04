"""What was understood of a file, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldlm_monitor.parse.coverage import Coverage

SHOWN_FORMS = 10
"""Of lines that look like metrics and gave nothing, so many forms are shown as text."""
_TEXT_WIDTH = 120
"""A form is recognised by its first words; longer lines wrap in a terminal."""


def as_text(found: Coverage) -> str:
    """A paragraph a file."""
    return "\n".join(_lines(found)) + "\n"


def as_json(found: Coverage) -> str:
    """One object a line."""
    from ldlm_monitor.text.sanitize import encodable, plain

    shown: dict[str, Any] = {
        "path": found.path,
        "formats": dict(found.formats.most_common()),
        "lines": found.lines,
        "lines_with_records": found.with_records,
        "share": found.share,
        "parse_errors": found.errors,
        "samples": found.types["sample"],
        "events": found.types["event"],
        "heartbeats": found.types["heartbeat"],
        "steps": found.steps,
        "event_kinds": dict(found.kinds.most_common()),
        "unknown": {
            "lines": found.unknown.lines,
            "forms": [
                {"count": form.count, "line": form.line, "text": plain(form.text)}
                for form in found.unknown.forms()
            ],
        },
    }
    return encodable(json.dumps(shown, ensure_ascii=False)) + "\n"


def _lines(found: Coverage) -> Iterator[str]:
    from ldlm_monitor.text.sanitize import plain

    share = "-" if found.share is None else f"{100 * found.share:.1f} %"
    formats = ", ".join(f"{plain(name)} ({count})" for name, count in found.formats.most_common())
    facts = [
        ("formats", formats or "-"),
        ("lines", f"{found.lines}"),
        ("with records", f"{found.with_records} ({share})"),
        ("parse errors", f"{found.errors}"),
        *((f"{name}s", f"{found.types[name]}") for name in ("sample", "event", "heartbeat")),
        ("steps", "{} to {}".format(*found.steps) if found.steps else "-"),
    ]
    yield plain(found.path)
    yield from (f"  {name:<13}{value}" for name, value in facts)
    yield from (f"    {kind:<34}{count:>8}" for kind, count in found.kinds.most_common())
    yield from unknown_lines(found)


def unknown_lines(found: Coverage) -> Iterator[str]:
    """Lines that look like metrics and gave nothing, by their form; nothing where none do."""
    from ldlm_monitor.text.sanitize import plain

    if not found.unknown.lines:
        return
    forms = found.unknown.forms()
    yield f"  {'unknown':<13}{_lines_that(found.unknown.lines)} like metrics and gave none:"
    for form in forms[:SHOWN_FORMS]:
        yield f"    {form.count:>8} x  line {form.line}: {plain(form.text, _TEXT_WIDTH)}"
    if len(forms) > SHOWN_FORMS:
        yield f"    and {len(forms) - SHOWN_FORMS} other forms, which --format json lists"


def _lines_that(count: int) -> str:
    return "1 line looks" if count == 1 else f"{count} lines look"
