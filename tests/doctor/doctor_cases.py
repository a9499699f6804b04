"""Files with planted defects say themselves what is to be found in them.

A comment `# !! check-id: text` says that this check finds something in a line with this text;
nothing else may be found.
"""

from pathlib import Path

import re2

from ldlm_doctor.audit import audit
from ldlm_doctor.collect import collect
from ldlm_doctor.model import Finding

HERE = Path(__file__).parent
_MARK = re2.compile(r"(?m)^# !! ([a-z0-9-]+): (.+)$")


def cases(folder: str) -> list[Path]:
    return sorted((HERE / folder).iterdir())


def expected(case: Path) -> list[tuple[str, str]]:
    """Check and text of each planted defect."""
    files = [case] if case.is_file() else sorted(case.iterdir())
    return [
        (str(check), str(text)) for file in files for check, text in _MARK.findall(file.read_text())
    ]


def found(*paths: Path) -> list[Finding]:
    """What is found, but for what Python code does."""
    project = collect([str(path) for path in paths]).project
    return [
        finding
        for finding in audit(project)
        if not finding.path.endswith(".py") or finding.check_id == "secret-in-file"
    ]
