"""Whether we, and promtool, find a file of unit tests fulfilled."""

import shutil
import subprocess
from pathlib import Path

import pytest

from ldlm_promrules.errors import RuleError
from ldlm_promrules.unit_tests import run_rule_tests

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)


def we_accept(path: Path) -> bool:
    try:
        return not run_rule_tests(path).failures
    except RuleError:
        return False


def promtool_accepts(path: Path) -> bool:
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert ("FAILED" in done.stderr) is (done.returncode != 0), done.stdout + done.stderr
    return done.returncode == 0
