"""The package `ldlm_doctor` where a wheel is installed: its modules are in the folder beside.

Wheels of ldlm-monitor held these modules until ldlm-doctor became a distribution. In an upgrade
pip installs ldlm-doctor first and then removes each path of the old wheel (`ldlm_doctor/...`), so
that no file here may have such a path. In a checkout the folder `ldlm_doctor/` precedes this file.
"""

from pathlib import Path

__path__ = [str(Path(__file__).with_name("_ldlm_doctor"))]
