"""What the doctor finds, and what it leaves alone."""

from pathlib import Path

import pytest

from ldlm_doctor.model import checks
from tests.doctor.doctor_cases import cases, expected, found


def name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("case", cases("planted"), ids=name)
def test_every_planted_defect_is_found_and_nothing_else(case: Path) -> None:
    left = expected(case)
    surplus = []
    for finding in found(case):
        match = next(
            (mark for mark in left if mark[0] == finding.check.id and mark[1] in finding.evidence),
            None,
        )
        if match is None:
            surplus.append((finding.check.id, finding.line, finding.evidence))
        else:
            left.remove(match)
    assert (left, surplus) == ([], [])


@pytest.mark.parametrize("case", cases("clean"), ids=name)
def test_nothing_is_found_in_what_is_right(case: Path) -> None:
    assert [(f.check.id, f.line, f.evidence) for f in found(case)] == []


@pytest.mark.parametrize("case", cases("planted"), ids=name)
def test_the_evidence_is_the_text_of_the_line(case: Path) -> None:
    for finding in found(case):
        lines = Path(finding.path).read_text().splitlines()
        if not finding.check.id.startswith("secret-"):
            assert finding.evidence in lines[finding.line - 1]


def test_every_check_has_an_example() -> None:
    shown = {check for case in cases("planted") for check, _ in expected(case)}
    advice = {check for check in checks("launch") if check.startswith("advice-")}
    assert shown | advice == set(checks("launch"))


def test_what_a_code_host_runs_and_what_tests_set_are_no_training(tmp_path: Path) -> None:
    settings = "env:\n  NCCL_DEBUG: INFO\n  TORCH_NCCL_BLOCKING_WAIT: '1'\n"
    (tmp_path / ".github/workflows").mkdir(parents=True)
    (tmp_path / ".github/workflows/ci.yml").write_text(settings)
    assert found(tmp_path) == []
    (tmp_path / "job.yml").write_text(settings)
    assert {each.path for each in found(tmp_path)} == {str(tmp_path / "job.yml")}


def test_scripts_of_the_projects_own_tests_are_left_out(tmp_path: Path) -> None:
    text = "export NCCL_DEBUG=INFO\ntorchrun train.py\n"
    for folder in ("tests/all", "launch"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "run.sh").write_text(text)
    assert {each.path for each in found(tmp_path)} == {str(tmp_path / "launch/run.sh")}
    assert found(tmp_path / "tests/all/run.sh"), "what is named is looked at"
