"""The package `ldlm_doctor` where a wheel is installed: its modules are in the folder beside.

ldlm-monitor 0.1.0 had these modules in its own wheel, in `ldlm_doctor/`. pip installs ldlm-doctor
first and then removes all files of that wheel, so that none may have a path that it had. In a
checkout `ldlm_doctor/` comes before this file.
"""

from pathlib import Path

__path__ = [str(Path(__file__).with_name("_ldlm_doctor"))]
