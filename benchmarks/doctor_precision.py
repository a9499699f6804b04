"""How much of what the doctor finds in public training code is right, by labels made by reading.

    python benchmarks/doctor_precision.py FOLDER [--labels tests/doctor/public.json]

FOLDER holds a folder OWNER+NAME for each repository, at the commit that the labels name. Findings
at warning and above count, copies of one line in a repository once. The exit code is 1 if a
precision is below its target, or if a finding has no label.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from ldlm_doctor.audit import audit
from ldlm_doctor.collect import collect
from ldlm_doctor.model import Finding

TARGETS = {"critical": 1.0, "error": 0.95, "warning": 0.95}
LABELS = Path(__file__).parent.parent / "tests/doctor/public.json"


def relevant(folder: Path) -> Iterator[Finding]:
    """What is found in a repository at warning and above, copies of one line once."""
    seen: set[tuple[str, str]] = set()
    for finding in audit(collect([str(folder)]).project):
        key = finding.check_id, finding.evidence
        if finding.check.severity in TARGETS and key not in seen:
            seen.add(key)
            yield finding


def labelled(repository: Mapping[str, object]) -> dict[tuple[str, str, int], str]:
    """The labels of a repository by check, path and line."""
    findings = repository["findings"]
    assert isinstance(findings, list)
    return {(each["check"], each["path"], each["line"]): each["label"] for each in findings}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=Path, default=LABELS)
    args = parser.parse_args()
    counts: Counter[tuple[str, str, str]] = Counter()
    unlabelled = 0
    for repository in json.loads(args.labels.read_text())["repositories"]:
        folder = args.folder / repository["repository"].replace("/", "+")
        if not folder.is_dir():
            print(f"{folder}: not there, left out", file=sys.stderr)
            continue
        labels = labelled(repository)
        for finding in relevant(folder):
            path = str(Path(finding.path).relative_to(folder))
            label = labels.get((finding.check_id, path, finding.line))
            if label is None:
                unlabelled += 1
                place = f"{path}:{finding.line}"
                print(f"{repository['repository']}: no label: {finding.check_id} {place}")
                continue
            counts[repository["set"], finding.check.severity, label] += 1
    missed = unlabelled > 0
    print(f"{'set':10} {'severity':10} {'true':>5} {'arguable':>9} {'false':>6}  precision")
    for group in sorted({group for group, _, _ in counts}):
        for severity, target in TARGETS.items():
            right, arguable, wrong = (
                counts[group, severity, label] for label in ("true", "arguable", "false")
            )
            if total := right + arguable + wrong:
                precision = (right + arguable) / total
                missed |= precision < target
                strict = right / total
                print(
                    f"{group:10} {severity:10} {right:5} {arguable:9} {wrong:6}  "
                    f"{precision:.0%}, {strict:.0%} without the arguable"
                )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
