"""`service install` with a real systemd of a user, in a mount namespace of its own.

The namespace has a `/run` of its own, so that a machine that was not booted with systemd (a
container) starts one for the user, and a machine that was keeps its own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.long]
EXAMPLES = Path(__file__).parents[3] / "examples/train_logs"
MANAGER = "/lib/systemd/systemd"
SCRIPT = """\
mount -t tmpfs none /run && mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR" || exit 77
%(manager)s --user >manager.log 2>&1 &
manager=$!
trap 'kill $manager; wait $manager' EXIT
wait_for() { for _ in $(seq 300); do "$@" && return; sleep 0.1; done; echo "never: $*"; exit 1; }
show() { systemctl --user show --value --property "$1" ldlm-monitor.service; }
ready() { grep -c 'metrics on' monitor.log 2>/dev/null | grep -qx "$1"; }
wait_for systemctl --user is-system-running --quiet 2>/dev/null
monitor() { %(python)s -m ldlm_monitor "$@"; }
monitor service install 'train_logs/*.log' || exit
wait_for ready 1
systemctl --user is-enabled ldlm-monitor.service
systemctl --user reload ldlm-monitor.service
wait_for grep -q 'settings and rules were reloaded' monitor.log
kill -9 "$(show MainPID)"
wait_for ready 2
echo "restarts $(show NRestarts)"
monitor service uninstall || exit
echo "then $(show ActiveState)"
"""


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a /run of its own, which needs root")
@pytest.mark.skipif(not Path(MANAGER).exists(), reason="no systemd is installed")
def test_a_service_of_a_user_starts_reloads_restarts_and_goes(tmp_path: Path) -> None:
    home = tmp_path / "50% ü $HOME"
    shutil.copytree(EXAMPLES, home / "train_logs")
    added = home / ".config/systemd/user/ldlm-monitor.service.d/output.conf"
    added.parent.mkdir(parents=True)
    log = str(tmp_path / "monitor.log")
    added.write_text(f"[Service]\nStandardError=append:{log}\n")
    (home / "monitor.log").symlink_to(log)
    (home / ".config/ldlm-monitor").mkdir()
    (home / ".config/ldlm-monitor/environment").write_text("LDLM_LISTEN=127.0.0.1:0\n")
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "bash", "-c",
         SCRIPT % {"manager": MANAGER, "python": sys.executable}],
        cwd=home, capture_output=True, text=True, check=False, timeout=120,
        env={"HOME": str(home), "XDG_RUNTIME_DIR": "/run/user/0", "PATH": os.environ["PATH"]},
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("no mount namespace can be made here")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert ":9847" not in Path(log).read_text(), "the file of its environment was not read"
    installed, enabled, restarts, removed, then = done.stdout.splitlines()
    assert "ldlm-monitor.service installed" in installed
    assert (enabled, restarts, then) == ("enabled", "restarts 1", "then inactive")
    assert removed.endswith("removed")
    assert not list(home.rglob("ldlm-monitor.service"))
