"""What the pages show of the configuration can be used."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from ldlm_monitor.service.cli.flags import FollowFlags
from ldlm_monitor.service.config import Settings, load

PAGE = Path(__file__).resolve().parents[3] / "docs/configuration.md"


def test_every_flag_of_the_main_command_is_a_setting() -> None:
    flags = {field.name for field in fields(FollowFlags)} - {"config"}
    assert flags <= set(Settings.model_fields)


BLOCKS = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in (PAGE, PAGE.with_name("slack.md"))
    for number, text in enumerate(
        re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    )
]


@pytest.mark.parametrize("text", BLOCKS)
def test_what_the_pages_show_can_be_used(text: str, folder: Path) -> None:
    (folder / "ldlm-monitor.toml").write_text(text, encoding="utf-8")
    assert load({}).model_fields_set
