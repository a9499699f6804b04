"""docs/doctor.md lists the checks as they are."""

from pathlib import Path

from ldlm_doctor.document import with_checks

PAGE = Path(__file__).resolve().parents[2] / "docs/doctor.md"


def test_the_page_lists_every_check_as_it_is() -> None:
    """To mend it: python -m ldlm_doctor.document docs/doctor.md."""
    page = PAGE.read_text("utf-8")
    assert with_checks(page) == page
