"""Reads a shell script: walks its tree in the order in which the shell would come by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tree_sitter import Node

from ldlm_monitor.doctor.bash_script import (
    Assignment,
    Command,
    Pipeline,
    Redirect,
    Removal,
    Scope,
    Script,
)
from ldlm_monitor.doctor.bash_syntax import (
    UNKNOWN,
    Value,
    parse,
    text_of,
    unended_documents,
    value_of,
    within,
)

_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_READERS = _SHELLS | {"sbatch", "qsub", "bsub", "ssh"}
_EXPORTING = ("export", "declare -x", "typeset -x")
_LETTERS = {"e": "errexit", "a": "allexport", "x": "xtrace", "u": "nounset"}
_BRANCHES = frozenset({"else_clause", "elif_clause", "case_item"})
_ASSIGNED = frozenset({"variable_assignment", "variable_name"})
_SCOPES = frozenset({"do_group", "subshell"})


def read_script(content: bytes) -> Script:
    """Reads a script; what bash would not understand is left out.

    One that is nested hundreds of levels deep, as no person writes it, counts as empty.
    """
    meant = _as_meant(content)
    root = parse(meant)
    script = Script(content, root, sound=meant == content and not root.has_error)
    first = content.split(b"\n", 1)[0].decode(errors="replace")
    options = _options(first.split()[1:]) if first.startswith("#!") else frozenset()
    walk = _Walk(script, options)
    try:
        walk.visit(script.root, ())
    except RecursionError:
        return Script(content, parse(b""))
    script.options_at_end = walk.options
    return script


def _as_meant(content: bytes) -> bytes:
    """Here-documents ended where their author thought, byte for byte as long."""
    meant = bytearray(content)
    for start, end, delimiter in unended_documents(content):
        after = start + len(delimiter)
        meant[after:end] = b"\n" + b"#" * (end - after - 1)
    return bytes(meant)


def _options(words: list[str], before: frozenset[str] = frozenset()) -> frozenset[str]:
    """The shell's options after `set WORDS`."""
    options = set(before)
    named = ""
    for word in words:
        if named:
            (options.add if named == "-" else options.discard)(word)
            named = ""
            continue
        if word == "--" or word[:1] not in ("-", "+"):
            break
        for letter in word[1:]:
            if letter == "o":
                named = word[0]
            elif letter in _LETTERS:
                (options.add if word[0] == "-" else options.discard)(_LETTERS[letter])
    return frozenset(options)


