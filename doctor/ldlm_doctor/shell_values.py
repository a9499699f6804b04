"""Values that a launch script works out wrongly, and restores that delete."""

from __future__ import annotations

from collections.abc import Iterator

import re2
from tree_sitter import Node

from ldlm_doctor.bash_script import Command, Script
from ldlm_doctor.bash_syntax import text_of, unended_documents, within
from ldlm_doctor.bash_values import UNKNOWN
from ldlm_doctor.finding import Check, Finding

BC_EXPONENT = Check(
    "bc-exponent",
    "error",
    "bc is given a number with an exponent",
    "bc does not know 5e-5: it reports a syntax error and prints nothing, and the variable stays "
    "empty, here a learning rate or a factor of one.",
    "POSIX bc; tried with GNU bc 1.07",
    "",
    'Use awk or Python: python -c "print(5e-5 * 2)".',
)
ACCUMULATION_ROUNDED = Check(
    "accumulation-rounded",
    "warning",
    "Gradient accumulation is rounded down",
    "The shell divides integers: 128 / (4 * 24) is 1, and the batch is 96 instead of 128, "
    "without a "
    "word; where the divisor is greater, it is 0.",
    "https://www.gnu.org/software/bash/manual/bash.html#Shell-Arithmetic",
    "",
    "Stop where the division leaves a remainder: (( target % divisor == 0 )) || exit 1.",
)
HEREDOC_QUOTED = Check(
    "heredoc-not-expanded",
    "error",
    "A quoted here-document uses a variable of the shell",
    "With quotes around its delimiter nothing in it is expanded: the program sees ${NAME} as it is "
    "written.",
    "https://www.gnu.org/software/bash/manual/bash.html#Here-Documents",
    "",
    "Export the variable and read it in the program (os.environ), or pass it as an argument.",
)
HEREDOC_OPEN = Check(
    "heredoc-not-ended",
    "error",
    "A here-document does not end where it seems to",
    "The delimiter must stand alone on its line. With words after it, the rest of the script "
    "belongs to the here-document, and the words are no arguments.",
    "https://www.gnu.org/software/bash/manual/bash.html#Here-Documents",
    "",
    "Give the arguments where the program is called: python - \"$a\" <<'EOF'.",
)
RESTORE_DELETES = Check(
    "restore-from-unset",
    "critical",
    "A restore deletes first, and copies from a variable that may be empty",
    "In a new shell the variable is not set: what is there is deleted, and the copy fails.",
    "https://www.gnu.org/software/bash/manual/bash.html#Shell-Parameter-Expansion",
    "",
    'Copy before anything is deleted, and stop where the variable is empty: "${BACKUP:?}". Better: '
    "a tag of git, or ldlm-monitor doctor --rollback.",
)
STEP_UNKNOWN = Check(
    "step-unknown-to-shell",
    "warning",
    "A launch script asks for the training's step, which it cannot know",
    "The variable is set nowhere in the script: its default holds for the whole run, whatever "
    "the training does after it has started.",
    "https://www.gnu.org/software/bash/manual/bash.html#Shell-Parameter-Expansion",
    "",
    "Change batch size or accumulation in the training loop, by its own step.",
)
CHECKS = (
    BC_EXPONENT, ACCUMULATION_ROUNDED, HEREDOC_QUOTED, HEREDOC_OPEN, STEP_UNKNOWN, RESTORE_DELETES,
)  # fmt: skip

_EXPONENT = re2.compile(r"(?:^|[^0-9A-Za-z_.])[0-9]+\.?[0-9]*[eE][-+]?[0-9]+(?:$|[^0-9A-Za-z_.])")
_STEP = re2.compile(r"(?i)^(?:state|global|current|train|training)_?step$")
_ACCUMULATION = re2.compile(r"(?i)accum")
_BACKUP = re2.compile(r"(?i)backup|bak|snapshot|_old|orig")
_ROUNDED_UP = re2.compile(r"[-+]\s*1\b|%")
_SHELL_NAME = re2.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def exponents(script: Script, path: str) -> Iterator[Finding]:
    """`echo "5e-5 * 2" | bc`, also where the number stands in a variable."""
    for pipeline in script.pipelines:
        stages = [list(script.commands_within(stage)) for stage in pipeline.stages]
        if stages[-1] and stages[-1][0].texts[:1] == ("bc",):
            for command in (command for stage in stages[:-1] for command in stage):
                if any(_EXPONENT.search(text) for text in command.texts[1:]):
                    yield _at(script, path, command.node, BC_EXPONENT)


