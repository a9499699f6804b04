"""`skill install` writes the skill whole, and over nobody's changes."""

from pathlib import Path

import pytest

from ldlm_monitor.judge.core.packaged_rules import packaged_alerts
from ldlm_monitor.service.cli import main

Capture = pytest.CaptureFixture[str]
PLACE = Path(".agents/skills/ldlm-monitor")


def test_the_skill_has_a_page_for_every_alert(folder: Path, capsys: Capture) -> None:
    assert main(["skill", "install"]) == 0
    assert capsys.readouterr().out == f"{PLACE / 'SKILL.md'}\n"
    assert (PLACE / "SKILL.md").read_text("utf-8").startswith("---\nname: ldlm-monitor\ndescr")
    pages = {path.stem for path in (PLACE / "references").glob("*.md")}
    assert packaged_alerts().keys() - {"Watchdog"} <= pages


def test_its_description_is_short_enough_for_agents(folder: Path) -> None:
    """The specification of agentskills.io allows 1,024 characters, and advises 500 lines."""
    main(["skill", "install", "here"])
    text = Path("here/ldlm-monitor/SKILL.md").read_text("utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("description: "))
    assert len(line) < 1024
    assert text.count("\n") < 100


def test_a_change_is_kept_unless_it_is_forced(folder: Path, capsys: Capture) -> None:
    main(["skill", "install"])
    assert main(["skill", "install"]) == 0
    (PLACE / "SKILL.md").write_text("mine", encoding="utf-8")
    capsys.readouterr()
    assert main(["skill", "install"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--force" in line
    assert (PLACE / "SKILL.md").read_text("utf-8") == "mine"
    assert main(["skill", "install", "--force"]) == 0
    assert (PLACE / "SKILL.md").read_text("utf-8") != "mine"


def test_a_folder_that_cannot_be_made_is_one_line(folder: Path, capsys: Capture) -> None:
    Path("taken").write_text("", encoding="utf-8")
    assert main(["skill", "install", "taken"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be written" in line
