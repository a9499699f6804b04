"""The package `ldlm_trainer` where a wheel is installed: its modules are in the folder beside.

ldlm-monitor 0.1.0 had these modules in its own wheel, in `ldlm_trainer/`. pip installs ldlm-trainer
first and then removes all files of that wheel, so that none may have a path that it had. In a
checkout `ldlm_trainer/` comes before this file.
"""

import runpy
from pathlib import Path

__path__ = [str(Path(__file__).with_name("_ldlm_trainer"))]

if __name__ == "__main__":  # python -m ldlm_trainer
    runpy.run_module("ldlm_trainer.__main__", run_name="__main__", alter_sys=True)
