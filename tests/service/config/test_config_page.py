"""docs/configuration.md lists every setting, and no other, with flag and default."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import BaseModel

from ldlm_monitor.base.setting_types import Section
from ldlm_monitor.service.cli.flags import FollowFlags
from ldlm_monitor.service.config import Settings, load

PAGE = Path(__file__).resolve().parents[3] / "docs/configuration.md"
FLAGS = {field.name: f"`--{field.name.replace('_', '-')}`" for field in fields(FollowFlags)} | {
    "files": "`FILE_OR_GLOB...`",
    "companions": "`--no-companions`",
}


def rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, ...]]:
    """What the page has to say of every setting."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from rows(field.annotation, f"{name}.")
        else:
            key = prefix + name
            variable = "LDLM_" + key.replace(".", "_").upper()
            yield key, variable, FLAGS.get(key, ""), shown(field.default), below(model)[name]


def below(model: type[BaseModel]) -> dict[str, str]:
    """What stands below each attribute, in one line; what it inherits, too."""
    found: dict[str, str] = {}
    declared = Settings.__base__ if model is Settings else model
    assert declared is not None
    for each in declared.__mro__[: declared.__mro__.index(Section)]:
        (defined,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(defined, ast.ClassDef)
        for one, other in pairwise(defined.body):
            if isinstance(one, ast.AnnAssign) and isinstance(other, ast.Expr):
                found[ast.unparse(one.target)] = " ".join(ast.literal_eval(other.value).split())
    return found


def shown(default: object) -> str:
    if default is None or default in ((), {}):
        return "none"
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_the_page_lists_every_setting_with_variable_flag_default_and_meaning() -> None:
    row = r"^\| `([a-z_.]+)` \| `(\w+)` \| *([^|]*?) *\| ([^|]*) \| (.*) \|$"
    assert re.findall(row, PAGE.read_text("utf-8"), re.MULTILINE) == list(rows(Settings))


def test_every_flag_of_the_main_command_is_a_setting() -> None:
    assert set(FLAGS) - {"config"} <= set(Settings.model_fields)


def test_every_setting_says_what_it_means() -> None:
    assert all(meaning for *_, meaning in rows(Settings))


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
