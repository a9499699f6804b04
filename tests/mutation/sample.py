"""A seeded sample of mutants of each house, each tried by the house's own tests.

    python tests/mutation/sample.py [--seed N] [--mutants N] [--minutes N] [HOUSE ...]

The mutants are those of cosmic-ray (`pip install cosmic-ray coverage`). From each house,
`--mutants` are drawn, in an order that the seed gives; by default the seed is the date's. Not drawn
is what changes nothing that a program does, see `meaning`. Each mutant is written into a copy of
the repository, where those tests of its house run until the first failure that run the changed
lines, as coverage found before, the quickest first; then those that start processes, and where an
import or a fixture of several tests runs the lines, all others. A mutant is killed by a failure, or
where the tests take four times as long as without it. Printed are the mutants that survived, as a
line of code before and after, and the score of each house and of all.

All ends after `--minutes`. Each house has an equal share of what is left; a mutant that the end
cuts short does not count. The score is that of the mutants tried.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.util
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[2]
INSIDE = ("base", "logs", "judge", "screen", "host", "finished", "service")
"""Houses of the monitor; others are distributions of their own."""
HOUSES = {
    **{house: Path("monitor/ldlm_monitor", house) for house in INSIDE},
    **{
        house: Path(house, f"ldlm_{house}")
        for house in ("callback", "promrules", "doctor", "trainer")
    },
}
NEEDS = {"trainer": "torch"}  # without which a house's tests are skipped
LEFT_OUT = (".git", ".venv", "__pycache__", ".hypothesis", ".mypy_cache", "site")
ARGUMENTS = (
    "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "reach",
    "-m", "not live and not long",
)  # fmt: skip
BESIDE = ROOT.parent / "shared"
"""What some tests read, and are skipped without."""
PARTS = ("monitor", "callback", "promrules", "doctor", "trainer")  # folders with packages
TIMES_AS_LONG = 4
LEAST_SECONDS = 60.0
"""A mutant has at least so long: a loaded machine must not kill it."""
NO_TESTS = 5  # pytest's exit status if no test was collected
LOGGERS = ("log", "logger", "logging")
WITHOUT_EFFECT = ("cache", "lru_cache", "final", "override")
"""Decorators that change no result."""
FOR_SAFETY = ("frozen", "slots")  # of a dataclass: no program that is right depends on them


@dataclass(frozen=True)
class Mutant:
    module: Path
    """In the repository."""
    operator: str
    text: str
    before: str

    def changes(self) -> list[tuple[range, list[str], list[str]]]:
        """What differs: the numbers of lines before, these lines, and those after."""
        before, after = self.before.splitlines(), self.text.splitlines()
        found = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        return [
            (range(i + 1, max(i + 1, j) + 1), before[i:j], after[k:m])
            for what, i, j, k, m in found
            if what != "equal"
        ]

    def __str__(self) -> str:
        numbers, *both = self.changes()[0]
        old, new = (" ".join(line.strip() for line in lines) for lines in both)
        return f"{self.module}:{numbers[0]}: {old}  ->  {new}"

    def lines(self) -> set[int]:
        """The lines of the statements that it changes; of one with a body, those of its head."""
        found: set[int] = set()
        for changed in {number for numbers, *_ in self.changes() for number in numbers}:
            inner = range(changed, changed + 1)
            for head in heads(self.before):
                if changed in head:
                    inner = head  # the last that has the line is the innermost
            found |= {*inner}
        return found


def heads(source: str) -> list[range]:
    """The lines of each statement, the outer ones first; of one with a body, those before it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.match_case):
            found.append(range(node.pattern.lineno, node.body[0].lineno))
        elif isinstance(node, ast.stmt | ast.excepthandler):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(each.lineno for each in decorators)])
            body = getattr(node, "body", None)
            last = body[0].lineno if body else (node.end_lineno or node.lineno) + 1
            found.append(range(first, max(last, node.lineno + 1)))
    return found


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


