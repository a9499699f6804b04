"""The monitor and the rules' distribution fit together."""

import ldlm_promrules.errors
from ldlm_monitor.base import errors


def test_errors_are_the_same_objects_under_both_names() -> None:
    assert errors.RuleError is ldlm_promrules.errors.RuleError
    assert errors.UnsupportedError is ldlm_promrules.errors.UnsupportedError
