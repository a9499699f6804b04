"""houses.toml is what the houses import, and their requirements follow from it."""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.together.houses import (
    BOUNDS,
    HOUSES,
    ROOT,
    House,
    house_of,
    requirement_of,
    with_dependencies,
)

EACH = pytest.mark.parametrize("house", HOUSES.values(), ids=HOUSES)
LOADED = [
    pytest.param(each, marks=pytest.mark.trainer if "torch" in each.packages else (), id=name)
    for name, each in HOUSES.items()
]


@EACH
def test_a_house_imports_the_packages_of_its_entry(house: House) -> None:
    imported = {requirement_of(name) for name in house.imported()} - {None}
    assert imported == {canonicalize_name(name) for name in (*house.packages, *house.optional)}


@EACH
def test_a_house_imports_the_houses_of_its_entry(house: House) -> None:
    imported = {house_of(name) for name in house.imported()} - {None, house.name}
    assert imported == set(house.may_import)


@pytest.mark.parametrize("member", ["callback", "promrules", "doctor", "trainer", "monitor"])
def test_a_distribution_requires_what_its_houses_import(member: str) -> None:
    """The monitor also installs the packages of the rules, without which it would not start."""
    path = "pyproject.toml" if member == "monitor" else f"{member}/pyproject.toml"
    houses = [house for house in HOUSES.values() if house.path == member]
    if member == "monitor":
        houses.append(HOUSES["promrules"])
    own = {canonicalize_name(name) for house in houses for name in house.packages}
    assert own == required(path)


def required(path: str) -> set[str]:
    """Names of the third parties' packages that a distribution always has."""
    read = tomllib.loads((ROOT / path).read_text("utf-8"))
    lines = read["project"].get("dependencies")
    if lines is None:
        lines = read["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
    names = {canonicalize_name(Requirement(line).name) for line in lines}
    return {name for name in names if not name.startswith("ldlm-")}


def test_a_house_requires_what_the_houses_below_it_do() -> None:
    of_rules = set(HOUSES["promrules"].requirements())
    of_base = set(HOUSES["base"].requirements())
    assert HOUSES["callback"].requirements() == []
    assert of_base == of_rules
    assert HOUSES["judge"].requirements() == HOUSES["logs"].requirements()
    assert set(HOUSES["screen"].requirements()) - set(HOUSES["judge"].requirements()) == {
        str(BOUNDS["textual"])
    }


IMPORTED_ALONE = """
import importlib, sys
from importlib.machinery import PathFinder
hidden, optional, modules = {0!r}, {1!r}, {2!r}

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in hidden else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
for module in modules:
    try:
        importlib.import_module(module)
    except Exception as error:  # ours may say which extra is missing
        missing = error.__cause__ or error
        if str(getattr(missing, "name", "")).partition(".")[0] not in optional:
            raise
"""


@pytest.mark.parametrize("house", LOADED)
def test_a_house_can_be_imported_with_its_requirements_alone(house: House) -> None:
    """In a process that finds no other package of a third party and no other distribution of ours.

    The modules that give an optional package its face may miss that.
    """
    there = with_dependencies(house.requirements())
    if "torch" in house.packages and "torch" not in there:
        pytest.skip("torch is not installed")
    provided = packages_distributions()
    hidden = {
        module
        for module, brought in provided.items()
        if not any(canonicalize_name(name) in there for name in brought)
    }
    hidden |= {each.distribution for each in HOUSES.values()}
    hidden -= {each.distribution for each in house.needed()}
    named = {canonicalize_name(name) for name in house.optional}
    optional = {name for name in (*provided, *named) if requirement_of(name) in named}
    program = IMPORTED_ALONE.format(hidden, optional, list(house.modules()))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr[-2000:]