def accumulation(script: Script, path: str) -> Iterator[Finding]:
    """A plain division, in a script that never looks at a remainder."""
    if next(within(script.root, "%"), None) is not None:
        return
    for assignment in script.assignments:
        value = assignment.node.child_by_field_name("value")
        if value is None or not _ACCUMULATION.search(assignment.name):
            continue
        for sum_ in within(value, "arithmetic_expansion"):
            divides = next(within(sum_, "/"), None) is not None
            if divides and not _ROUNDED_UP.search(text_of(sum_)):
                yield _at(script, path, assignment.node, ACCUMULATION_ROUNDED)


def heredocs(script: Script, path: str) -> Iterator[Finding]:
    """Here-documents that do not end, or that want what they do not get."""
    for at, _, delimiter in unended_documents(script.content):
        line, evidence = script.line_at(at), script.line_text(at)
        yield Finding(HEREDOC_OPEN, path, line, evidence, delimiter)
    own = {assignment.name for assignment in script.assignments}
    for document in within(script.root, "heredoc_redirect"):
        start = next(within(document, "heredoc_start"), None)
        body = next(within(document, "heredoc_body"), None)
        quoted = start is not None and text_of(start)[:1] in ("'", '"', "\\")
        if quoted and body is not None and _runs_python(document):
            yield from _unexpanded(script, path, body, own)


def _runs_python(document: Node) -> bool:
    statement = document.parent
    command = next(within(statement, "command"), None) if statement else None
    return command is not None and "python" in text_of(command).split()[0]


def _unexpanded(script: Script, path: str, body: Node, own: set[str]) -> Iterator[Finding]:
    reported = set()
    text = text_of(body)
    for found in _SHELL_NAME.finditer(text):
        name = str(found.group(1))
        if name in own and name not in reported:
            reported.add(name)
            at = body.start_byte + len(text[: found.start()].encode())
            yield Finding(
                HEREDOC_QUOTED, path, script.line_at(at), script.line_text(at), f"${{{name}}}"
            )


def steps(script: Script, path: str) -> Iterator[Finding]:
    """`[ "${state_step:-0}" -lt 10000 ]` where nothing sets state_step."""
    own = {assignment.name for assignment in script.assignments}
    for test in within(script.root, "test_command"):
        for name in within(test, "variable_name"):
            if _STEP.match(text_of(name)) and text_of(name) not in own:
                yield _at(script, path, name, STEP_UNKNOWN, text_of(name))


def restores(script: Script, path: str) -> Iterator[Finding]:
    """`rm -rf X`, then `cp -r $BACKUP X`, where the script does not set BACKUP."""
    own = {assignment.name for assignment in script.assignments}
    deleted: dict[str, Command] = {}
    for command in script.commands:
        texts = command.texts
        if texts[:1] == ("rm",) and any(t.startswith("-") and "r" in t.lower() for t in texts[1:]):
            deleted.update({text: command for text in texts[1:] if not text.startswith("-")})
        elif texts[:1] in (("cp",), ("mv",)) and "nounset" not in command.options:
            target = texts[-1] if texts[-1] != UNKNOWN else ""
            unset = [
                text_of(name)
                for node in command.node.named_children[1:-1]
                for name in within(node, "variable_name")
                if _BACKUP.search(text_of(name))
                and text_of(name) not in own
                and ":?" not in text_of(node)
            ]
            if target in deleted and unset:
                yield _at(script, path, deleted[target].node, RESTORE_DELETES, unset[0])


def _at(script: Script, path: str, node: Node, check: Check, detail: str = "") -> Finding:
    at = node.start_byte
    return Finding(check, path, script.line_at(at), script.line_text(at), detail)
