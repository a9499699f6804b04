"""The table of commands. The command line, its help and its completion are made of it."""

from collections.abc import Iterable
from typing import Annotated, Any

from cyclopts import App, Parameter

COMMANDS: tuple[str, ...] = (
    "attach:attach",
    "bench:bench",
    "compare:compare",
    "setup:dashboards",
    "replay:demo",
    "doctor:doctor",
    "formats:formats",
    "query:goodput",
    "setup:init",
    "mcp:mcp",
    "notify:notify",
    "parse:parse",
    "query:query",
    "replay:replay",
    "report:report",
    "rules:rules",
    "run:run",
    "setup:service",
    "run:stop",
)
"""Of each command its module in this folder, and there the function, or an `App` of commands, that
has its name. The module is imported when the command runs, or its help is shown."""


class CommandLine(App):
    """An `App` with the commands of COMMANDS; `--help` without a command shows what each does."""

    def add_commands(self) -> None:
        """Make the commands known by their names."""
        for each in COMMANDS:
            self.command(f"{__package__}.{each}")
        # Not by cyclopts' own method, which loads the completion at every start.
        self.command(f"{__package__}.completion:install_completion", name="--install-completion")

    def help_print(
        self,
        tokens: Annotated[str | Iterable[str] | None, Parameter(show=False)] = None,
        *,
        console: Annotated[Any, Parameter(parse=False)] = None,
    ) -> None:
        """Print the help for a command line. What a command does is said in its module alone."""
        _, apps, _ = self.parse_commands(tokens)
        if apps[-1] is self:
            for name in self:
                self[name]  # imports its module
        super().help_print(tokens, console=console)
