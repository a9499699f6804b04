"""Writes rules/*.yml as PrometheusRule objects: `python deploy/kubernetes/generate.py`.

The Prometheus Operator's `spec` is a rule file, so the text is taken over as it is, comments
included, and only moved to the right.
"""

from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes/operator"
FILES = ("default", "recording", "fleet")
HEAD = """\
# Made of rules/{name}.yml by deploy/kubernetes/generate.py: change it there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: ldlm-monitor-{name}
  labels:
    app.kubernetes.io/name: ldlm-monitor
spec:
"""


def objects() -> dict[str, str]:
    """The text of each file by its name."""
    return {
        f"rules-{name}.yaml": HEAD.format(name=name)
        + indent((ROOT / f"rules/{name}.yml").read_text("utf-8"), "  ")
        for name in FILES
    }


if __name__ == "__main__":
    for name, text in objects().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(name)
