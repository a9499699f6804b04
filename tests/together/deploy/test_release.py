"""What a release writes into the repository; `deploy/release.sh` tries what it builds itself."""

import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RELEASE = runpy.run_path(str(ROOT / "deploy/new_version.py"), run_name="release")
NEWS = "# Changelog\n\n## [Unreleased]\n\nTo become 0.2.0.\n\n### Added\n\n- This.\n"
OLD = "\n## [0.1.0] - 2026-01-01\n\n- That.\n"


@pytest.mark.parametrize("old", ["", OLD])
def test_what_is_unreleased_gets_version_and_date(old: str) -> None:
    text = RELEASE["released"](NEWS + old, "0.2.0", "2026-12-01")
    assert text == (
        "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- This.\n" + old
    )


def test_nothing_is_not_released() -> None:
    with pytest.raises(SystemExit, match="nothing stands under"):
        RELEASE["released"]("# Changelog\n\n## [Unreleased]\n" + OLD, "0.2.0", "2026-12-01")


def test_the_packages_version_is_written() -> None:
    package = (ROOT / "monitor/ldlm_monitor/__init__.py").read_text("utf-8")
    assert '__version__ = "9.8.7"' in RELEASE["versioned"](package, "9.8.7")


def test_the_members_versions_are_written_and_what_they_require_of_each_other() -> None:
    text = (ROOT / "trainer/pyproject.toml").read_text("utf-8")
    found = tomllib.loads(RELEASE["versioned"](text, "9.8.7rc1"))["project"]
    assert found["version"] == "9.8.7rc1"
    assert "ldlm-callback==9.8.7rc1" in found["dependencies"]
    assert [need for need in found["dependencies"] if "9.8.7" in need] == found["dependencies"][:1]
    assert found["requires-python"] == ">=3.11"


def test_the_changelog_can_be_released() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert "\n## [9.8.7] - 2026-12-01\n\n### " in RELEASE["released"](text, "9.8.7", "2026-12-01")


@pytest.mark.parametrize("name", ["release.sh", "wheels.sh"])
def test_the_script_is_a_shells(name: str) -> None:
    subprocess.run(["sh", "-n", str(ROOT / "deploy" / name)], check=True)
