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
    loaded = packages_loaded(f"from ldlm_monitor.service.cli import main; main([{flag!r}])")
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


def test_settings_load_no_parser() -> None:
    """Every command reads them, also those that look at another monitor."""
    loaded = packages_loaded("from ldlm_monitor.service.config import load; load({})")
    assert not loaded & {"hyperscan", "msgspec", "yaml"}


def test_parse_loads_neither_server_nor_receiver() -> None:
    loaded = packages_loaded(
        "from ldlm_monitor.service.cli import main; main(['parse', 'no-such-file'])"
    )
    assert not loaded & {"prometheus_client", "textual"}


def test_a_daemon_without_a_screen_loads_no_textual() -> None:
    assert "textual" not in packages_loaded("import ldlm_monitor.service.daemon.daemon")


@pytest.mark.parametrize("name", ["ldlm_callback", "ldlm_monitor.callback"])
def test_the_callback_loads_the_standard_library_alone(name: str) -> None:
    """It is a guest in a trainer, whose packages are the trainer's business."""
    loaded = packages_loaded(f"import {name}") - packages_loaded("pass")
    assert loaded <= {"ldlm_callback", "ldlm_monitor", *sys.stdlib_module_names}


def test_the_callback_loads_no_other_part_of_the_package() -> None:
    program = "import ldlm_monitor.callback, sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    ours = {name for name in done.stdout.splitlines() if name.startswith("ldlm_monitor")}
    assert ours == {"ldlm_monitor", "ldlm_monitor.callback"}


def test_the_callback_is_one_by_both_names() -> None:
    import ldlm_callback
    import ldlm_monitor.callback

    assert ldlm_monitor.callback.HealthCallback is ldlm_callback.HealthCallback
    assert ldlm_monitor.callback.__all__ == ldlm_callback.__all__


ADAPTERS = {
    "huggingface": ("transformers", "TrainerCallback"),
    "lightning": ("lightning.pytorch", "Callback"),
    "accelerate": ("accelerate.tracking", "GeneralTracker"),
    "keras": ("keras.callbacks", "Callback"),
}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("first", ["ldlm_callback", "ldlm_monitor.callback"])
def test_an_adapter_is_one_module_by_both_names(adapter: str, first: str) -> None:
    """A stub of the framework has its one class: the frameworks need not be installed."""
    framework, base = ADAPTERS[adapter]
    program = f"""
import importlib, pickle, sys, types
parts = {framework!r}.split(".")
for end in range(1, len(parts) + 1):
    stub = sys.modules[".".join(parts[:end])] = types.ModuleType(".".join(parts[:end]))
    stub.__path__ = []
stub.{base} = type({base!r}, (), {{}})
stub.on_main_process = lambda method: method
importlib.import_module({first!r} + ".{adapter}")
import ldlm_callback.{adapter} as new
import ldlm_monitor.callback.{adapter} as old
from ldlm_monitor.callback import {adapter} as named
assert old is new is named is importlib.import_module("ldlm_monitor.callback.{adapter}")
made = next(each for name, each in vars(new).items() if name.startswith("Health")
            and each.__module__ == new.__name__)
from ldlm_monitor.callback.{adapter} import *
assert pickle.loads(pickle.dumps(made)) is globals()[made.__name__] is made
assert pickle.loads(f"cldlm_monitor.callback.{adapter}\\n{{made.__name__}}\\n.".encode()) is made
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr


def test_the_chunk_is_also_where_it_was_documented_before() -> None:
    from ldlm_monitor import monitor
    from ldlm_monitor.model.chunk import Chunk

    assert Chunk is monitor.Chunk
