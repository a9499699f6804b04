"""The list of checks in docs/doctor.md, from the checks themselves.

`python -m ldlm_doctor.document docs/doctor.md` rewrites it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from ldlm_doctor.model import Check, checks
from ldlm_monitor.model.names import SEVERITIES

BEGIN, END = "<!-- checks -->", "<!-- end of checks -->"


def checks_in_words() -> str:
    """A paragraph for each check, the worst first."""
    worst_first = sorted(checks().values(), key=lambda c: (-SEVERITIES.index(c.severity), c.id))
    return "\n".join(line for check in worst_first for line in _paragraph(check))


def _paragraph(check: Check) -> Iterator[str]:
    yield f"### {check.id}"
    yield ""
    yield f"**{check.severity}**: {_plain(check.title)}. {_plain(check.why)}"
    yield ""
    if check.since:
        yield f"- Since: {_plain(check.since)}"
    yield f"- Source: {_plain(check.source)}"
    yield f"- Fix: {_plain(check.fix)}"
    yield ""


def _plain(text: str) -> str:
    """Text in which Markdown sees no markup of its own."""
    return text if "`" in text else text.replace("<", "&lt;").replace("*", "\\*")


def with_checks(page: str) -> str:
    """The page with the list as it has to be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{checks_in_words()}\n{END}{after}"


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(with_checks(document.read_text("utf-8")), "utf-8")
