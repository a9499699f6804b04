"""The command line: commands, their flags, help and completion, read by cyclopts."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeAlias

from cyclopts import App, CycloptsError, Group, Parameter

from ldlm_monitor.base.errors import UsageError, one_line
from ldlm_monitor.base.native import version_line
from ldlm_monitor.service.cli import follow
from ldlm_monitor.service.cli.command_table import COMMANDS
from ldlm_monitor.service.cli.flags import JudgeFlags, SharedFlags, hide_dash

Companions: TypeAlias = Annotated[bool | None, Parameter(negative="--no-companions")]
Join: TypeAlias = Annotated[bool | None, Parameter(negative="--no-join")]

# What cyclopts alone needs of the flags: a start that does not need it does not import it.
JudgeFlags.__annotations__ |= {"companions": Companions, "join": Join}
# sort_key 1: below a command's own flags in its help
Parameter(name="*", group=Group("Common flags", sort_key=1))(SharedFlags)


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


app = CommandLine(
    name="ldlm-monitor",
    version=version_line,
    version_flags=["--version", "-V"],
    usage="Usage: ldlm-monitor [FLAGS] FILE_OR_GLOB...\n       ldlm-monitor COMMAND [FLAGS] ...",
    help_format="plaintext",
    # No flags --no-X, and one value for each flag, because the next word may be a file.
    default_parameter=Parameter(negative="", consume_multiple=False),
    result_action="return_value",  # not exit: `main` flushes stdout first
    suppress_keyboard_interrupt=False,  # `main` has an exit code for it
)
app.default(follow.follow)
app.add_commands()


def run(words: Sequence[str]) -> object:
    """Runs the command that the words name; returns what it returns. Raises UsageError."""
    try:
        return app(hide_dash(words), exit_on_error=False, print_error=False, verbose=False)
    except CycloptsError as error:
        raise UsageError(one_line(error), remedy="see ldlm-monitor --help") from error
