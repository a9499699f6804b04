"""A command is a module and a line in the table, and is loaded when it is asked for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ldlm_monitor.service.cli.command_line import app
from ldlm_monitor.service.cli.command_table import COMMANDS
from tests.service.extended import Extended

NAMES = [each.partition(":")[2].replace("_", "-") for each in COMMANDS]
GREET = '''
"""`ldlm-monitor greet`."""

from ldlm_monitor.base.errors import UsageError


def greet(name: str, *, loud: bool = False) -> int:
    """Greets somebody.

    Args:
        name: Whom.
        loud: In capitals.
    """
    if name == "nobody":
        raise UsageError("is nobody", where="greet", remedy="name somebody")
    print(name.upper() if loud else name)
    return 3
'''


@pytest.mark.parametrize("name", NAMES)
def test_each_line_names_a_command_that_says_what_it_does(name: str) -> None:
    assert app[name].name == (name,)
    assert app[name].help.partition("\n")[0].endswith(".")


def test_the_lines_are_in_the_order_of_the_commands() -> None:
    assert sorted(NAMES) == NAMES


@pytest.fixture
def extended(tmp_path: Path) -> Extended:
    made = Extended(tmp_path / "package")
    made.add("service/cli/greet.py", GREET)
    made.add_lines("service/cli/command_table.py", '    "setup:init"', '    "greet:greet",')
    return made


@pytest.mark.live
def test_a_command_is_one_module_and_one_line(extended: Extended, tmp_path: Path) -> None:
    assert extended.run("greet", "ada", "--loud", cwd=tmp_path) == (3, "ADA\n", "")
    refused = "ldlm-monitor: greet: is nobody; name somebody\n"
    assert extended.run("greet", "nobody", cwd=tmp_path) == (2, "", refused)
    code, out, _ = extended.run("greet", "--help", cwd=tmp_path)
    assert code == 0
    assert "In capitals." in out
    assert "│ greet                 Greets somebody." in extended.run("--help", cwd=tmp_path)[1]
    mistyped = "ldlm-monitor: gret: neither a file nor a command; did you mean ldlm-monitor greet?"
    assert extended.run("gret", cwd=tmp_path)[2].startswith(mistyped)


LOADED = """
import json, sys
from ldlm_monitor.service.cli import main
main(sys.argv[1:])
print(json.dumps([name for name in sys.modules if name.startswith("ldlm_monitor.service.cli.")]))
"""


@pytest.mark.parametrize(
    ("words", "module"),
    [("rules --help", "rules"), ("stop nothing", "run"), ("parse no-such-file", "parse")],
)
def test_only_the_command_that_is_asked_for_is_loaded(words: str, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words.split()], capture_output=True, text=True, check=True
    )
    loaded = {name.rpartition(".")[2] for name in json.loads(done.stdout.splitlines()[-1])}
    modules = {each.partition(":")[0] for each in COMMANDS}
    assert loaded & modules == {module}
