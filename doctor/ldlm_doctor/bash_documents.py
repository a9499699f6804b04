"""Here-documents of a shell script."""

from __future__ import annotations

from tree_sitter import Node

from ldlm_doctor.bash_inner import Inner, unescaped
from ldlm_doctor.bash_syntax import text_of, unended_documents, within

_ESCAPED = b"$`\\"


def ended_as_meant(content: bytes) -> bytes:
    """Here-documents ended where their author thought, byte for byte as long."""
    meant = bytearray(content)
    for start, end, delimiter in unended_documents(content):
        after = start + len(delimiter)
        meant[after:end] = b"\n" + b"#" * (end - after - 1)
    return bytes(meant)


def document_in(redirect: Node) -> Inner | None:
    """The text of a here-document, as its reader gets it but for the values of variables."""
    body = next(within(redirect, "heredoc_body"), None)
    if body is None:
        return None
    start = next(within(redirect, "heredoc_start"), None)
    quoted = start is not None and text_of(start)[:1] in ("'", '"', "\\")
    source = body.text or b""
    text = source if quoted else unescaped(source, _ESCAPED)
    return Inner(body.start_byte, text, exact=text == source)


def readers_of(redirect: Node, command: Node | None) -> set[str]:
    """The programs that a here-document goes to: the command itself, and those of its pipe."""
    readers = [command, *within(redirect, "command")] if command else []
    return {text_of(reader).split()[0].rsplit("/", 1)[-1] for reader in readers if reader}
