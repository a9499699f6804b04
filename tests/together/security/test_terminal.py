"""What a log can do to the terminal of a person who reads it: nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., Any]
ATTACKS = {
    "C1 control sequence": "\u009b2J",
    "C1 operating system command": "\u009d0;title\u009c",
    "right-to-left override": "\u202egnp.exe",
    "isolate": "\u2066hidden\u2069",
    "zero-width space": "ro\u200bot",
    "byte order mark": "\ufeffx",
    "tag characters": "\U000e0041\U000e0042",
    "line separator": "a\u2028b",
    "soft hyphen": "pass\u00adword",
    "escape sequence": "\x1b[2J\x1b]0;title\x07",
}
COMMANDS = [
    ["parse"],
    ["parse", "--stats"],
    ["parse", "--stats", "--format", "json"],
    ["replay"],
    ["replay", "--format", "json"],
    ["report"],
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crash whose every line holds an attack; lines of unknown metrics hold them as well."""
    path = tmp_path_factory.mktemp("terminal") / "attack.log"
    lines = ["step 1 loss 2.5", "step 2 loss nan"]
    for attack in ATTACKS.values():
        lines += [f"the loss: {attack} 2.5 was odd"]
        lines += ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>']
        lines += [f"ValueError: {attack}"]
    path.write_text("\n".join(lines) + "\n", "utf-8", newline="\n")
    return path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_output_holds_what_a_terminal_obeys_or_hides(
    ask: Ask, log: Path, command: list[str]
) -> None:
    answer = ask(*command, str(log))
    assert answer.code in (0, 3)
    shown = answer.out + answer.err
    assert log.name in shown
    assert {name for name, text in ATTACKS.items() if unseen(text) & set(shown)} == set()


def unseen(attack: str) -> set[str]:
    return {each for each in attack if not each.isprintable()}


def test_what_is_escaped_is_the_same_json(ask: Ask, log: Path) -> None:
    records = [json.loads(line) for line in ask("parse", str(log)).out.splitlines()]
    messages = {record.get("message") for record in records}
    assert {f"ValueError: {text}" for text in ATTACKS.values()} & messages
