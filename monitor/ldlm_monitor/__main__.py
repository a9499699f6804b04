"""`python -m ldlm_monitor` is the command `ldlm-monitor`."""

import sys

from ldlm_monitor.cli import main

if __name__ == "__main__":
    sys.exit(main())
