"""Where the monitor keeps what must survive: `$XDG_STATE_HOME/ldlm-monitor`."""

import os
from pathlib import Path


def state_home() -> Path:
    """The folder below which the state of daemons and supervised runs lies."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    # In a container a user may have neither HOME nor a name. The folder is one below / then: it
    # cannot be made, and who tries says what that means and how to change it.
    return Path(home.removeprefix("~")) / "ldlm-monitor"
