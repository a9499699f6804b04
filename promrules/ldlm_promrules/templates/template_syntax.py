"""The syntax of Go's templates: text with actions, parsed to a tree.

Source: Go's `text/template/parse` (`parse.go`) of the release that Prometheus 3 is built
with. The error messages are our own; what is an error is Go's decision.
"""

import math
from collections.abc import Collection, Iterator
from typing import cast

from ldlm_promrules.golang import unquoted
from ldlm_promrules.templates.template_tokens import Token, tokens
from ldlm_promrules.templates.template_tree import (
    Branch,
    Constant,
    Function,
    Include,
    Leave,
    Node,
    Nodes,
    Operand,
    Pipe,
    Read,
    Word,
)

MAX_NESTING = 40  # blocks and parentheses within each other. A choice, for Python's stack
_WORDS = ("if", "with", "range")
_KEYWORDS = frozenset({*_WORDS, "block", "break", "continue", "define", "else", "end", "template"})
_CONSTANTS = {"true": True, "false": False, "nil": None}


class TemplateParser:
    """Parses one template. `functions`: names that may be called; `variables` that it may read.

    `templates`: those that it defines, by name; `called`: its functions. Raises ValueError for
    what Go would not parse.
    """

    def __init__(self, functions: Collection[str], variables: Collection[str]) -> None:
        self.templates: dict[str, Nodes] = {}
        self.called: set[str] = set()
        self._functions = functions
        self._variables = list(variables)
        self._tokens: list[Token] = []
        self._nesting = self._loops = 0

    def parse(self, source: str) -> Nodes:
        """The nodes of the whole template."""
        self._tokens = [*tokens(source), Token("end", "the template's end")][::-1]
        nodes, stop = self._sequence()
        if stop:
            raise ValueError(f"{{{{ {stop} }}}} without a block")
        return nodes

    def _take(self, *kinds: str, within: str) -> str:
        token = self._tokens.pop()
        if token.kind not in kinds:
            raise ValueError(f"unexpected {token.text} in {within}")
        return token.text

    def _takes(self, kind: str, *texts: str) -> bool:
        """Whether the next token is one of these; it is then taken."""
        token = self._tokens[-1]
        if token.kind == kind and token.text in texts:
            self._tokens.pop()
            return True
        return False

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise ValueError(f"nested deeper than {MAX_NESTING} levels")

    def _sequence(self) -> tuple[Nodes, str]:
        """The nodes up to an `else` or `end`, and that word; "" where the template ends first."""
        self._enter()
        nodes: list[Node] = []
        stop = ""
        while not stop and (token := self._tokens[-1]).kind != "end":
            if token.kind == "text":
                nodes += [text] if (text := self._tokens.pop().text) else []
            elif token.kind == "word" and token.text in ("else", "end"):
                stop = self._tokens.pop().text
            elif token.kind == "word" and token.text in _KEYWORDS:
                nodes += self._keyword(self._tokens.pop().text)
            else:
                nodes.append(self._pipeline("an action"))
        if stop == "end":
            self._take("close", within="end")
        self._nesting -= 1
        return tuple(nodes), stop

    def _keyword(self, word: str) -> Iterator[Node]:
        if word in _WORDS:
            yield self._block(cast(Word, word))
        elif word in ("break", "continue"):
            self._take("close", within=word)
            if not self._loops:
                raise ValueError(f"{{{{ {word} }}}} outside {{{{ range }}}}")
            yield Leave(word)
        else:
            name = unquoted(self._take("string", within=word))
            pipe = None
            if word == "define" and self._nesting > 1:
                raise ValueError("{{ define }} within a block")
            if word == "block" or (word == "template" and self._tokens[-1].kind != "close"):
                pipe = self._pipeline(word)
            else:
                self._take("close", within=word)
            if word != "template":
                self._define(name)
            if word != "define":
                yield Include(name, pipe)

    def _define(self, name: str) -> None:
        outside, self._variables = self._variables, ["$"]
        loops, self._loops = self._loops, 0
        nodes, stop = self._sequence()
        self._variables, self._loops = outside, loops
        if stop != "end":
            raise ValueError(f"{{{{ define {name} }}}} is closed by {stop or 'nothing'}")
        if _is_blank(self.templates.get(name, ())):
            self.templates[name] = nodes
        elif not _is_blank(nodes):
            raise ValueError(f"template {name!r} is defined twice")

    def _block(self, word: Word) -> Branch:
        known = len(self._variables)
        pipe = self._pipeline(word)
        self._loops += word == "range"
        then, stop = self._sequence()
        self._loops -= word == "range"
        otherwise: Nodes = ()
        if stop == "else":
            if word != "range" and self._takes("word", word):
                otherwise, stop = (self._block(word),), "end"
            else:
                self._take("close", within="else")
                otherwise, stop = self._sequence()
        if stop != "end":
            raise ValueError(f"{{{{ {word} }}}} is closed by {stop or 'nothing'}")
        del self._variables[known:]
        return Branch(word, pipe, then, otherwise)

    def _pipeline(self, within: str, end: str = "}}") -> Pipe:
        self._enter()
        names, assigns = self._declared(within)
        commands = [self._command(within)]
        while self._takes("sign", "|") and self._tokens[-1].text != end:  # Go lets a pipe end it
            commands.append(self._command(within))
            if isinstance(commands[-1][0], Constant) or commands[-1][0] == Read("."):
                raise ValueError(f"a pipe in {within} leads into a value")
        if (text := self._tokens.pop().text) != end:
            raise ValueError(f"unexpected {text} in {within}")
        self._nesting -= 1
        return Pipe(names, assigns, tuple(commands))

    def _declared(self, within: str) -> tuple[tuple[str, ...], bool]:
        """The variables that a pipeline sets, and whether they exist before (`=`, not `:=`)."""
        names: list[str] = []
        ahead = -1
        while self._tokens[ahead].kind == "variable":
            names.append(self._tokens[ahead].text)
            sign = self._tokens[ahead - 1]
            ahead -= 2
            if sign.kind != "sign" or sign.text not in (":=", "=", ","):
                break
            if sign.text != ",":
                del self._tokens[ahead + 1 :]
                self._variables += names
                return tuple(names), sign.text == "="
            if within != "range" or len(names) > 1:
                raise ValueError(f"too many declarations in {within}")
        return (), False

    def _command(self, within: str) -> tuple[Operand, ...]:
        operands: list[Operand] = []
        while (operand := self._operand()) is not None:
            operands.append(operand)
            following = self._tokens[-1]
            if not following.spaced and following.kind != "close" and following.text not in "|)":
                raise ValueError(f"unexpected {following.text} in {within}")
        if not operands:
            raise ValueError(f"a value is missing in {within}")
        return tuple(operands)

    def _operand(self) -> Operand | None:
        term = self._term()
        fields = []
        while term is not None and self._tokens[-1].kind == "field" and not self._tokens[-1].spaced:
            fields.append(self._tokens.pop().text[1:])
        if not fields or term is None:
            return term
        if isinstance(term, Constant) or term == Read("."):
            raise ValueError(f"unexpected .{fields[0]} after a value")
        if isinstance(term, Read):
            return Read(term.of, (*term.fields, *fields))
        return Read(term, tuple(fields))

    def _term(self) -> Operand | None:
        kind, text = self._tokens[-1].kind, self._tokens[-1].text
        if kind in ("close", "end", "text") or text in ("|", ")", ",", "=", ":="):
            return None
        self._tokens.pop()
        match kind:
            case "dot":
                term: Operand | None = Read(".")
            case "field":
                term = Read(".", (text[1:],))
            case "variable":
                term = Read(text) if text in self._variables else None
            case "string" | "char":
                term = Constant(_literal(text))
            case "number":
                term = Constant(_number(text))
            case "sign":
                term = self._pipeline("parentheses", ")")
            case _:
                term = Constant(_CONSTANTS[text]) if text in _CONSTANTS else self._function(text)
        if term is None:
            raise ValueError(f"{text} is not defined")
        return term

    def _function(self, name: str) -> Function | None:
        if name not in self._functions:
            return None
        self.called.add(name)
        return Function(name)


def _is_blank(nodes: Nodes) -> bool:
    return all(isinstance(node, str) and not node.strip() for node in nodes)


def _literal(text: str) -> str | int:
    found = unquoted(text)
    if text[0] != "'":
        return found
    if len(found) != 1:
        raise ValueError(f"{text} is not one character")
    return ord(found)


def _number(text: str) -> int | float:
    """Go's value of a number (`strconv`); only one with a `.` or an exponent is a float."""
    digits = text.lower().lstrip("+-")
    if digits.startswith("0x") and ("." in digits or "p" in digits):
        return float.fromhex(text)
    if not digits.startswith("0x") and ("." in digits or "e" in digits):
        if math.isinf(value := float(text)):
            raise ValueError(f"the number {text} is too large")
        return value
    octal = digits[0] == "0" and digits[1:].replace("_", "").isdecimal()
    number = int(text.replace("_", ""), 8) if octal else int(text, 0)
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"the number {text} is too large")
    return number
