"""Each defect is found as eight people would write it, and what looks like it is not.

`styles/CHECK.txt` holds the programs: `## found: WHAT`, `## missed: WHAT` for a defect that is not
found yet, or `## clean: WHAT`, then `-- FILE` and its text. Those marked `(held out)` were written
before any rule was changed for the others.
"""

import re
from pathlib import Path

import pytest

from ldlm_doctor.audit import audit
from ldlm_doctor.collect import collect

STYLES = Path(__file__).parent / "styles"


def styles() -> list[tuple[str, str, str]]:
    """The checks of a file, what should come of a program with its title, and its files."""
    found = []
    for file in sorted(STYLES.glob("*.txt")):
        for program in re.split(r"^## ", file.read_text(encoding="utf-8"), flags=re.M)[1:]:
            title, _, files = program.partition("\n")
            found.append((file.stem, title, files))
    return found


@pytest.mark.parametrize(
    ("checks", "title", "files"), styles(), ids=[f"{a}: {b}" for a, b, _ in styles()]
)
def test_a_defect_in_the_way_of_another_person(
    checks: str, title: str, files: str, tmp_path: Path
) -> None:
    for file in re.split(r"^-- ", files, flags=re.M)[1:]:
        name, _, text = file.partition("\n")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = {finding.check_id for finding in audit(collect([str(tmp_path)]).project)}
    assert bool(found & set(checks.split(","))) is title.startswith("found"), found
