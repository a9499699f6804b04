"""The command line; only this package turns errors into messages and exit codes.

Commands import what they need when they run, so that `--help` and `--version` are quick.
"""

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from ldlm_monitor.base.errors import INTERRUPTED, InputError, LdlmError, UsageError, one_line
from ldlm_monitor.base.text.format import printable
from ldlm_monitor.service.cli import follow
from ldlm_monitor.service.cli.plain_words import plain

# Errors that a user can mend: those of a named file, and those of stdout, which name no file.
_FILE_ERRORS = (PermissionError, FileNotFoundError, IsADirectoryError, NotADirectoryError)
_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_PACKAGE = Path(__file__).resolve().parents[2]  # our own frames, for `_bug`


@runtime_checkable
class Refusal(Protocol):
    """The errors of the distributions beside this one: the same fields as `UsageError`."""

    what: str
    where: str
    remedy: str


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line (None: the process's) and returns the exit code."""
    _prepare_streams()
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the process's edge: a bug gets words and code 1
        text, code = _outcome(error)
        if text:
            print(f"ldlm-monitor: {printable(text)}", file=sys.stderr)
    return code if isinstance(code, int) else 0


def _run(words: Sequence[str]) -> object:
    """Runs a command; most often it is the main one, with words that need no library."""
    if (read := plain(words)) is not None:
        files, flags = read
        return follow.follow(*files, flags=flags)
    from ldlm_monitor.service.cli.command_line import run

    return run(words)


def _prepare_streams() -> None:
    """Replace closed streams (`>&-`) by /dev/null; let others escape unencodable characters."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _outcome(error: Exception) -> tuple[str, int]:
    """The line for stderr ("" for none), and the exit code."""
    match error:
        case LdlmError() | Refusal():
            return one_line(error), getattr(error, "exit_code", UsageError.exit_code)
        case BrokenPipeError():
            _abandon_output()
            return "", 0
        case OSError() if (refusal := _refusal(error)) is not None:
            return one_line(refusal), refusal.exit_code
        case RuntimeError() if "home directory" in str(error):  # pathlib's, for the completion
            return "this user has no home directory; set HOME", UsageError.exit_code
        case _:
            return _bug(error), LdlmError.exit_code


def _refusal(error: OSError) -> UsageError | None:
    """A user's message for an error of a named file or of stdout; None for other errors: bugs."""
    if isinstance(error, _FILE_ERRORS) and error.filename is not None:
        return InputError(
            f"cannot be read ({error.strerror})",
            where=os.fsdecode(error.filename),
            remedy="check that it is there and that you may read it",
        )
    if error.filename is None and error.errno in _OUTPUT_ERRORS:
        _abandon_output()
        return UsageError(
            f"cannot be written ({error.strerror})",
            where="standard output",
            remedy="make room, or write elsewhere",
        )
    return None


def _abandon_output() -> None:
    """Send later output to /dev/null, so that Python's flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bug(error: Exception) -> str:
    """One line that names our last frame; LDLM_LOG_LEVEL=debug also prints the traceback."""
    if os.environ.get("LDLM_LOG_LEVEL") == "debug":
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)] or frames
    last = ours[-1]
    where = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
    return (
        f"a bug of ours: {type(error).__name__}: {one_line(error)} ({where}); "
        "please report it with the traceback that LDLM_LOG_LEVEL=debug shows"
    )
