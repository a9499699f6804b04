"""The houses of the street, as houses.toml has them, and the requirements that follow from it."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ("pytest", "hypothesis")
"""What the tests of every house need."""


def _read(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text("utf-8"))


_TABLE = _read("tests/together/houses.toml")
_BRINGS: dict[str, str] = _TABLE["brings"]
DOTTED = re.compile(r"[a-z]\w*(\.\w+)*")


@dataclass(frozen=True)
class House:
    """One entry of the table, see there."""

    name: str
    path: str
    folder: str
    may_import: tuple[str, ...]
    packages: tuple[str, ...]
    optional: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def package(self) -> str:
        return self.folder.replace("/", ".")

    @property
    def distribution(self) -> str:
        """The top-level package that the house is in."""
        return self.folder.partition("/")[0]

    def modules(self) -> dict[str, Path]:
        """Names and files of its modules, but those that are programs."""
        base = ROOT / self.path
        return {
            ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): path
            for path in sorted((base / self.folder).rglob("*.py"))
            if path.name != "__main__.py"
        }

    def needed(self) -> "list[House]":
        """It, and every house that it needs."""
        found, waiting = [self.name], list(self.may_import)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.append(name)
                waiting += HOUSES[name].may_import
        return [HOUSES[name] for name in found]

    def requirements(self) -> list[str]:
        """Names and bounds of what it and the houses that it needs require."""
        names = {name for house in self.needed() for name in house.packages}
        return sorted(str(BOUNDS[canonicalize_name(name)]) for name in names)

    def imported(self) -> Iterator[str]:
        """Dotted names that its modules import, also within functions and by `import_module`."""
        for path in (ROOT / self.path / self.folder).rglob("*.py"):
            yield from _imports(ast.parse(path.read_bytes()))


def _house(name: str, entry: dict[str, Any]) -> House:
    listed = ("may_import", "packages", "optional", "tests")
    return House(
        name, entry["path"], entry["folder"], **{key: tuple(entry.get(key, ())) for key in listed}
    )


HOUSES = {name: _house(name, entry) for name, entry in _TABLE["houses"].items()}


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(tree)}
    if "import_module" in names:
        # What it is given may be a variable: any text that is the name of a package of ours counts.
        texts = (getattr(node, "value", None) for node in ast.walk(tree))
        dotted = {text for text in texts if isinstance(text, str) and DOTTED.fullmatch(text)}
        yield from (text for text in dotted if requirement_of(text) in BOUNDS)


def requirement_of(module: str) -> str | None:
    """The requirement that brings a module; None for one of Python's or of ours."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or root.startswith("ldlm_"):
        return None
    prefixes = [name for name in _BRINGS if f"{module}.".startswith(f"{name}.")]
    return canonicalize_name(_BRINGS[max(prefixes, key=len)] if prefixes else root)


def house_of(module: str) -> str | None:
    """The house of a module of ours."""
    found = (each for each in HOUSES.values() if f"{module}.".startswith(f"{each.package}."))
    return next((house.name for house in found), None)


def _bounds() -> dict[str, Requirement]:
    root = _read("pyproject.toml")
    hook = root["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    lists = [hook["dependencies"], *hook["extras"].values(), *root["dependency-groups"].values()]
    for member in ("callback", "promrules", "doctor", "trainer"):
        project = _read(f"{member}/pyproject.toml")["project"]
        lists += [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    wanted = [Requirement(line) for lines in lists for line in lines]
    return {canonicalize_name(each.name): each for each in wanted if not each.extras}


BOUNDS = _bounds()
"""By canonical name, each requirement of ours with its bounds."""


def with_dependencies(names: Iterable[str]) -> dict[str, str]:
    """These distributions and all that they require, as they are installed here, and versions.

    One that is not installed here has no entry.
    """
    found: dict[str, str] = {}
    waiting = [Requirement(name) for name in names]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen or (wanted.marker is not None and not wanted.marker.evaluate()):
            continue
        seen.add(key)
        try:
            installed = distribution(wanted.name)
        except PackageNotFoundError:
            continue
        found[key[0]] = installed.version
        for line in installed.requires or ():
            each = Requirement(line)
            asked = [{"extra": extra} for extra in ("", *wanted.extras)]
            if each.marker is None or any(map(each.marker.evaluate, asked)):
                each.marker = None
                waiting.append(each)
    return found
