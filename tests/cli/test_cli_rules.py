"""`rules check` and `rules list`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ldlm_monitor import names

Ask = Callable[..., Any]
GOOD = "groups: [{name: mine, rules: [{alert: Late, expr: 'ldlm_train_step > 3', for: 90s}]}]\n"


def test_the_packaged_rules_are_fine(ask: Ask) -> None:
    answer = ask("rules", "check")
    assert answer.code == 0
    assert "default.yml: " in answer.out
    assert "all fine" in answer.out


def test_every_packaged_alert_is_listed_with_its_severity(ask: Ask) -> None:
    answer = ask("rules", "list")
    listed = dict(line.split()[:2] for line in answer.out.splitlines())
    assert names.ALERTS.items() <= listed.items()


def test_a_file_of_my_own_is_listed_instead(ask: Ask, folder: Path) -> None:
    (folder / "mine.yml").write_text(GOOD, encoding="utf-8")
    assert ask("rules", "list", "mine.yml").out.split() == [
        *("Late", "-", "for", "1", "min", "30", "s", "mine.yml"),
    ]
    assert ask("rules", "list", "--rules", "mine.yml").out == ask("rules", "list", "mine.yml").out


def test_every_bad_file_is_named_and_the_good_ones_too(ask: Ask, folder: Path) -> None:
    (folder / "good.yml").write_text(GOOD, encoding="utf-8")
    (folder / "bad.yml").write_text(GOOD.replace("> 3", "> > 3"), encoding="utf-8")
    (folder / "typo.yml").write_text(GOOD.replace("alert", "alrt"), encoding="utf-8")
    answer = ask("rules", "check", "bad.yml", "good.yml", "typo.yml", "none.yml")
    assert answer.code == 2
    assert answer.out == "good.yml: 1 rule, all fine\n"
    named = [line.split(":")[1].strip() for line in answer.err.splitlines()]
    assert named == ["bad.yml", "typo.yml", "none.yml"]
