"""What `import ldlm_promrules` offers, and what it loads."""

import json
import subprocess
import sys

import pytest

import ldlm_promrules

HEAVY = {"promql_parser", "pydantic", "re2", "yaml"}


def packages_loaded(statement: str) -> set[str]:
    program = (
        "import json, sys\n"
        f"{statement}\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "print(json.dumps(sorted(names)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def test_there_are_at_most_forty_names_and_each_is_there() -> None:
    assert len(ldlm_promrules.__all__) <= 40
    assert set(ldlm_promrules.__all__) <= set(dir(ldlm_promrules))
    for name in ldlm_promrules.__all__:
        assert getattr(ldlm_promrules, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'monitor'"):
        ldlm_promrules.monitor  # noqa: B018


def test_the_package_loads_nothing_else() -> None:
    added = packages_loaded("import ldlm_promrules") - packages_loaded("pass")
    assert added - set(sys.stdlib_module_names) == {"ldlm_promrules"}


@pytest.mark.parametrize("name", ["Labels", "Series", "RuleError", "AlertChange", "parse_duration"])
def test_a_type_loads_no_parser(name: str) -> None:
    assert not packages_loaded(f"from ldlm_promrules import {name}") & HEAVY


def test_an_expression_loads_no_yaml_and_nothing_of_the_monitor() -> None:
    loaded = packages_loaded("from ldlm_promrules import parse; parse('up')")
    assert "promql_parser" in loaded
    assert not loaded & {"yaml", "pydantic", "ldlm_monitor", "ldlm_callback"}
