"""The doctor's checks of Python training code.

`audit` reads syntax trees and runs nothing. Values that a configuration decides are unknown and
reported nowhere. Edits are offered only where a rule proves that they are right.
"""

from ldlm_doctor.python_code.code_audit import audit

__all__ = ["audit"]
