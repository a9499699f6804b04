"""The command `ldlm-monitor`, also as `python -m ldlm_monitor`."""

import sys

from ldlm_monitor import __version__


def main() -> int:
    """Run the process's command line and return the exit code.

    The version is printed before the command line is loaded, which takes five times as long.
    """
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"ldlm-monitor {__version__}")
        return 0
    from ldlm_monitor.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
