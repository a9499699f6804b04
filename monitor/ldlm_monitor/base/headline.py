"""A run in one line: mark, run, what happened, where, what to do; messages begin with it."""

from typing import Final

from ldlm_monitor.base.incident_view import View
from ldlm_monitor.base.text.sanitize import ELLIPSIS, redact, shorten

LINE: Final = 80  # characters of a line that a phone's lock screen shows
_NAME: Final = 20  # characters of a long run's name that are kept. A choice: both ends differ
_LEAST: Final = 16  # characters of `what` that stay in any case. A choice: a cause in a word or two
_TODO: Final = 24  # characters of `todo`, with its arrow, that stay beside more of `what`. A choice

SEVERITY_MARKS: Final = {"critical": "🔴", "error": "🟠", "warning": "🟡", "info": "🔵"}
STATE_MARKS: Final = {"resolved": "✅", "ended": "⏹️", "unknown": "❔", "pending": "⏳"}
ARROW: Final = " → "  # from what happened to what to do
FINISHED_MARK: Final = "✔"
"""A line's first character: a colour for a firing alert's severity, a shape for other states."""


class Headline(View):
    """The parts of the line. `where` begins with a space or comma, or is ""; `todo` may be "".

    `sure` is the decision's confidence and reason, which a wide row has room for; `tries`: what to
    try, in sentences; `since`: when it began (Unix seconds). `joins`: what stands between the run's
    name and `what`.
    """

    mark: str
    run: str
    what: str
    where: str = ""
    todo: str = ""
    sure: str = ""
    tries: str = ""
    since: float | None = None
    joins: str = ": "

    @property
    def tail(self) -> str:
        """What to do, as the end of a line; "" where nothing is."""
        return f"{ARROW}{self.todo}" if self.todo else ""

    def line(self, limit: int = LINE) -> str:
        """The line in `limit` characters: of a long name the middle is cut, of `what` the end.

        Its parts are redacted before they are cut: half a secret is not recognised. The whole line
        must not be: after a run `x-key`, any cause would be the value of a key.
        """
        run, what = _clean(self.run), _clean(self.what)
        fixed = len(self.mark) + 1 + len(self.joins) + len(self.where)
        tail = redact(self.tail)
        room = limit - fixed - len(tail) - len(what)
        name = run if len(run) <= max(room, _NAME) else middle_cut(run, _NAME)
        left = limit - fixed - len(name)
        kept = max(left - len(what), min(_TODO, left - min(len(what), _LEAST)), 0)
        tail = shorten(tail, kept)
        what = shorten(what, max(left - len(tail), 1))
        head = f"{self.mark} {name}{self.joins}" if run else f"{self.mark} "
        return f"{head}{what}{self.where}{tail}"


def _clean(text: str) -> str:
    return " ".join(redact(text).split())


def middle_cut(text: str, limit: int) -> str:
    """`text` in `limit` characters; of a longer one the middle is left out."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return text[: limit - 1 - tail] + ELLIPSIS + text[len(text) - tail :]