class Meaning(ast.NodeTransformer):
    """Leaves out of a program what changes nothing that it does."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        named = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults += [each for each in node.kw_defaults if each]
        node.posonlyargs, node.args, node.kwonlyargs, node.kw_defaults = [], named, [], []
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        is_alias = isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"
        node.annotation = ast.Constant(None)
        if is_alias:
            node.value = None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func
        owner = function.value if isinstance(function, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id in LOGGERS:
            node.args, node.keywords = [], []
        elif isinstance(function, ast.Name) and function.id == "dataclass":
            node.keywords = [each for each in node.keywords if each.arg not in FOR_SAFETY]
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.decorator_list = [
            each
            for each in node.decorator_list
            if ast.unparse(each).partition("(")[0].rpartition(".")[2] not in WITHOUT_EFFECT
        ]
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_Is(self, node: ast.Is) -> ast.AST:
        return ast.Eq()  # None and enumerations are equal only to themselves

    def visit_IsNot(self, node: ast.IsNot) -> ast.AST:
        return ast.NotEq()


def meaning(source: str) -> str | None:
    """The program without annotations, type aliases, what only logs get, caches, the safety of
    dataclasses, whether arguments are passed by name (mypy checks both), and the difference of
    identity and equality; None: it is no Python.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.dump(Meaning().visit(ast.parse(source)))
    except SyntaxError:
        return None


def mutants(house: str, chance: random.Random) -> Iterator[Mutant]:
    """All mutants of a house in random order."""
    every = [
        (module, name, number)
        for module in sorted((ROOT / HOUSES[house]).rglob("*.py"))
        for name, number in mutations(module.read_text("utf-8"))
    ]
    chance.shuffle(every)
    for module, name, number in every:
        source = module.read_text("utf-8")
        try:
            text = mutate_code(source, get_operator(name)(), number)
        except AttributeError:  # cosmic-ray 8 cannot replace an exception named `module.Error`
            continue
        if text is not None and meaning(text) not in (None, meaning(source)):
            yield Mutant(module.relative_to(ROOT), name, text, source)


class TimeOverError(Exception):
    """The time for all mutants is over."""


@dataclass(frozen=True)
class Reach:
    """Which tests of a house run which lines; of each test its seconds, and whether it starts a
    process.
    """

    copy: Path
    lines: CoverageData
    times: dict[str, tuple[float, bool]]

    def tests(self, mutant: Mutant) -> list[list[str]]:
        """The tests to run in turn, the quickest first; none where none can notice the mutant."""
        by_line = self.lines.contexts_by_lineno(str(self.copy / mutant.module))
        contexts = {each for line in mutant.lines() for each in by_line.get(line, ())}
        quickest = sorted(self.times, key=lambda test: self.times[test][0])
        on_line = [test for test in quickest if test in contexts]
        others = [
            test
            for test in quickest
            if test not in contexts and (self.times[test][1] or "" in contexts)
        ]
        return [tests for tests in (on_line, others) if tests]

    def seconds(self, tests: list[str]) -> float:
        return sum(self.times[test][0] for test in tests)