class _Walk:
    """One pass over the tree, in the order in which the shell would come by."""

    def __init__(self, script: Script, options: frozenset[str]) -> None:
        self._script = script
        self.options = options
        self._known: dict[str, list[tuple[Scope, str]]] = {}
        self._special: dict[str, Callable[[Node, Scope], None]] = {
            "if_statement": self._branches,
            "function_definition": self._function,
            "for_statement": self._loop,
            "c_style_for_statement": self._loop,
            "list": self._list,
            "pipeline": self._pipeline,
            "declaration_command": self._declaration,
            "variable_assignment": self._assign,
            "unset_command": self._unset,
            "command": self._command,
            "redirected_statement": self._redirected,
        }

    def visit(self, node: Node, scope: Scope) -> None:
        """One statement, or a part that holds some."""
        if node.type in ("comment", "heredoc_body", "ERROR"):
            return
        special = self._special.get(node.type)
        if special is not None:
            special(node, scope)
            return
        before = self.options
        if node.type in _BRANCHES:
            self._script.conditions.add(node.start_byte)
        inner = node.type in _BRANCHES or node.type in _SCOPES
        self._children(node, (*scope, node.start_byte) if inner else scope)
        if node.type in ("subshell", "command_substitution", "process_substitution"):
            self.options = before

    def _children(self, node: Node, scope: Scope) -> None:
        for child in node.children:
            self.visit(child, scope)

    def _branches(self, node: Node, scope: Scope) -> None:
        """The condition always runs, what stands after `then` may not."""
        inside = scope
        for child in node.children:
            self.visit(child, inside)
            if child.type == "then":
                inside = (*scope, child.start_byte)
                self._script.conditions.add(child.start_byte)

    def _function(self, node: Node, scope: Scope) -> None:
        name = node.child_by_field_name("name")
        inner = (*scope, node.start_byte)
        self._script.functions[text_of(name) if name else ""] = inner
        self._children(node, inner)

    def _loop(self, node: Node, scope: Scope) -> None:
        name = node.child_by_field_name("variable")
        if name is not None:
            self._forget(text_of(name), scope)
        self._children(node, scope)

    def _list(self, node: Node, scope: Scope) -> None:
        left, *rest = node.children
        self.visit(left, scope)
        for child in rest:
            self._script.conditions.add(child.start_byte)
            self.visit(child, (*scope, node.start_byte, child.start_byte))

    def _pipeline(self, node: Node, scope: Scope) -> None:
        stages = tuple(child for child in node.children if child.is_named)
        before = self.options
        self._script.pipelines.append(Pipeline(stages, node, scope, before))
        self._children(node, scope)
        self.options = before

    def _declaration(self, node: Node, scope: Scope) -> None:
        words = " ".join(
            text_of(child) for child in node.children if child.type not in _ASSIGNED
        ).strip()
        exported = words.startswith(_EXPORTING) and "-n" not in words
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child, scope, exported=exported, local=words.startswith("local"))
            elif child.type == "variable_name":
                if exported:
                    self._script.exported.add(text_of(child))
                elif "export -n" in words:
                    self._script.removals.append(Removal(text_of(child), node, scope))

    def _assign(
        self,
        node: Node,
        scope: Scope,
        *,
        exported: bool = False,
        local: bool = False,
        command: Node | None = None,
    ) -> None:
        name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name_node is None or name_node.type != "variable_name":
            return
        name = text_of(name_node)
        if value_node is None:
            value = Value("", node.end_byte, node.end_byte)
        else:
            value = value_of(value_node, lambda other: self._lookup(other, scope))
            self._children(value_node, (*scope, value_node.start_byte))
        if any(child.type == "+=" for child in node.children):
            value = replace(value, text=UNKNOWN)
        exported = exported or (command is None and "allexport" in self.options)
        self._script.assignments.append(
            Assignment(name, value, node, scope, exported, local, command)
        )
        if value_node is not None and value_node.type == "array":
            self._array(value_node, scope)
        if command is None:
            self._known.setdefault(name, []).append((scope, value.text))

    def _array(self, node: Node, scope: Scope) -> None:
        """The words of an array, which a command is given later."""
        words = [
            value_of(child, lambda other: self._lookup(other, scope))
            for child in node.named_children
            if child.type != "comment"
        ]
        self._script.arrays.append(Command(tuple(words), node, scope, self.options))

    def _unset(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            if child.type in ("variable_name", "word") and not text_of(child).startswith("-"):
                self._script.removals.append(Removal(text_of(child), node, scope))
                self._forget(text_of(child), scope)

    def _redirected(self, node: Node, scope: Scope) -> None:
        body = node.child_by_field_name("body")
        redirects = tuple(self._redirects(node, scope))
        for child in node.children:
            if child == body and child.type == "command":
                self._command(child, scope, redirects)
            elif child.type == "heredoc_redirect":
                self._children(child, scope)
                self._fed(child, body, scope)
            else:
                self.visit(child, scope)

    def _fed(self, document: Node, command: Node | None, scope: Scope) -> None:
        """A here-document that a shell or a scheduler gets is a script, read in its place."""
        body = next(within(document, "heredoc_body"), None)
        readers = [command, *within(document, "command")] if command else []
        names = {text_of(reader).split()[0].rsplit("/", 1)[-1] for reader in readers if reader}
        if body is not None and names & _READERS:
            inner = b" " * body.start_byte + (body.text or b"")
            before, self.options = self.options, frozenset()
            self._children(parse(inner), (*scope, body.start_byte))
            self.options = before

    def _redirects(self, node: Node, scope: Scope) -> Iterator[Redirect]:
        for child in node.children:
            if child.type != "file_redirect":
                continue
            target = child.child_by_field_name("destination")
            sign = next((part for part in child.children if ">" in part.type), None)
            if target is not None and sign is not None:
                value = value_of(target, lambda other: self._lookup(other, scope))
                yield Redirect(sign.type, (sign.start_byte, sign.end_byte), value)

    def _command(self, node: Node, scope: Scope, redirects: tuple[Redirect, ...] = ()) -> None:
        words = []
        for child in node.children:
            if child.type == "variable_assignment":
                self._assign(child, scope, command=node)
            elif child.type == "file_redirect":
                continue
            elif child.is_named and child.type not in ("herestring_redirect", "comment"):
                words.append(value_of(child, lambda other: self._lookup(other, scope)))
                for inner in within(child, "command_substitution", "process_substitution"):
                    self._children(inner, (*scope, inner.start_byte))
        own = (*redirects, *self._redirects(node, scope))
        command = Command(tuple(words), node, scope, self.options, own)
        self._script.commands.append(command)
        self._effects(command, node, scope)

    def _effects(self, command: Command, node: Node, scope: Scope) -> None:
        """What a command does to the shell itself, or runs in one of its own."""
        texts = command.texts
        name = texts[0].rsplit("/", 1)[-1] if texts else ""
        if name == "set":
            self.options = _options(list(texts[1:]), self.options)
        elif name in ("read", "mapfile", "readarray", "getopts", "printf"):
            for word in texts[1:]:
                self._forget(word, scope)
        elif name == ":":
            self._assigned_defaults(node, scope)
        self._inner_scripts(command, scope)

    def _assigned_defaults(self, node: Node, scope: Scope) -> None:
        """`: "${NAME:=value}"` gives NAME a value where it has none."""
        for expansion in within(node, "expansion"):
            parts = expansion.named_children
            signs = {child.type for child in expansion.children}
            if len(parts) == 2 and signs & {":=", "="}:
                value = value_of(expansion, lambda other: self._lookup(other, scope))
                name = text_of(parts[0])
                self._script.assignments.append(Assignment(name, value, expansion, scope))
                self._known.setdefault(name, []).append((scope, value.text))

    def _inner_scripts(self, command: Command, scope: Scope) -> None:
        """`bash -c '...'`, also behind srun or ssh: its text is a script, read in its place."""
        names = [word.text.rsplit("/", 1)[-1] for word in command.words]
        for at, name in enumerate(names):
            if name not in _SHELLS:
                continue
            flags = names[at + 1 : -1]
            if flags and all(flag.startswith("-") for flag in flags) and flags[-1].endswith("c"):
                last = command.node.named_children[-1]
                if last.type in ("raw_string", "string"):
                    start, end = last.start_byte + 1, last.end_byte - 1
                    inner = b" " * start + self._script.content[start:end]
                    before, self.options = self.options, _options([*flags, "--"])
                    self._children(parse(inner), (*scope, start))
                    self.options = before
            return

    def _lookup(self, name: str, scope: Scope) -> str:
        """The latest value, if its assignment came by wherever the scope is entered."""
        where, text = self._known.get(name, [((), UNKNOWN)])[-1]
        return text if where == scope[: len(where)] else UNKNOWN

    def _forget(self, name: str, scope: Scope) -> None:
        self._known.setdefault(name, []).append((scope, UNKNOWN))
