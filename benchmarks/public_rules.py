"""How many rules of a folder load: python benchmarks/public_rules.py FOLDER [--promtool].

Each rule of each YAML file below FOLDER counts: of rule files, and of Kubernetes' PrometheusRules.
A rule that does not load is printed with the reason. `--promtool` asks promtool about each rule as
well, and prints those whose verdict differs.
"""

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from ldlm_promrules.alerting import check_rules
from ldlm_promrules.promql import parse


def groups_of(path: Path) -> Iterator[dict[str, Any]]:
    """The groups of a file; nothing of files that are no rule files."""
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError):
        return
    for document in documents:
        content = document.get("spec", document) if isinstance(document, dict) else None
        groups = content.get("groups") if isinstance(content, dict) else None
        for group in groups if isinstance(groups, list) else ():
            if isinstance(group, dict) and isinstance(group.get("rules"), list):
                yield group


def is_refused_by_promtool(path: Path) -> bool:
    """Whether promtool would not load a rule file."""
    done = subprocess.run(
        ["promtool", "check", "rules", "--lint=none", str(path)], capture_output=True, check=False
    )
    return done.returncode != 0


def main() -> int:
    """Print the counts; 1 if two verdicts differ."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--promtool", action="store_true", help="compare with promtool")
    given = parser.parse_args()
    loaded = refused = differing = 0
    with TemporaryDirectory() as folder:
        alone = Path(folder) / "rule.yml"
        for path in sorted(given.folder.rglob("*.y*ml")):
            for rule in (rule for group in groups_of(path) for rule in group["rules"]):
                alone.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}))
                _, problems = check_rules(alone, parse)
                loaded, refused = loaded + (not problems), refused + bool(problems)
                for problem in problems:
                    print(f"{path.relative_to(given.folder)}: {problem.what} ({problem.where})")
                if given.promtool and is_refused_by_promtool(alone) != bool(problems):
                    differing += 1
                    print(f"{path.relative_to(given.folder)}: promtool differs: {rule}")
    print(f"{loaded} rules load, {refused} are refused" + f", {differing} differ" * given.promtool)
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
