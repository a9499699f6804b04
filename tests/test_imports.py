"""What an import really loads, in a fresh interpreter: quick answers must stay quick."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    "hyperscan",
    "prometheus_client",
    "promql_parser",
    "pydantic",
    "re2",
    "textual",
    "tree_sitter",
    "watchdog",
    "yaml",
}


def packages_loaded(statement: str) -> set[str]:
    """Top-level packages in `sys.modules` after the statement, which may exit."""
    program = (
        "import json, sys\n"
        f"try:\n    {statement}\n"
        "finally:\n"
        "    names = {name.partition('.')[0] for name in sys.modules}\n"
        "    print('\\n' + json.dumps(sorted(names)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_a_quick_answer_loads_no_heavy_package(flag: str) -> None:
    loaded = packages_loaded(f"from ldlm_monitor.cli import main; main([{flag!r}])")
    assert "cyclopts" in loaded
    assert not loaded & HEAVY


def test_the_version_needs_no_command_line() -> None:
    asked = (
        "import sys; sys.argv[1:] = ['--version']; from ldlm_monitor.__main__ import main; main()"
    )
    assert "cyclopts" not in packages_loaded(asked)


def test_the_root_package_imports_nothing() -> None:
    """`import ldlm_monitor.callback` in a trainer executes it."""
    added = packages_loaded("import ldlm_monitor") - packages_loaded("pass")
    assert added == {"ldlm_monitor"}


def test_parse_loads_neither_server_nor_receiver() -> None:
    loaded = packages_loaded("from ldlm_monitor.cli import main; main(['parse', 'no-such-file'])")
    assert not loaded & {"prometheus_client", "textual"}


def test_a_daemon_without_a_screen_loads_no_textual() -> None:
    assert "textual" not in packages_loaded("import ldlm_monitor.daemon.daemon")


def test_the_callback_loads_the_standard_library_alone() -> None:
    """It is a guest in a trainer, whose packages are the trainer's business."""
    loaded = packages_loaded("import ldlm_monitor.callback") - packages_loaded("pass")
    assert loaded <= {"ldlm_monitor", *sys.stdlib_module_names}


def test_the_callback_loads_no_other_part_of_the_package() -> None:
    program = "import ldlm_monitor.callback, sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    ours = {name for name in done.stdout.splitlines() if name.startswith("ldlm_monitor")}
    assert all(name.startswith("ldlm_monitor.callback") for name in ours - {"ldlm_monitor"})
