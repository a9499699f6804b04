"""A seeded sample of mutants of the rooms that judge a training, each tried by its room's tests.

    python tests/mutation/sample.py [--seed N] [--mutants N] [--minutes N] [ROOM ...]

The mutants are those of cosmic-ray's operators (`pip install cosmic-ray`). From each room,
`--mutants` are drawn; no mutant of an annotation, and none that is no Python. Each is written into
a copy of the repository, where `tests/<room>` runs until its first failure. A mutant is killed by
a failure, or where the tests take four times as long as without it. Printed are the mutants that
survived, as a line of code before and after, and the score of each room and of all.

No new mutant is begun after a room's share of `--minutes`, the tests without one not counted; the
score is that of the mutants tried.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "monitor/ldlm_monitor"
ROOMS = (
    "logs/parse", "logs/source", "judge/run", "judge/detect", "judge/incidents", "promrules",
    "service/notify",
)  # fmt: skip
"""Folders of tests, each of the room of the same name."""
ELSEWHERE = {"promrules": "promrules/ldlm_promrules"}
"""Rooms that are packages of their own."""
LEFT_OUT = (".git", ".venv", "__pycache__", ".hypothesis", ".mypy_cache", "site")
ARGUMENTS = ("-x", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "not live and not long")
PARTS = ("monitor", "callback", "promrules", "doctor", "trainer")  # folders with packages
TIMES_AS_LONG = 4
LEAST_SECONDS = 60.0
"""A mutant has at least so long: a loaded machine must not kill it."""


@dataclass(frozen=True)
class Mutant:
    module: Path
    """In the repository."""
    operator: str
    text: str

    def difference(self, before: str) -> str:
        """The first line that differs, before and after."""
        pairs = zip(before.splitlines(), self.text.splitlines(), strict=False)
        changed = ((n, a, b) for n, (a, b) in enumerate(pairs, 1) if a != b)
        number, old, new = next(changed, (0, "", ""))
        return f"{self.module}:{number}: {old.strip()}  ->  {new.strip()}"


def mutations(source: str) -> list[tuple[str, int]]:
    """Each operator's name, as often as it finds a place in the module, with the place's number."""
    nodes = list(ast_nodes(get_ast(source)))
    found = []
    for name in sorted(operator_names()):
        if not get_operator(name).arguments():
            operator = get_operator(name)()
            places = sum(len(list(operator.mutation_positions(node))) for node in nodes)
            found += [(name, number) for number in range(places)]
    return found


def meaning(source: str) -> str | None:
    """The program without its annotations, which nothing runs; None: it is no Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def mutants(room: str, chance: random.Random) -> Iterator[Mutant]:
    """All mutants of a room in random order."""
    every = [
        (module, name, number)
        for module in sorted((ROOT / ELSEWHERE.get(room, f"{PACKAGE}/{room}")).rglob("*.py"))
        for name, number in mutations(module.read_text("utf-8"))
    ]
    chance.shuffle(every)
    for module, name, number in every:
        source = module.read_text("utf-8")
        text = mutate_code(source, get_operator(name)(), number)
        if text is not None and meaning(text) not in (None, meaning(source)):
            yield Mutant(module.relative_to(ROOT), name, text)


def passes(copy: Path, room: str, limit: float | None) -> bool:
    """Whether the room's tests pass within that many seconds."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(copy / part) for part in PARTS),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_PROFILE": "ci",
    }
    command = [sys.executable, "-m", "pytest", *ARGUMENTS, f"tests/{room}"]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, timeout=limit, capture_output=True, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def tried(copy: Path, room: str, count: int, seed: int, seconds: float) -> tuple[int, int] | None:
    """How many mutants of a room were killed, of how many; None: its tests fail without any.

    None is begun after so many seconds, the tests without a mutant not counted.
    """
    began = time.monotonic()
    if not passes(copy, room, None):
        return None
    limit = max(LEAST_SECONDS, TIMES_AS_LONG * (time.monotonic() - began))
    until = time.monotonic() + seconds
    killed = all_tried = 0
    for mutant in mutants(room, random.Random(f"{seed} {room}")):
        if all_tried == count or time.monotonic() > until:
            break
        target = copy / mutant.module
        before = target.read_text("utf-8")
        target.write_text(mutant.text, "utf-8")
        survived = passes(copy, room, limit)
        target.write_text(before, "utf-8")
        all_tried += 1
        killed += not survived
        if survived:
            print(f"survived: {mutant.difference(before)}", flush=True)
    return killed, all_tried


def main() -> int:
    flags = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flags.add_argument("rooms", nargs="*", default=list(ROOMS))
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--mutants", type=int, default=20, help="of each room")
    flags.add_argument("--minutes", type=float, default=90.0, help="begin none after so long")
    given = flags.parse_args()
    killed = count = 0
    broken = False
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        for room in given.rooms:
            # An equal share of the time for each room: a slow one takes none of the others'.
            seconds = 60 * given.minutes / len(given.rooms)
            found = tried(copy, room, given.mutants, given.seed, seconds)
            if found is None:
                broken = True
                print(f"{room}: its tests fail without a mutant", flush=True)
                continue
            print(f"{room}: {found[0]} of {found[1]} killed", flush=True)
            killed, count = killed + found[0], count + found[1]
    share = f" ({killed / count:.0%})" if count else ""
    print(f"all: {killed} of {count} killed{share}, seed {given.seed}")
    return int(broken or not count)


if __name__ == "__main__":
    sys.exit(main())
