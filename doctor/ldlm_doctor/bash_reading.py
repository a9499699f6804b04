"""Reads a shell script."""

from __future__ import annotations

from ldlm_doctor.bash_documents import ended_as_meant
from ldlm_doctor.bash_script import Script, options_after
from ldlm_doctor.bash_syntax import parse
from ldlm_doctor.bash_walk import Walk

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Bash takes it for a part of the first word."""


def read_script(content: bytes) -> Script:
    """Reads a script; what bash would not understand is left out.

    One that is nested hundreds of levels deep, as no person writes it, counts as empty.
    """
    meant = ended_as_meant(content)
    root = parse(meant)
    script = Script(
        content,
        root,
        sound=meant == content and not root.has_error and not content.startswith(_BYTE_ORDER_MARK),
    )
    first = content.split(b"\n", 1)[0].decode(errors="replace")
    options = options_after(first.split()[1:]) if first.startswith("#!") else frozenset()
    walk = Walk(script, options)
    try:
        walk.visit(script.root, ())
    except RecursionError:
        return Script(content, parse(b""))
    script.options_at_end = walk.options
    return script
