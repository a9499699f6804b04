"""The package `ldlm_trainer` where a wheel is installed: its modules are in the folder beside.

Wheels of ldlm-monitor held these modules until ldlm-trainer became a distribution. In an upgrade
pip installs ldlm-trainer first and then removes each path of the old wheel (`ldlm_trainer/...`), so
that no file here may have such a path. In a checkout the folder `ldlm_trainer/` precedes this file.
"""

import runpy
from pathlib import Path

__path__ = [str(Path(__file__).with_name("_ldlm_trainer"))]

if __name__ == "__main__":  # python -m ldlm_trainer
    runpy.run_module("ldlm_trainer.__main__", run_name="__main__", alter_sys=True)
