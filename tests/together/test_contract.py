"""Public names are those of the design's contract, and the reverse."""

import re
from pathlib import Path
from typing import get_args

import pytest

from ldlm_monitor.base import names
from ldlm_monitor.base.alert import State
from ldlm_monitor.base.snapshot import Health
from ldlm_monitor.judge.core.exported_metrics import METRICS
from ldlm_monitor.judge.core.packaged_rules import packaged_set
from ldlm_monitor.judge.core.run_health import HEALTH
from ldlm_monitor.logs.parse import definitions

CONTRACT = Path(__file__).resolve().parents[2] / "../shared/design/contract.md"


pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def contract() -> str:
    return CONTRACT.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sections(contract: str) -> dict[str, str]:
    """The text of each section by its number."""
    parts = re.split(r"^## (\d+)\. ", contract, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


FAMILY = "ldlm_goodput_"  # promised as `ldlm_goodput_*`
METRICS_BESIDE = {
    names.EVALUATION_DURATION,
    names.DELIVERY_DURATION,
    names.LAST_EVENT,
    names.LAST_NONFINITE,
    names.EXPECTED_VALUE,
    names.RUN_START,
    names.RESTARTS,
    "ldlm_run_mesh_info",
    "ldlm_train_hang_limit_seconds",
}  # of ours, not promised
ALERTS_TO_COME: set[str] = set()
"""What the contract promises and no code exports yet. A name that comes leaves its set."""


def metric_rows(section: str) -> dict[str, str]:
    """Metric name (with its braces) to its type, of the table in section 3; several: "mixed"."""
    rows = re.findall(r"^\| (`ldlm_[^|]*) \| ([^|]*) \|", section, flags=re.MULTILINE)
    return {
        metric: "mixed" if "," in kind else kind.split()[0]
        for cell, kind in rows
        for metric in re.findall(r"`(ldlm_[^`]+)`", cell)
        if not metric.startswith(names.DETECT_PREFIX)
    }


def test_metrics_are_those_of_the_contract(sections: dict[str, str]) -> None:
    promised = {row.partition("{")[0]: kind for row, kind in metric_rows(sections["3"]).items()}
    fixed = {
        metric.name: metric.kind
        for metric in METRICS.values()
        if not is_detected(metric.name) and metric.name not in METRICS_BESIDE
    }
    family = {name for name in fixed if name.startswith(FAMILY)}
    assert family
    assert promised.pop(f"{FAMILY}*")
    fixed = {name: kind for name, kind in fixed.items() if name not in family}
    assert set(fixed) == set(promised)
    assert {name for name, kind in fixed.items() if promised[name] not in (kind, "mixed")} == set()


def test_detectors_are_those_of_the_contract_and_others(sections: dict[str, str]) -> None:
    row = next(line for line in sections["3"].splitlines() if "`ldlm_detect_*`" in line)
    promised = set(re.findall(r"`([a-z_]+)`", row.split("compute:")[1]))
    detected = {name for name in METRICS if is_detected(name)}
    assert {names.DETECT_PREFIX + name for name in promised} <= detected


def is_detected(name: str) -> bool:
    return name.startswith(names.DETECT_PREFIX)


def test_metrics_carry_the_labels_of_the_contract(sections: dict[str, str]) -> None:
    for row in metric_rows(sections["3"]):
        name, _, braces = row.partition("{")
        # The contract leaves the label of the version open.
        if name in (f"{FAMILY}*", "ldlm_build_info"):
            continue
        labels = [label for label in braces.rstrip("}").split(",") if label not in ("", "...")]
        if name.startswith("ldlm_gpu_"):  # the row ends in "all `{gpu}`"
            labels.insert(0, "gpu")
        assert list(METRICS[name].labels) == labels, row


def test_run_states_are_those_of_the_contract(sections: dict[str, str]) -> None:
    row = next(line for line in sections["3"].splitlines() if "`ldlm_run_state{state}`" in line)
    promised = re.findall(r"`([a-z]+)`", row)
    assert tuple(promised) == names.RUN_STATES
    assert set(names.RUN_STATES) >= names.ENDED_STATES


def test_the_alerts_of_the_contract_are_there_with_its_severities(sections: dict[str, str]) -> None:
    promised = dict(re.findall(r"([A-Z]\w+) \((info|warning|error|critical)[:;)]", sections["4"]))
    (watchdog,) = re.findall(r"(Watchdog) \(always firing, [^)]*; severity none\)", sections["4"])
    kept = {name: level for name, level in promised.items() if name not in ALERTS_TO_COME}
    packaged = {(rule.name, rule.labels["severity"].source) for rule in packaged_set().alerts}
    assert {*kept.items(), (watchdog, "none")} <= packaged


def test_transition_states_are_those_of_the_contract(sections: dict[str, str]) -> None:
    states = re.search(r'"state":((?:"\w+"\|?)+)', sections["4"])
    assert states is not None
    assert tuple(re.findall(r"\w+", states[1])) == get_args(State)


def test_health_words_are_those_of_the_contract(sections: dict[str, str]) -> None:
    words = re.findall(r"\d ([A-Z]{7,9})\b", sections["3"])
    assert tuple(words) == HEALTH
    assert get_args(Health) == ("READING", *HEALTH)  # before it is judged a run has no metric


def test_record_names_are_those_of_the_contract(sections: dict[str, str]) -> None:
    text = sections["2"]
    assert {name for name in names.CANONICAL_VALUES if f"`{name}`" not in text} == set()
    families = dict(re.findall(r"\b([A-M]) `(\w+)`", text))
    loaded = [definitions.load(path) for path in definitions.packaged_files()]
    assert {each.family for each in loaded} <= set(families.values())
    roles = re.search(r"`fields\.role` is (.*?)\.\n", text)
    assert roles is not None
    assert tuple(re.findall(r"`(\w+)`", roles[1])) == get_args(definitions.Role)
