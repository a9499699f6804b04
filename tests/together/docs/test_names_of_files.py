"""What pages, comments and messages name of this repository is there: files, folders, tests."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NOT_OURS = {"build", "dist", "shared", "site"}  # made here, or beside the project
PARTS = sorted(
    path
    for path in ROOT.iterdir()
    if path.is_dir() and path.name[0] != "." and path.name not in NOT_OURS
)
PATHS = [path.relative_to(ROOT) for part in PARTS for path in (part, *part.rglob("*"))]
ENDS = {"/".join(path.parts[start:]) for path in PATHS for start in range(len(path.parts))}
"""Each path, and what is left of it without its first folders: `judge/run/pace.py`."""
HOUSES = "tests|base|judge|host|finished|service|together"  # not logs, screen: also words of users
SUFFIX = r"\.(?:py|md|sh|ya?ml|toml)"
FILE = re.compile(
    rf"(?<![\w/.<{{*-])(?:(?:{'|'.join(path.name for path in PARTS)})/(?:[\w.-]+/)*[\w-]+{SUFFIX}\b"
    rf"|(?<=`)[a-z]\w*/[\w./-]+{SUFFIX}(?=`|::))(?:::\w+)?"
)
"""A path from the top, or in backticks from any folder; of a test also its name."""
FOLDER = re.compile(rf"`((?:{HOUSES})(?:/\w+)*)/?`")
OF_OTHERS = ("examples/mnist/", "rules/mine.yml", "torch/")


def texts() -> Iterator[tuple[str, str]]:
    """Pages and code by their paths; of tests those alone that are no cases of another's files."""
    pages = {*ROOT.glob("*.md"), *(path for part in PARTS for path in part.rglob("*.md"))}
    code = {
        path
        for part in PARTS
        for kind in ("*.py", "*.sh", "*.toml")
        for path in part.rglob(kind)
        if part.name != "tests" or path.relative_to(ROOT).parts[1] in ("together", "mutation")
    }
    others = {*ROOT.glob("*.toml"), *ROOT.glob("*.py"), *ROOT.glob("*.yml"), ROOT / "justfile"}
    for path in sorted(pages | code | others):
        if path not in (ROOT / "CHANGELOG.md", Path(__file__)):  # they name what is gone
            yield str(path.relative_to(ROOT)), path.read_text("utf-8")


def lacking(text: str) -> set[str]:
    """The files, folders and tests that a text names and that are not there."""
    found = {name for name in FOLDER.findall(text) if name not in ENDS}
    for named in FILE.findall(text):
        name, _, test = named.partition("::")
        if not (name in ENDS or (ROOT / name).exists() or name.startswith(OF_OTHERS)):
            found.add(name)
        elif test and f"def {test}(" not in (ROOT / "tests" / name).read_text("utf-8"):
            found.add(named)
    return found


def test_a_name_of_what_is_gone_is_found() -> None:
    assert lacking("`judge/run/pace.py`, `tests/logs`, torch/nn/gone.py, `service/`") == set()
    assert lacking("`gone/a.py` and `judge/gone`") == {"gone/a.py", "judge/gone"}
    assert lacking("see docs/gone.md.") == {"docs/gone.md"}
    here = "together/docs/test_names_of_files.py"
    assert lacking(f"`{here}::lacking` `{here}::gone`") == {f"{here}::gone"}


def test_what_pages_and_code_name_is_there() -> None:
    assert {path: gone for path, text in texts() if (gone := lacking(text))} == {}


def test_the_page_about_reading_names_a_test_for_each_row() -> None:
    page = (ROOT / "docs/reading.md").read_text("utf-8")
    assert sum("/test_" in name for name in FILE.findall(page)) > 35
