"""The doctor's checks of Python training code.

`audit` reads syntax trees and runs nothing. What a configuration decides is unknown, and
nothing is said about it; edits are offered only where a rule can tell that they are right.
"""

from ldlm_doctor.python_code.audit import audit

__all__ = ["audit"]
