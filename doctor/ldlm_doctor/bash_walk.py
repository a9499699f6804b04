"""Walks the tree of a shell script in the order in which the shell runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tree_sitter import Node

from ldlm_doctor import bash_inner
from ldlm_doctor.bash_script import (
    Assignment,
    Command,
    NamedPlace,
    Pipeline,
    Scope,
    Script,
    options_after,
)
from ldlm_doctor.bash_syntax import parse, text_of, within
from ldlm_doctor.bash_values import UNKNOWN, Value
from ldlm_doctor.bash_variables import Variables

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Bash takes it for a part of the first word."""
_SOURCES = frozenset({"source", "."})
_EXPORTING = ("export", "declare -x", "typeset -x")
_BRANCHES = frozenset({"else_clause", "elif_clause", "case_item"})
_ASSIGNED = frozenset({"variable_assignment", "variable_name"})
_SCOPES = frozenset({"do_group", "subshell"})


class _Walk:
    """One pass over the tree, in the order in which the shell runs it."""

    def __init__(self, script: Script, options: frozenset[str]) -> None:
        self._script = script
        self.options = options
        self._variables = Variables()
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
            self.visit(child, scope if child.type in _BRANCHES else inside)
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
            self._variables.forget(text_of(name), scope)
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
            elif child.type == "command_substitution":
                self._children(child, (*scope, child.start_byte))
                if exported:
                    self._exports_of(child, node, scope)
            elif child.type == "variable_name":
                if exported:
                    self._script.exported.add(text_of(child))
                elif "export -n" in words:
                    self._script.removals.append(NamedPlace(text_of(child), node.start_byte, scope))

    def _exports_of(self, substitution: Node, node: Node, scope: Scope) -> None:
        """`export $(grep -v '^#' .env | xargs)`: the file that is read."""
        for command in within(substitution, "command"):
            for word in command.children_by_field_name("argument"):
                name = self._variables.value(word, scope).text
                self._script.sources.append(NamedPlace(name, node.start_byte, scope))

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
            for changed in within(name_node or node, "variable_name"):
                self._variables.forget(text_of(changed), scope)
            return
        name, value, words = text_of(name_node), Value("", node.end_byte, node.end_byte), None
        if value_node is not None:
            value = self._variables.value(value_node, scope)
            self._children(value_node, (*scope, value_node.start_byte))
            words = self._array(value_node, scope) if value_node.type == "array" else None
        appended = any(child.type == "+=" for child in node.children)
        if command is None:
            self._variables.assign(name, scope, value, words, appended=appended)
        if appended:
            value = replace(value, text=UNKNOWN)
        exported = exported or (command is None and "allexport" in self.options)
        self._script.assignments.append(
            Assignment(name, value, node, scope, exported, local, command)
        )

    def _array(self, node: Node, scope: Scope) -> tuple[Value, ...]:
        """The words of an array, which a command is given later."""
        words = tuple(
            word
            for child in node.named_children
            if child.type != "comment"
            for word in self._variables.words(child, scope)
        )
        self._script.arrays.append(Command(words, node, scope, self.options))
        return words

    def _unset(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            if child.type in ("variable_name", "word") and not text_of(child).startswith("-"):
                self._script.removals.append(NamedPlace(text_of(child), node.start_byte, scope))
                self._variables.forget(text_of(child), scope)

    def _redirected(self, node: Node, scope: Scope) -> None:
        body = node.child_by_field_name("body")
        for child in node.children:
            if child.type != "heredoc_redirect":
                self.visit(child, scope)
                continue
            self._children(child, scope)
            document = bash_inner.document_in(child)
            if document is not None and bash_inner.readers_of(child, body) & bash_inner.READERS:
                self._run(document, scope)

    def _run(self, inner: bash_inner.Inner, scope: Scope) -> None:
        """A script within this one, at its place."""
        before = self.options
        if not inner.same_shell:
            self.options = options_after([*inner.flags, "--"])
        if not inner.exact:
            self._script.inexact.append((inner.start, inner.start + len(inner.text)))
        root = parse(b" " * inner.start + inner.text)
        self._children(root, scope if inner.same_shell else (*scope, inner.start))
        if not inner.same_shell:
            self.options = before

    def _command(self, node: Node, scope: Scope) -> None:
        words: list[Value] = []
        given: list[Node] = []
        for child in node.children:
            if child.type == "variable_assignment":
                self._assign(child, scope, command=node)
            elif child.type == "file_redirect":
                continue
            elif child.is_named and child.type not in ("herestring_redirect", "comment"):
                given.append(child)
                words.extend(self._variables.words(child, scope))
                for inner in within(child, "command_substitution", "process_substitution"):
                    self._children(inner, (*scope, inner.start_byte))
        text = bash_inner.handed_on(given)
        if text is not None:
            plain = self._variables.words(text, scope)
            words[len(words) - len(plain) :] = self._variables.value(text, scope).split
        command = Command(tuple(words), node, scope, self.options)
        self._script.commands.append(command)
        self._effects(command, node, scope)
        inner_script = bash_inner.script_in(given, lambda word: self._variables.value(word, scope))
        if inner_script is not None:
            self._run(inner_script, scope)

    def _effects(self, command: Command, node: Node, scope: Scope) -> None:
        """What a command does to the shell itself, or runs in one of its own."""
        texts = command.texts
        name = texts[0].rsplit("/", 1)[-1] if texts else ""
        if name == "set":
            self.options = options_after(list(texts[1:]), self.options)
        elif name in ("read", "mapfile", "readarray", "getopts", "printf"):
            for word in texts[1:]:
                self._variables.forget(word, scope)
        elif name == ":":
            self._assigned_defaults(node, scope)
        elif name in _SOURCES and len(texts) > 1:
            self._script.sources.append(NamedPlace(texts[1], node.start_byte, scope))

    def _assigned_defaults(self, node: Node, scope: Scope) -> None:
        """`: "${NAME:=value}"` gives NAME a value where it has none."""
        for expansion in within(node, "expansion"):
            parts = expansion.named_children
            signs = {child.type for child in expansion.children}
            if len(parts) == 2 and signs & {":=", "="}:
                value = self._variables.value(expansion, scope)
                name = text_of(parts[0])
                self._script.assignments.append(Assignment(name, value, expansion, scope))
                self._variables.assign(name, scope, value)


def read_script(content: bytes, path: str = "") -> Script:
    """Parse a script. Syntax errors are left out; nesting beyond the recursion limit is empty."""
    root = parse(content)
    sound = not root.has_error and not content.startswith(_BYTE_ORDER_MARK)
    script = Script(content, root, path, sound)
    first = content.split(b"\n", 1)[0].decode(errors="replace")
    options = options_after(first.split()[1:]) if first.startswith("#!") else frozenset()
    walk = _Walk(script, options)
    try:
        walk.visit(script.root, ())
    except RecursionError:
        return Script(content, parse(b""), path)
    script.options_at_end = walk.options
    return script
