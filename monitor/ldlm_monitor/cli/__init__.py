"""The command line: it alone turns errors into words and exit codes.

Commands import what they need when they run, so that `--help` and `--version` are quick.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from cyclopts import App, CycloptsError

from ldlm_monitor import __version__
from ldlm_monitor.cli import follow, notify, parse, replay, report, rules
from ldlm_monitor.cli.flags import hide_dash
from ldlm_monitor.errors import LdlmError

INTERRUPTED = 130
_PACKAGE = Path(__file__).resolve().parent.parent

app = App(
    name="ldlm-monitor",
    version=f"ldlm-monitor {__version__}",
    version_flags=["--version", "-V"],
    usage="Usage: ldlm-monitor [FLAGS] FILE_OR_GLOB...\n       ldlm-monitor COMMAND [FLAGS] ...",
    help_format="plaintext",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.default(follow.follow)
app.command(parse.parse)
app.command(replay.replay)
app.command(report.report)
app.command(rules.app)
app.command(notify.app)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line (None: the process's) and returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(
            hide_dash(sys.argv[1:] if argv is None else argv),
            exit_on_error=False,
            print_error=False,
            verbose=False,
        )
        sys.stdout.flush()
    except CycloptsError as error:
        return _complain(f"{_one_line(error)}; see ldlm-monitor --help", 2)
    except LdlmError as error:
        return _complain(_one_line(error), error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone, as with `| head`: Python's own flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the process's edge: a bug gets words and code 1
        return _complain(_bug(error), 1)
    return code if isinstance(code, int) else 0


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _complain(text: str, code: int) -> int:
    print(f"ldlm-monitor: {text}", file=sys.stderr)
    return code


def _bug(error: Exception) -> str:
    """Names the line of ours that raised; the whole traceback goes before it on request."""
    if os.environ.get("LDLM_LOG_LEVEL") == "debug":
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)] or frames
    last = ours[-1]
    where = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
    return (
        f"a bug of ours: {type(error).__name__}: {_one_line(error)} ({where}); "
        "please report it with the traceback that LDLM_LOG_LEVEL=debug shows"
    )
