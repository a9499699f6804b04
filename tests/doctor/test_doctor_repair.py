"""What a fix makes of the files."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ldlm_doctor.audit import audit
from ldlm_doctor.model import Edit, Finding, Kind, Project, SourceFile
from ldlm_doctor.repair import plan, verified
from tests.doctor.doctor_cases import cases, expected


def shell(text: str, path: str = "train.sh") -> SourceFile:
    return SourceFile(path, Kind.SHELL, text.encode())


def fixed(*files: SourceFile) -> list[str]:
    planned = plan(Project(files), audit)
    after = {repair.file.path: repair.after for repair in planned.repairs}
    return [after.get(file.path, file.content).decode() for file in files]


def whole_case(case: Path) -> Project:
    from ldlm_doctor.collect import collect

    return collect([str(case)]).project


def test_a_fix_changes_values_and_leaves_everything_else() -> None:
    before = (
        "#!/bin/bash\n"
        "set -e   # stop at errors\n"
        "\n"
        "export   TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC='12000000'  # relaxed\n"
        'export TORCH_NCCL_ENABLE_MONITORING="${WATCH:-0}"\n'
        "export NCCL_TIMEOUT=7200 NCCL_SOCKET_IFNAME=eth0\n"
        "\texport NCCL_DEBUG=INFO # noise\n"
        "TORCH_NCCL_BLOCKING_WAIT=1 \\\n"
        "  NCCL_TIMEOUT=3 \\\n"
        "  torchrun train.py --resume x 2>&1 | tee out.log\n"
    )
    after = (
        "#!/bin/bash\n"
        "set -e   # stop at errors\n"
        "\n"
        "export   TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC='480'  # relaxed\n"
        'export TORCH_NCCL_ENABLE_MONITORING="${WATCH:-1}"\n'
        "export NCCL_TIMEOUT=7200 NCCL_SOCKET_IFNAME=eth0\n"
        "\texport NCCL_DEBUG=WARN # noise\n"
        "set -o pipefail\n"
        "TORCH_NCCL_BLOCKING_WAIT=0 \\\n"
        "  NCCL_TIMEOUT=3 \\\n"
        "  torchrun train.py --resume x 2>&1 | tee out.log\n"
    )
    assert fixed(shell(before)) == [after]


def test_the_heartbeat_is_as_long_as_the_process_groups_timeout_allows() -> None:
    trainer = SourceFile(
        "train.py",
        Kind.PYTHON,
        b"init_process_group('nccl', timeout=datetime.timedelta(minutes=30))\n",
    )
    script = shell("export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=12000000\ntorchrun train.py\n")
    assert fixed(script, trainer)[0].splitlines()[0].endswith("=1800")


def test_two_launches_of_a_script_need_pipefail_once() -> None:
    before = "  torchrun train.py | tee a.log\n  torchrun train.py | tee b.log\n"
    assert fixed(shell(before)) == [f"  set -o pipefail\n{before}"]


def test_each_branch_of_a_script_needs_pipefail_of_its_own() -> None:
    before = (
        'if [ "$GPUS" -gt 1 ]; then\n'
        '    torchrun train.py 2>&1 | tee -a "$LOG"\n'
        "else\n"
        '    python train.py 2>&1 | tee -a "$LOG"\n'
        "fi\n"
    )
    piped = "    set -o pipefail\n    "
    after = before.replace("    torchrun", f"{piped}torchrun").replace(
        "    python", f"{piped}python"
    )
    assert fixed(shell(before)) == [after]


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\ntorchrun train.py | tee a.log\n",
        "set -e\ntorchrun train.py | tee a.log\nls out | head -1\n",
        "if ! torchrun train.py | tee a.log; then exit 1; fi\n",
    ],
)
def test_pipefail_is_left_to_the_author_where_it_could_break_something(script: str) -> None:
    project = Project((shell(script),))
    assert [finding.check.id for finding in audit(project)] == ["exit-code-hidden"]
    assert plan(project, audit).repairs == ()


def test_yaml_keeps_its_form() -> None:
    before = (
        "# é is two bytes, 😀 four\n"
        "a: {num_workers: 0, persistent_workers: True}   # no workers\n"
        "env:\n"
        "- {name: NCCL_DEBUG, value: 'INFO'}\n"
    )
    file = SourceFile("c.yaml", Kind.YAML, before.encode())
    after = before.replace("'INFO'", "'WARN'")
    assert fixed(file) == [after]


@pytest.mark.parametrize("case", cases("planted"), ids=lambda path: path.name)
def test_after_a_fix_there_is_nothing_left_to_fix_and_nothing_new(case: Path) -> None:
    project = whole_case(case)
    planned = plan(project, audit)
    after = {repair.file.path: repair.after for repair in planned.repairs}
    files = tuple(
        SourceFile(file.path, file.kind, after.get(file.path, file.content))
        for file in project.files
    )
    again = plan(Project(files), audit)
    assert (again.repairs, planned.left) == ((), ())
    found = [f for f in audit(Project(files)) if not f.path.endswith(".py")]
    left = [finding.check.id for finding in found]
    planted = [check for check, _ in expected(case)]
    assert all(left.count(check) <= planted.count(check) for check in left)
    assert len(left) <= len(planted) - len(
        {f.check.id for f in planned.fixed if f.path[-3:] != ".py"}
    )


@pytest.mark.parametrize("case", cases("planted"), ids=lambda path: path.name)
def test_bash_understands_every_fixed_script(case: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    for repair in plan(whole_case(case), audit).repairs:
        if repair.file.kind is Kind.SHELL:
            done = subprocess.run([bash, "-n"], input=repair.after, check=False)
            assert done.returncode == 0


def test_a_script_that_is_broken_already_is_left_alone() -> None:
    project = Project((shell("export NCCL_TIMEOUT=1\nif true; then\ntorchrun train.py\n"),))
    assert [finding.check.id for finding in audit(project)] == ["nccl-timeout-unread"]
    assert plan(project, audit).repairs == ()


@pytest.mark.parametrize(
    "before",
    [
        "\ufeffexport NCCL_TIMEOUT=1\ntorchrun train.py\n",
        'ssh node "cd \\"$PWD\\"; export NCCL_TIMEOUT=1; torchrun train.py"\n',
        "sbatch <<JOB\nexport A=\\$B NCCL_TIMEOUT=1\ntorchrun train.py\nJOB\n",
    ],
    ids=["byte order mark", "escaped quotes", "escaped dollar"],
)
def test_a_text_that_is_not_what_a_shell_gets_is_left_alone(before: str) -> None:
    project = Project((shell(before),))
    assert [finding.check.id for finding in audit(project)] == ["nccl-timeout-unread"]
    assert plan(project, audit).repairs == ()


def finding(text: bytes, *edits: Edit, worst: bool = False) -> Finding:
    return Finding(
        "heartbeat-timeout-days" if worst else "nccl-monitoring-off",
        "a.py",
        1,
        text.decode(),
        "",
        edits,
    )


def test_where_two_findings_want_the_same_bytes_the_first_has_them() -> None:
    file = SourceFile("a.py", Kind.PYTHON, b"x = [1, 2, 3]\n")
    one = finding(b"one", Edit("a.py", 5, 6, b"7"), worst=True)
    two = finding(b"two", Edit("a.py", 4, 13, b"[]"))

    def look(project: Project) -> Sequence[Finding]:
        return [one, two] if project.files[0].content == file.content else []

    planned = plan(Project((file,)), look)
    assert [repair.after for repair in planned.repairs] == [b"x = [7, 2, 3]\n"]
    assert planned.fixed == (one,)


def test_an_edit_that_breaks_a_file_is_dropped_and_the_others_are_made() -> None:
    file = SourceFile("a.py", Kind.PYTHON, b"x = 1\ny = 2\n")
    good = finding(b"good", Edit("a.py", 4, 5, b"3"))
    bad = finding(b"bad", Edit("a.py", 10, 11, b")"))

    def look(project: Project) -> Sequence[Finding]:
        return [bad, good] if project.files[0].content == file.content else [bad]

    planned = plan(Project((file,)), look)
    assert [repair.after for repair in planned.repairs] == [b"x = 3\ny = 2\n"]
    assert (planned.fixed, planned.left) == ((good,), (bad,))


def test_a_finding_is_mended_in_all_its_files_or_in_none() -> None:
    files = (
        SourceFile("a.py", Kind.PYTHON, b"x = 1\n"),
        SourceFile("b.py", Kind.PYTHON, b"y = 2\n"),
    )
    both = finding(b"both", Edit("a.py", 4, 5, b"3"), Edit("b.py", 4, 5, b"]"))
    assert plan(Project(files), lambda _: [both]).repairs == ()


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (Kind.SHELL, b"echo a\n", b"echo 'a\n"),
        (Kind.SHELL, b"if a; then b; fi\n", b"if a; then fi\n"),
        (Kind.PYTHON, b"x = 1\n", b"x = \n"),
        (Kind.JSON, b'{"a": 1}', b'{"a": }'),
        (Kind.JSON, b'{"a": 1}', b'{"a": 1, "b": 2}'),
        (Kind.YAML, b"a: 1\n", b"a: [1\n"),
        (Kind.YAML, b"a: 1\nb: 2\n", b"a: 1\n"),
        (Kind.YAML, b"a: {b: 1}\n", b"a: b\n"),
    ],
)
def test_what_is_no_longer_what_it_was_is_not_verified(
    kind: Kind, before: bytes, after: bytes
) -> None:
    assert not verified(SourceFile("x", kind, before), after)
    assert verified(SourceFile("x", kind, before), before)
