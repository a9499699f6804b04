"""The command `ldlm-monitor`, also as `python -m ldlm_monitor`."""

import atexit
import contextlib
import gc
import os
import sys
import threading

from ldlm_monitor.base.native import version_line

YOUNG_OBJECTS = 150_000
"""New objects after which Python searches for garbage, by default 700: classes and rules are none,
and the searches take an eighth of a start. A choice: more would keep more memory."""

SWITCH_SECONDS = 0.001
"""Most seconds that a thread waits for the GIL while the pump has it. Python's 5 ms are felt on the
screen, and a message to Slack waits some ten times, once after each call of the system."""


def main() -> int:
    """Run the process's command line and return the exit code.

    The version is printed before the command line is loaded, which takes five times as long.
    """
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(version_line())
        return 0
    gc.set_threshold(YOUNG_OBJECTS)
    sys.setswitchinterval(SWITCH_SECONDS)
    from ldlm_monitor.service.cli import main as run

    code = run()
    _end(code)
    return code


def _end(code: int) -> None:
    """End the process, if no thread is left that Python would wait for.

    Python would free all objects one by one first, for seconds if thousands of logs are followed.
    """
    main_thread = threading.main_thread()
    if all(each.daemon or each is main_thread for each in threading.enumerate()):
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it any more
            sys.stderr.flush()
            sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
