"""The glossary's list of words that the code does not use."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/glossary.md").read_text("utf-8")
PACKAGES = (
    "monitor/ldlm_monitor", "promrules/ldlm_promrules", "callback/ldlm_callback",
    "doctor/ldlm_doctor", "trainer/ldlm_trainer",
)  # fmt: skip


def unused_words() -> list[str]:
    (line,) = (line for line in PAGE.splitlines() if line.startswith("Not used in "))
    return re.findall(r"`([a-z]+)`", line.partition("messages:")[2])


def uses(text: str, words: list[str]) -> list[str]:
    """The words where they stand alone, or as a part of a name in snake_case or CamelCase."""
    found = re.findall(r"[A-Z]?[a-z]+", text)
    return sorted({part.lower() for part in found} & set(words))


def test_a_word_is_found_within_a_name_and_not_within_another_word() -> None:
    assert uses("def is_told(self): ...", ["told"]) == ["told"]
    assert uses("class ToldSettings:", ["told"]) == ["told"]
    assert uses("file.tell() and intelligence, stellar", ["tells"]) == []
    assert len(unused_words()) > 10


@pytest.mark.parametrize("package", PACKAGES)
def test_the_code_does_not_use_the_words_that_the_glossary_rules_out(package: str) -> None:
    words = unused_words()
    found = {
        f"{path.relative_to(ROOT)}:{number}: {', '.join(bad)}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (bad := uses(line.replace(".tell()", ""), words))
    }
    assert found == set()


def test_the_pages_do_not_use_them_either() -> None:
    words = unused_words()
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "docs/glossary.md"}
    assert len(pages) > 40
    assert {path: bad for path in pages if (bad := uses(path.read_text("utf-8"), words))} == {}


def test_a_class_name_means_one_class() -> None:
    files = (path for package in PACKAGES[:3] for path in (ROOT / package).rglob("*.py"))
    sources = "\n".join(path.read_text() for path in files)
    names = re.findall(r"^class (\w+)", sources, re.MULTILINE)
    assert sorted({name for name in names if names.count(name) > 1}) == []
