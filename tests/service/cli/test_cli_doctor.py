"""`ldlm-monitor doctor`, as its user meets it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

Ask = Callable[..., Any]

_TEXT = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {"text": {"type": "string", "minLength": 1}},
}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_RULE = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string"},
        "shortDescription": _TEXT,
        "fullDescription": _TEXT,
        "help": _TEXT,
        "defaultConfiguration": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"level": _LEVEL},
        },
        "properties": {"type": "object"},
    },
}
_PLACE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "artifactLocation": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"uri": {"type": "string", "pattern": "^[^ \\\\]+$"}},
        },
        "region": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"startLine": {"type": "integer", "minimum": 1}, "snippet": _TEXT},
        },
    },
}
_RESULT = {
    "type": "object",
    "required": ["message"],
    "additionalProperties": False,
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": _LEVEL,
        "message": _TEXT,
        "locations": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"physicalLocation": _PLACE},
            },
        },
    },
}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "additionalProperties": False,
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "rules": {"type": "array", "items": _RULE, "uniqueItems": True},
                                },
                            }
                        },
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {"type": "array", "items": _RESULT},
                },
            },
        },
    },
}
"""What sections 3.13 to 3.30 of the standard say of the properties that we write."""

SCRIPT = """#!/bin/bash
export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=12000000
export NCCL_TIMEOUT=7200
export HF_TOKEN=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
torchrun --nproc_per_node=8 train.py
"""


@pytest.fixture
def repository(folder: Path) -> Path:
    (folder / "repo/scripts").mkdir(parents=True)
    (folder / "repo/scripts/train.sh").write_text(SCRIPT)
    (folder / "repo/clean.sh").write_text("#!/bin/bash\ntorchrun train.py\n")
    return folder / "repo"


def test_the_worst_comes_first_with_evidence_reason_and_remedy(ask: Ask, repository: Path) -> None:
    answer = ask("doctor", "repo")
    paragraphs = answer.out.split("\n\n")
    assert answer.code == 3
    assert paragraphs[0].splitlines()[:3] == [
        "CRITICAL  The NCCL heartbeat timeout is longer than a day  [heartbeat-timeout-days]",
        "  repo/scripts/train.sh:2: export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=12000000",
        "      138d 21h",
    ]
    for word in ("Since: PyTorch 2.2", "Source: ", "Fix: ", "(--fix does it)"):
        assert word in paragraphs[0]
    assert answer.out.splitlines()[-2:] == [
        "2 critical, 1 warning in 2 files",
        "--fix can fix 1 of them; it shows the change first",
    ]


def test_a_secret_is_never_shown(ask: Ask, repository: Path) -> None:
    answers = [
        ask("doctor", "repo"),
        ask("doctor", "repo", "--json"),
        ask("doctor", "repo", "--sarif", "-"),
        ask("doctor", "repo", "--check"),
        ask("doctor", "repo", "--fix", "--yes"),
    ]
    assert "QwErTyUi" not in "".join(answer.out + answer.err for answer in answers)
    assert "HF_TOKEN=REDACTED" in answers[0].out.replace("[redacted]", "REDACTED")


def test_what_a_file_holds_cannot_write_to_the_terminal(ask: Ask, folder: Path) -> None:
    (folder / "a.sh").write_bytes(b"NCCL_TIMEOUT=1 torchrun train.py # \x1b[2J\x07\n")
    assert "\x1b" not in ask("doctor", "a.sh").out


@pytest.mark.parametrize(
    ("fail_on", "code"), [("critical", 0), ("error", 0), ("warning", 3), ("never", 0)]
)
def test_the_exit_code_is_3_from_the_severity_on_that_is_wanted(
    ask: Ask, folder: Path, fail_on: str, code: int
) -> None:
    (folder / "a.sh").write_text("export NCCL_TIMEOUT=1\ntorchrun train.py\n")
    assert ask("doctor", "a.sh", "--fail-on", fail_on).code == code
    assert ask("doctor", "a.sh", "--check", "--fail-on", fail_on).code == code


def test_a_clean_repository_is_said_so(ask: Ask, folder: Path) -> None:
    (folder / "a.sh").write_text("torchrun train.py\n")
    assert ask("doctor", ".").out == "nothing found in 1 file\n"


def test_for_ci_a_finding_is_a_line(ask: Ask, repository: Path) -> None:
    answer = ask("doctor", "repo", "--check")
    assert answer.code == 3
    assert answer.out.splitlines()[0] == (
        "repo/scripts/train.sh:2: critical: The NCCL heartbeat timeout is longer than a day: "
        "138d 21h [heartbeat-timeout-days]"
    )
    assert answer.out.splitlines()[-1] == "2 critical, 1 warning in 2 files"


def test_json_holds_all_of_a_finding(ask: Ask, repository: Path) -> None:
    found = json.loads(ask("doctor", "repo", "--json").out)
    assert (found["schema"], found["files"]) == ("ldlm.doctor/1", 2)
    assert found["summary"] == {"critical": 2, "error": 0, "warning": 1, "info": 0}
    first = found["findings"][0]
    assert (first["id"], first["severity"], first["path"], first["line"], first["fixable"]) == (
        "heartbeat-timeout-days", "critical", "repo/scripts/train.sh", 2, True,
    )  # fmt: skip
    assert first["evidence"] == "export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=12000000"
    assert all(first[key] for key in ("title", "why", "since", "source", "fix"))


def test_sarif_is_what_the_standard_demands(ask: Ask, repository: Path) -> None:
    answer = ask("doctor", "repo", "--sarif", "out.sarif")
    report = json.loads(Path("out.sarif").read_text())
    jsonschema.validate(report, SARIF)
    run = report["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    region = run["results"][0]["locations"][0]["physicalLocation"]
    assert region["artifactLocation"]["uri"] == "repo/scripts/train.sh"
    assert region["region"]["startLine"] == 2
    assert "CRITICAL" in answer.out  # the text is printed too


def test_a_fix_shows_the_change_makes_it_and_takes_it_back(ask: Ask, repository: Path) -> None:
    script = repository / "scripts/train.sh"
    script.chmod(0o750)
    os.utime(script, ns=(10**18, 10**18))
    answer = ask("doctor", "repo", "--fix", "--yes")
    assert "-export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=12000000\n" in answer.out
    assert "+export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=480\n" in answer.out
    assert "fixed: 1 finding in 1 file; " in answer.out
    assert answer.code == 3  # the secret is still there
    assert "HEARTBEAT_TIMEOUT_SEC=480" in script.read_text()
    assert ask("doctor", "repo", "--fix", "--yes").out.startswith("nothing to fix\n")
    assert ask("doctor", "repo", "--rollback").out == "put back: repo/scripts/train.sh\n"
    assert script.read_text() == SCRIPT
    status = script.stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o750, 10**18)
    assert sorted(path.name for path in repository.iterdir()) == ["clean.sh", "scripts"]


def test_a_fix_of_a_file_that_was_named_keeps_its_state_beside_it(
    ask: Ask, repository: Path
) -> None:
    ask("doctor", "repo/scripts/train.sh", "--fix", "--yes")
    assert (repository / "scripts/.ldlm-doctor").is_dir()
    ask("doctor", "repo/scripts/train.sh", "--rollback")
    assert (repository / "scripts/train.sh").read_text() == SCRIPT


def test_where_nobody_can_be_asked_nothing_is_changed(repository: Path) -> None:
    command = [sys.executable, "-m", "ldlm_monitor", "doctor", "repo", "--fix"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "-export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=12000000" in done.stdout
    assert done.stderr == (
        "ldlm-monitor: doctor --fix: there is nobody to ask; add --yes to make these changes\n"
    )
    assert (repository / "scripts/train.sh").read_text() == SCRIPT


@pytest.mark.parametrize(("said", "changed"), [("y\n", True), ("\n", False), ("no\n", False)])
def test_on_a_terminal_it_asks(repository: Path, said: str, changed: bool) -> None:
    master, slave = os.openpty()
    os.write(master, said.encode())
    command = [sys.executable, "-m", "ldlm_monitor", "doctor", "repo", "--fix"]
    done = subprocess.run(command, stdin=slave, capture_output=True, text=True, check=False)
    os.close(master)
    os.close(slave)
    assert "Change 1 file? [y/N]" in done.stderr
    assert ("nothing was changed" in done.stdout) is not changed
    assert ((repository / "scripts/train.sh").read_text() != SCRIPT) is changed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "doctor: no path is named; name a folder or a file"),
        (("gone",), "gone: cannot be read (No such file or directory); name a folder"),
        (("repo", "--fix", "--check"), "--check, --fix and --rollback exclude each other"),
        (("repo", "--yes"), "--yes is for --fix"),
        (("repo", "--rollback"), "there is no fix to take back"),
        (("note.txt",), "note.txt: is no kind of file that the doctor reads"),
        (("--live", "1", "--fix"), "a process has no files to change"),
        (("--live", "4194304"), "--live 4194304: the environment of the process cannot be read"),
        (("repo", "--sarif", "no/such/file"), "--sarif no/such/file: cannot be written"),
    ],
)
def test_what_cannot_be_done_is_a_line_and_code_2(
    ask: Ask, repository: Path, words: tuple[str, ...], said: str
) -> None:
    Path("note.txt").write_text("hello\n")
    answer = ask("doctor", *words)
    assert answer.code == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        "PATH": os.environ["PATH"],
        "TORCH_NCCL_ENABLE_MONITORING": "0",
        "NCCL_TIMEOUT": "1800",
        "WANDB_API_KEY": "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c",
    }
    running = subprocess.Popen(["sleep", "600"], env=environment)
    yield running
    running.kill()
    running.wait()


def test_a_running_process_is_judged_by_its_environment(
    ask: Ask, process: subprocess.Popen[bytes]
) -> None:
    place = f"/proc/{process.pid}/environ"
    answer = ask("doctor", "--live", str(process.pid), "--fail-on", "error")
    assert answer.code == 3
    assert answer.out.startswith(f"process {process.pid}: sleep 600\n  PyTorch not loaded, ")
    assert "  NCCL_TIMEOUT=1800\n  TORCH_NCCL_ENABLE_MONITORING=0\n" in answer.out
    assert f"  {place}:1: TORCH_NCCL_ENABLE_MONITORING=0\n" in answer.out
    found = json.loads(ask("doctor", "--live", str(process.pid), "--json").out)
    assert found["process"]["settings"] == {
        "NCCL_TIMEOUT": "1800", "TORCH_NCCL_ENABLE_MONITORING": "0",
    }  # fmt: skip
    assert {f["id"] for f in found["findings"]} == {"nccl-monitoring-off", "nccl-timeout-unread"}


def test_advice_is_given_on_request(ask: Ask, folder: Path) -> None:
    (folder / "a.sh").write_text("torchrun --nnodes 2 train.py\n")
    assert "advice-" not in ask("doctor", "a.sh").out
    said = ask("doctor", "a.sh", "--advice").out
    for check in ("advice-nccl-debug", "advice-socket-interface"):
        assert check in said


@pytest.mark.parametrize("missing", ["tree_sitter", "tree_sitter_bash", "ldlm_doctor"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, missing: str
) -> None:
    (tmp_path / "a.sh").write_text("torchrun train.py\n")
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from ldlm_monitor.service.cli import main\n"
        "sys.argv = ['ldlm-monitor', 'doctor', 'a.sh']\n"
        "sys.exit(main())"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"ldlm-monitor: doctor: the package {missing} is not installed; "
        "run: pip install 'ldlm-monitor[doctor]'\n"
    )
