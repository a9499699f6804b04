"""Runs what a change needs: `python3 tests/changed.py [BASE]`, or `just changed [BASE]`.

A change is what differs from the commit at which it left BASE (main), committed or not. Its files
belong to houses. `tests/run.sh` gets the tests of these houses and of those that import them, and
the fixed part of `tests/together`; for pages alone, the tests that read them; for a file that none
of these has, as `pyproject.toml`, all tests.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOUSES = tomllib.loads((ROOT / "tests/together/houses.toml").read_text("utf-8"))["houses"]
TOGETHER = "tests/together"
WAITING = ("benchmarks", "deploy", "live", "supervise")
"""Rooms of `tests/together` that start real processes and wait for them: not in the fixed part, but
run where a folder of their name has a changed file. One named as a house runs with the house."""
OF_JUDGE = ("parse", "rules")
"""Rooms that import no house above the judge, and start no monitor: they run with the judge."""
MAIN_JOB = f"{TOGETHER}/live/test_main_job.py"
"""What a user sees who starts the daemon: of the waiting rooms, in the fixed part."""
EVERYTHING = ("tests/conftest.py", f"{TOGETHER}/conftest.py")


def git(*words: str) -> str | None:
    """What git prints; None if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout


def commit(name: str) -> str:
    """The full name of a commit; empty if the repository does not have it."""
    return (git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") or "").strip()


def left_at(base: str | None) -> str:
    """The commit at which the change left `base`; for main itself, the one before its last."""
    known = [name for name in ([base] if base else ["main", "origin/main"]) if commit(name)]
    if base and not known:
        raise SystemExit(f"tests/changed.py: there is no commit {base}")
    for name in known[:1]:
        found = (git("merge-base", name, "HEAD") or "").strip()
        if not found:
            raise SystemExit(f"tests/changed.py: {name} and HEAD have no commit in common")
        if base or found != commit("HEAD") or git("status", "--porcelain"):
            return found
    if before := commit("HEAD~1"):
        return before
    raise SystemExit(
        "tests/changed.py: there is no other commit of main and none before HEAD: name one, or"
        " fetch the history (git fetch --unshallow)"
    )


def changed_since(since: str) -> list[str]:
    """Paths of the files that differ from a commit: committed, staged, not staged, and new."""
    differ = git("diff", "--name-only", "--no-renames", "-z", since) or ""
    new = git("ls-files", "--others", "--exclude-standard", "-z") or ""
    return sorted({*differ.split("\0"), *new.split("\0")} - {""})


@cache
def folders_of(house: str) -> tuple[Path, ...]:
    """The folder of a house, and where the links in it lead."""
    own = ROOT / HOUSES[house]["path"] / HOUSES[house]["folder"]
    return own, *(each.resolve() for each in own.rglob("*") if each.is_symlink())


def houses_of(path: str) -> set[str]:
    """The houses that have a file."""
    return {name for name in HOUSES if any(map((ROOT / path).is_relative_to, folders_of(name)))}


def with_importers(names: Iterable[str]) -> set[str]:
    """These houses and all that import them, also by another house."""
    found = set(names)
    while True:
        more = {name for name, each in HOUSES.items() if found & {*each.get("may_import", ())}}
        if more <= found:
            return found
        found |= more


def is_page(path: str) -> bool:
    """Whether it is of what people read; code that makes it counts, too."""
    of_docs = path.startswith("docs/") or path == "mkdocs.yml"
    return of_docs or (path.endswith(".md") and not path.startswith("tests/"))


def readers_of(page: str) -> set[str]:
    """The docs' tests, and those that name the page."""
    name = Path(page).name.removesuffix(".py")
    tests = (ROOT / "tests").rglob("test_*.py")
    named = {str(each.relative_to(ROOT)) for each in tests if name in each.read_text("utf-8")}
    return {f"{TOGETHER}/docs", *named}


def own_tests(path: str) -> set[str] | None:
    """What runs beside the fixed part for a file of no house; None: everything does."""
    top, *parts = path.split("/")
    if path in EVERYTHING or not parts:
        return None
    if top != "tests":
        room = f"{TOGETHER}/{top}"
        return {room} if (ROOT / room).is_dir() else None
    if parts[0] in HOUSES:
        return {f"tests/{parts[0]}"}
    if parts[0] == "together" and parts[1] in (*WAITING, *HOUSES, *OF_JUDGE):
        is_test = parts[-1].startswith("test_") and (ROOT / path).exists()
        return {path if is_test else f"{TOGETHER}/{parts[1]}"}
    return set() if parts[0] in ("together", Path(__file__).name) else None


def fixed_part() -> set[str]:
    """What runs for any change but one of pages."""
    found = {MAIN_JOB}
    for each in (ROOT / TOGETHER).iterdir():
        has_tests = each.match("test_*.py") or any(each.rglob("test_*.py"))
        if has_tests and each.name not in (*WAITING, *HOUSES, *OF_JUDGE):
            found.add(f"{TOGETHER}/{each.name}")
    return found


def wanted(paths: Iterable[str]) -> set[str]:
    """Folders and files of tests for changed files; none: everything."""
    houses: set[str] = set()
    tests: set[str] = set()
    for path in paths:
        if is_page(path):
            tests |= readers_of(path)
            continue
        tests |= fixed_part()
        if own := houses_of(path):
            houses |= own
            tests |= {f"{TOGETHER}/{room}" for room in WAITING if f"/{room}/" in path}
        elif (found := own_tests(path)) is not None:
            tests |= found
        else:
            return set()
    houses = with_importers(houses)
    rooms = [*houses, *(OF_JUDGE if "judge" in houses else ())]
    found_in = {*(f"tests/{name}" for name in houses), *(f"{TOGETHER}/{room}" for room in rooms)}
    tests |= {each for each in found_in if (ROOT / each).is_dir()}
    # A path and one below it: pytest 8 would take the lower one alone.
    return {each for each in tests if not any(str(up) in tests for up in Path(each).parents)}


def main() -> None:
    """Say what is run, and why; become `tests/run.sh`."""
    since = left_at(sys.argv[1] if len(sys.argv) > 1 else None)
    paths = changed_since(since)
    if not paths:
        print(f"tests/changed.py: nothing differs from {since[:12]}")
        return
    tests = sorted(wanted(paths))
    print(f"tests/changed.py: {len(paths)} files differ from {since[:12]}:", *paths, sep="\n  ")
    print("tests/changed.py: runs", *(tests or ["everything"]), sep="\n  ", flush=True)
    words = ["-n", "4", "--dist", "worksteal", *tests] if tests else []
    os.execvp("sh", ["sh", str(ROOT / "tests/run.sh"), *words])


if __name__ == "__main__":
    main()
