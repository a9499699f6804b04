"""Scripts inside a script: the text that a command hands to a shell of this host or another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from ldlm_doctor.bash_syntax import text_of, within
from ldlm_doctor.bash_values import Value

SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
READERS = SHELLS | {"sbatch", "qsub", "bsub", "ssh"}
"""What takes a script from a here-document."""

_WITH_VALUE = frozenset("bcDEeFIiJLlmOopQRSWw")
"""Flags of ssh after which a value stands."""
_DOCUMENT_ESCAPES = b"$`\\"
_QUOTED = frozenset({"string", "raw_string"})
_EXPANSIONS = frozenset({"simple_expansion", "expansion"})


Values = Callable[[Node], Value]
"""Gives the value of a word."""


@dataclass(frozen=True, slots=True)
class Inner:
    """A script at a byte of the file that holds it.

    `flags` are those of its shell. `same_shell`: what it sets stays. `exact`: its bytes are those
    of the file; else only its lines are.
    """

    start: int
    text: bytes
    flags: tuple[str, ...] = ()
    same_shell: bool = False
    exact: bool = True


def handed_on(nodes: Sequence[Node]) -> Node | None:
    """The variable that holds the text in `eval "$TEXT"`, `bash -c "$TEXT"`, `ssh HOST "$TEXT"`."""
    if len(nodes) < 2 or not _only_expansions(nodes[-1]):
        return None
    names = _names(nodes[:-1])
    if names == ["eval"] or "ssh" in names:
        return nodes[-1]
    flag = names[-1]
    runs = flag.startswith("-") and not flag.startswith("--") and flag.endswith("c")
    return nodes[-1] if runs and SHELLS.intersection(names) else None


def script_in(nodes: Sequence[Node], value: Values) -> Inner | None:
    """What a command of these words runs in a shell, if its text stands in one place."""
    names = _names(nodes)
    for at, name in enumerate(names):
        rest = nodes[at + 1 :]
        if name in SHELLS:
            return _after_flag(rest, value)
        if name == "ssh":
            return _remote(rest, value)
        if name == "eval" and at == 0 and len(nodes) == 2:
            return _text(nodes[1], value, same_shell=True)
    return None


def _names(nodes: Sequence[Node]) -> list[str]:
    return [text_of(node).rsplit("/", 1)[-1] for node in nodes]


def _after_flag(nodes: Sequence[Node], value: Values) -> Inner | None:
    """`bash -lc TEXT`: the first word after the flags, where one of them is -c."""
    flags: list[str] = []
    for node, word in zip(nodes, _names(nodes), strict=True):
        if flags and flags[-1].endswith("c") and not flags[-1].startswith("--"):
            return _text(node, value, flags=flags)
        if word.startswith("-") and len(word) > 1:
            flags.append(word)
        elif not (flags and flags[-1].endswith("o")):
            return None
    return None


def _remote(nodes: Sequence[Node], value: Values) -> Inner | None:
    """`ssh [-p 22] host COMMAND...`."""
    names, rest = _names(nodes), 0
    while rest < len(names) and names[rest].startswith("-") and len(names[rest]) > 1:
        takes = names[rest][1] in _WITH_VALUE and len(names[rest]) == 2
        rest += 2 if takes else 1
    given = nodes[rest + 1 :]
    if len(given) == 1:
        return _text(given[0], value)
    whole = given[0].parent if given else None
    if whole is None or any(node.type in _QUOTED for node in given):
        return None
    start, offset = given[0].start_byte, whole.start_byte
    return Inner(start, (whole.text or b"")[start - offset : given[-1].end_byte - offset])


def _text(
    node: Node, value: Values, *, flags: Sequence[str] = (), same_shell: bool = False
) -> Inner | None:
    """The text of a quoted word, or of the variable in which it stands."""
    if node.type in _QUOTED and not _only_expansions(node):
        source = (node.text or b"")[1:-1]
        plain = unescaped(source) if node.type == "string" else source
        return Inner(node.start_byte + 1, plain, tuple(flags), same_shell, plain == source)
    pieces = value(node).pieces
    if len(pieces) == 1 and pieces[0].exact:
        piece = pieces[0]
        return Inner(piece.at, piece.text.encode(), tuple(flags), same_shell)
    return None


def _only_expansions(node: Node) -> bool:
    """Whether a word is made of variables alone, quoted or not."""
    parts = node.named_children if node.type == "string" else [node]
    literal = b"".join(part.text or b"" for part in parts if part.type == "string_content")
    return not literal.strip() and any(part.type in _EXPANSIONS for part in parts)


def unescaped(source: bytes, escapes: bytes = b'"$`\\') -> bytes:
    r"""The text that \", \$, \` and \\ stand for; its lines are as long as before.

    In a here-document a quote is none of the `escapes`.
    """
    if b"\\" not in source:
        return source
    lines = []
    for line in source.split(b"\n"):
        text, escaped = bytearray(), False
        for byte in line:
            if escaped:
                text += bytes([byte]) if byte in escapes else b"\\" + bytes([byte])
            elif byte != 0x5C:
                text.append(byte)
            escaped = byte == 0x5C and not escaped
        text += b"\\" * escaped
        padding = b" " * (len(line) - len(text))
        lines.append(padding + bytes(text))
    return b"\n".join(lines)


def document_in(redirect: Node) -> Inner | None:
    """The text of a here-document, as its reader gets it but for the values of variables."""
    body = next(within(redirect, "heredoc_body"), None)
    if body is None:
        return None
    start = next(within(redirect, "heredoc_start"), None)
    quoted = start is not None and text_of(start)[:1] in ("'", '"', "\\")
    source = body.text or b""
    text = source if quoted else unescaped(source, _DOCUMENT_ESCAPES)
    return Inner(body.start_byte, text, exact=text == source)


def readers_of(redirect: Node, command: Node | None) -> set[str]:
    """The programs that a here-document goes to: the command itself, and those of its pipe."""
    readers = [command, *within(redirect, "command")] if command else []
    return {text_of(reader).split()[0].rsplit("/", 1)[-1] for reader in readers if reader}