@dataclass(frozen=True)
class Trial:
    """Runs tests in `copy`, one of the repository; all end at `end` (of the monotonic clock)."""

    copy: Path
    end: float

    def passes(self, command: Sequence[str], limit: float = math.inf, **files: Path) -> bool:
        """Whether tests pass within `limit` seconds. Raises `TimeOverError` at the end of all."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                str(self.copy / part) for part in (*PARTS, "tests/mutation")
            ),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_PROFILE": "ci",
            **{name: str(path) for name, path in files.items()},
        }
        left = max(self.end - time.monotonic(), 0.0)
        run = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=self.copy, env=environment,
            start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            status = run.wait(min(limit, left))
        except subprocess.TimeoutExpired:
            if left <= limit:
                raise TimeOverError from None
            return False
        finally:
            with suppress(ProcessLookupError):  # what a test started ends with it
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
        return status in (0, NO_TESTS)

    def reach(self, house: str) -> Reach | None:
        """What the tests of a house run; None if they fail."""
        data, times = self.copy.parent / f"{house}.coverage", self.copy.parent / f"{house}.json"
        measured = ("coverage", "run", f"--data-file={data}", f"--source={HOUSES[house]}", "-m")
        command = (*measured, "pytest", *ARGUMENTS, f"tests/{house}")
        if not self.passes(command, MUTATION_TIMES=times):
            return None
        lines = CoverageData(str(data))
        lines.read()
        return Reach(self.copy, lines, json.loads(times.read_text("utf-8")))

    def survives(self, mutant: Mutant, reach: Reach) -> bool:
        """Whether no test of the house fails with the mutant."""
        target = self.copy / mutant.module
        chosen = self.copy.parent / "chosen.json"
        target.write_text(mutant.text, "utf-8")
        try:
            for tests in reach.tests(mutant):
                chosen.write_text(json.dumps(tests), "utf-8")
                files = sorted({test.partition("::")[0] for test in tests})
                limit = max(LEAST_SECONDS, TIMES_AS_LONG * reach.seconds(tests))
                command = ("pytest", *ARGUMENTS, *files)
                if not self.passes(command, limit, MUTATION_TESTS=chosen):
                    return False
            return True
        finally:
            target.write_text(mutant.before, "utf-8")


def tried(trial: Trial, house: str, count: int, seed: int, houses: int) -> tuple[int, int] | None:
    """How many mutants of a house were killed, of how many; None: its tests fail without any.

    `houses` share the time that is left when its tests were run without a mutant.
    """
    reach = trial.reach(house)
    if reach is None:
        return None
    now = time.monotonic()
    until = now + (trial.end - now) / houses
    killed = all_tried = 0
    for mutant in mutants(house, random.Random(f"{seed} {house}")):
        if all_tried == count or time.monotonic() > until:
            break
        try:
            survived = trial.survives(mutant, reach)
        except TimeOverError:
            break
        all_tried += 1
        killed += not survived
        if survived:
            print(f"survived: {mutant}", flush=True)
    return killed, all_tried


def score(killed: int, count: int) -> str:
    return f"{killed} of {count} killed" + (f" ({killed / count:.0%})" if count else "")


def main() -> int:
    flags = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flags.add_argument("houses", nargs="*", metavar="HOUSE")
    flags.add_argument(
        "--seed",
        type=int,
        help="by default the day's number",
        default=int(time.time() // 86400),
    )
    flags.add_argument("--mutants", type=int, default=20, help="of each house")
    flags.add_argument("--minutes", type=float, default=90.0, help="all end after so long")
    given = flags.parse_args()
    if unknown := {*given.houses} - {*HOUSES}:
        flags.error(f"no house: {', '.join(sorted(unknown))}; one of {', '.join(HOUSES)}")
    houses = [
        house
        for house in given.houses or HOUSES
        if house not in NEEDS or importlib.util.find_spec(NEEDS[house])
    ]
    print(f"seed {given.seed}", flush=True)
    killed = count = 0
    broken = False
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        if BESIDE.is_dir():
            (copy.parent / BESIDE.name).symlink_to(BESIDE)
        for place, house in enumerate(houses):
            left = len(houses) - place
            try:
                found = tried(Trial(copy, end), house, given.mutants, given.seed, left)
            except TimeOverError:
                print(f"{house}: not reached", flush=True)
                continue
            if found is None:
                broken = True
                print(f"{house}: its tests fail without a mutant", flush=True)
                continue
            print(f"{house}: {score(*found)}", flush=True)
            killed, count = killed + found[0], count + found[1]
    print(f"all: {score(killed, count)}, seed {given.seed}")
    return int(broken or not count)


if __name__ == "__main__":
    sys.exit(main())
