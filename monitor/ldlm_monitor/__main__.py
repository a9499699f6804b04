"""The command `ldlm-monitor`, also as `python -m ldlm_monitor`."""

import gc
import sys

from ldlm_monitor import __version__

YOUNG_OBJECTS = 50_000
"""New objects after which Python searches for garbage, by default 700: classes and rules are none,
and the searches take an eighth of a start. A choice: more would keep more memory."""


def main() -> int:
    """Run the process's command line and return the exit code.

    The version is printed before the command line is loaded, which takes five times as long.
    """
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"ldlm-monitor {__version__}")
        return 0
    gc.set_threshold(YOUNG_OBJECTS)
    from ldlm_monitor.cli import main as run

    code = run()
    gc.disable()  # Python would search once more, for memory that the system frees anyway
    return code


if __name__ == "__main__":
    sys.exit(main())
