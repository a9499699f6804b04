"""Every command of ldlm-monitor in README and docs is one that the program accepts.

They are parsed and not run: many follow logs, start a training or write to Slack.
"""

import re
import shlex
from pathlib import Path

import pytest

from ldlm_monitor.cli import app
from ldlm_monitor.cli.flags import hide_dash

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
_BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.M | re.S)
_COMMAND = re.compile(r"(?:^|[;&|(] *)(?:\S*/)?ldlm-monitor (?=\S)(.*)")
_ENDS = {"|", ">", ">>", "2>", "2>&1", "&&", "||", ";", "&", "<"}


def commands() -> list[tuple[str, str]]:
    """The page and the words after the program's name of each command in a block of shell."""
    found = []
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                if not line.lstrip().startswith("#") and (match := _COMMAND.search(line.strip())):
                    found.append((str(page.relative_to(ROOT)), match.group(1)))
    return found


def words(text: str) -> list[str]:
    """The words of a command up to a comment, a pipe or a redirection."""
    given: list[str] = []
    for word in shlex.split(text, comments=True):
        if word in _ENDS:
            break
        given.append(word)
        if word.endswith(";"):
            given[-1] = word[:-1]
            break
    return given


def test_the_pages_show_commands() -> None:
    assert len(commands()) > 50


@pytest.mark.parametrize(("page", "text"), commands())
def test_a_command_of_the_docs_is_accepted(page: str, text: str) -> None:
    app.parse_args(hide_dash(words(text)), exit_on_error=False, print_error=False)
