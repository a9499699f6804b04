"""Each house's README says what others may import of it, and this is what they import.

A README has one `yaml` block: `face` (names by module, or modules alone), `imports` (houses and
distributions of ours) and `packages` (others'). Its lines of Python run as they are written.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "monitor/ldlm_monitor"
HOUSES = ("base", "logs", "judge", "screen", "host", "finished", "service")
DISTRIBUTIONS = ("monitor", "callback", "promrules", "doctor", "trainer")
MOST = 40
"""Entries of a face: more are not a face that one learns."""
SECONDS = 120
"""For an example that should end after a few: it fails instead of holding up the run."""
STATEMENTS = 10
"""Statements of an example, beside its imports. With more it is no first look."""
SHARED_NAMES = {
    "chunk": "where programs imported `Chunk` from before",
    "errors": "each distribution has errors of its own",
    "monitor": "the public name of the core",
    "records": "the public name of the records",
    "secrets": "the doctor, which stands alone, searches a repository for them",
}
"""Names of modules that another distribution or a public name has, too."""


class Use(NamedTuple):
    """A name of a module that is imported: dotted parts below `ldlm_monitor`, and the importer."""

    house: str
    module: str
    name: str


def house_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def is_module(dotted: str) -> bool:
    path = PACKAGE.parent.joinpath(*dotted.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def used(tree: ast.Module) -> Iterator[Use]:
    """Names of houses that a module imports; of a module imported whole, those it reads of it."""
    whole: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not any(each.name.startswith("ldlm_monitor.") for each in node.names), (
                f"line {node.lineno}: write `from ldlm_monitor... import`"
            )
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(
            "ldlm_monitor"
        ):
            continue
        for each in node.names:
            if is_module(f"{node.module}.{each.name}"):
                whole[each.asname or each.name] = f"{node.module}.{each.name}"
            elif "." in (node.module or ""):
                yield use(node.module or "", each.name)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in whole
        ):
            yield use(whole[node.value.id], node.attr)


def use(dotted: str, name: str) -> Use:
    _, house, *parts = dotted.split(".")
    return Use(house, ".".join(parts), name)


def imported_packages(tree: ast.Module) -> Iterator[str]:
    """What a module imports: the first part of a package's name, and of ours the house."""
    for node in ast.walk(tree):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
            if node.module == "ldlm_monitor":
                names = [f"ldlm_monitor.{each.name}" for each in node.names]
        for name in names:
            first, *rest = name.split(".")
            yield rest[0] if first == "ldlm_monitor" and rest else first


@cache
def uses_by_house() -> dict[str, set[Use]]:
    """What others import of each house: other houses, and the public names beside the houses."""
    found: dict[str, set[Use]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for each in used(tree_of(path)):
            if each.house != house_of(path):
                found[each.house].add(each)
    return found


def blocks(house: str) -> dict[str, str]:
    """The README's fenced blocks by language."""
    text = (PACKAGE / house / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)
    assert len(found) == len(dict(found)), "one block of each language"
    return dict(found)


def said(house: str) -> dict[str, Any]:
    """What the README lists."""
    listed: dict[str, Any] = yaml.safe_load(blocks(house)["yaml"])
    assert list(listed) == ["face", "imports", "packages"]
    return listed


def entries(face: list[str] | dict[str, list[str]]) -> list[str]:
    """`module` or `module:name` of everything in a face."""
    if isinstance(face, list):
        return face
    return [f"{module}:{name}" for module, names in face.items() for name in names]


def as_entries(uses: set[Use], face: list[str] | dict[str, list[str]]) -> set[str]:
    by_module = isinstance(face, list)
    return {each.module if by_module else f"{each.module}:{each.name}" for each in uses}


@pytest.mark.parametrize("house", HOUSES)
def test_others_import_the_face_and_nothing_else(house: str) -> None:
    face = said(house)["face"]
    listed = entries(face)
    assert len(listed) == len(set(listed)) <= MOST
    assert as_entries(uses_by_house()[house], face) == set(listed)


@pytest.mark.parametrize("house", HOUSES)
def test_a_house_imports_what_it_says(house: str) -> None:
    found = {
        name
        for path in (PACKAGE / house).rglob("*.py")
        for name in imported_packages(tree_of(path))
    }
    found -= {house, "__version__", *sys.stdlib_module_names}
    ours = {name for name in found if name in HOUSES or name.startswith("ldlm_")}
    listed = said(house)
    assert ours == set(listed["imports"])
    assert found - ours == set(listed["packages"])


@pytest.mark.parametrize("house", HOUSES)
def test_the_example_prints_what_stands_below_it(house: str) -> None:
    program, printed = (blocks(house)[language] for language in ("python", "text"))
    statements = [each for each in ast.walk(ast.parse(program)) if isinstance(each, ast.stmt)]
    imports = [each for each in statements if isinstance(each, ast.Import | ast.ImportFrom)]
    assert len(statements) - len(imports) <= STATEMENTS
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert (done.stdout, done.stderr) == (printed, "")


@pytest.mark.parametrize("house", HOUSES)
def test_the_example_uses_the_face(house: str) -> None:
    """And the faces of houses below: it shows what others may do, and needs nothing above."""
    uses = set(used(ast.parse(blocks(house)["python"])))
    assert house in {each.house for each in uses} <= {house, *said(house)["imports"]}
    for other in {each.house for each in uses}:
        face = said(other)["face"]
        assert as_entries({each for each in uses if each.house == other}, face) <= {*entries(face)}


@pytest.mark.parametrize("house", HOUSES)
def test_the_readme_has_a_line_for_each_room(house: str) -> None:
    """A room is a package of the house, or a module that stands beside them."""
    text = (PACKAGE / house / "README.md").read_text(encoding="utf-8")
    rooms = {path.parent.name + "/" for path in (PACKAGE / house).glob("*/__init__.py")} or {
        path.name for path in (PACKAGE / house).glob("*.py")
    } - {"__init__.py"}
    missing = {room for room in rooms if f"`{room}`" not in text}
    assert not missing


def test_a_module_of_a_house_has_a_name_of_its_own() -> None:
    """A search for a file, or its name in a traceback, leads to one."""
    paths: dict[str, list[Path]] = defaultdict(list)
    for distribution in DISTRIBUTIONS:
        for path in (ROOT / distribution).rglob("*.py"):
            if not path.stem.startswith("__"):
                paths[path.stem].append(path)
    of_houses = {path.stem for house in HOUSES for path in (PACKAGE / house).rglob("*.py")}
    doubled = {name for name in of_houses if len(paths[name]) > 1}
    assert doubled == set(SHARED_NAMES)
