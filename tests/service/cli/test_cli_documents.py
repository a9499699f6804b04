"""What the documents ask people to type can be typed."""

import html
import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.service.cli.command_line import app

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ROOT / "docs/images"
PAGES = (
    *("README.md", "CONTRIBUTING.md"),
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
)
TEXT = re.compile(r"<text[^>]*>([^<]*)</text>")
Ask = Callable[..., Any]


def command_lines(page: str) -> list[str]:
    """The `ldlm-monitor` lines of a page's shell blocks, from the command on."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.M | re.S)
    parts = [part for block in blocks for part in re.split(r"(?<!\\)\n|&&", block)]
    starts = re.compile(r"\s*(?:\.venv/bin/)?ldlm-monitor(?: |$)")
    return [part.partition(" | ")[0].strip() for part in parts if starts.match(part)]


@pytest.mark.parametrize("line", sorted({line for page in PAGES for line in command_lines(page)}))
def test_a_command_of_the_documents_is_one_of_ours(line: str) -> None:
    words = shlex.split(line.partition(" > ")[0].replace("\\\n", " "), comments=True)
    app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_the_format_file_of_contributing_works(ask: Ask, folder: Path) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = re.search(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    assert block is not None
    (folder / "mine.yml").write_text(block[1], encoding="utf-8")
    (folder / "a.log").write_text(
        "ourtrainer step 12 loss nan lr 5e-4\n"
        "ourtrainer step size is 12\n"
        "ourtrainer: device fell off the bus (xid 79)\n",
        encoding="utf-8",
    )
    answer = ask("parse", "--formats", "mine.yml", "a.log")
    assert answer.code == 0, answer.err
    sample, event = answer.out.splitlines()
    assert '"values":{"loss":"NaN","learning_rate":0.0005}' in sample
    assert '"kind":"gpu_xid"' in event
    assert '"xid":79' in event


@pytest.mark.live
def test_the_picture_of_the_readme_is_what_is_printed() -> None:
    """If not, `python docs/images/make.py` makes it again. Only the last lines, which are about the
    monitor's own work, may differ."""
    drawn = [html.unescape(line) for line in TEXT.findall((IMAGES / "once.svg").read_text("utf-8"))]
    printed = runpy.run_path(str(IMAGES / "make.py"))["report"]().splitlines()
    assert (
        "\n".join(drawn[1:]).partition("Read ")[0]
        == ("\n".join(line for line in printed if line).partition("Read ")[0])
    )


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_what_a_page_links_to_is_there(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        path, _, heading = target.partition("#")
        assert (ROOT / path).exists(), target
        headings = re.findall(
            r"^#+ (.+)$", (ROOT / path).read_text("utf-8") if heading else "", re.M
        )
        anchors = {re.sub(r"[^\w -]", "", name).lower().replace(" ", "-") for name in headings}
        assert not heading or heading in anchors


def test_the_architecture_names_every_house_room_and_module() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    package = ROOT / "monitor/ldlm_monitor"
    rooms = {path.parent.name for path in package.rglob("__init__.py")}
    modules = {path.stem for path in package.glob("[a-z]*.py")}
    missing = {name for name in rooms | modules if not re.search(rf"\b{name}\b", page)}
    assert missing == set()
