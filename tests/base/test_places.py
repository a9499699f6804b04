"""Addresses, the folder of state, packaged YAML, labels and meanings: small shared rules."""

from pathlib import Path

import pytest

from ldlm_monitor.base.meaning import NOTHING, Meaning, Word
from ldlm_monitor.base.points import MAX_LABEL_LENGTH, make_labels
from ldlm_monitor.base.text.addresses import address, is_loopback
from ldlm_monitor.base.text.state_home import state_home
from ldlm_monitor.base.text.yaml_loader import packaged_yaml


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_a_loopback_address_leads_to_this_machine(host: str) -> None:
    assert is_loopback(host) is True


@pytest.mark.parametrize("host", [None, "", "example.org", "10.0.0.1", "0.0.0.0", "::", "127"])
def test_any_other_host_may_be_another_machine(host: str | None) -> None:
    assert is_loopback(host) is False


def test_an_address_is_host_and_port() -> None:
    assert address("localhost:80") == ("localhost", 80)
    assert address("[::1]:9090") == ("::1", 9090)


def test_state_is_kept_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert state_home() == Path("/state/ldlm-monitor")


@pytest.mark.parametrize("unset", [None, ""])
def test_state_is_kept_at_home_otherwise(
    monkeypatch: pytest.MonkeyPatch, unset: str | None
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if unset is not None:
        monkeypatch.setenv("XDG_STATE_HOME", unset)
    assert state_home() == Path("/home/ada/.local/state/ldlm-monitor")


def test_packaged_yaml_is_read_by_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packaged" / "data").mkdir(parents=True)
    (tmp_path / "packaged" / "data" / "kinds.yml").write_text("oom: { ends: [crashed, 1.5] }\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert packaged_yaml("packaged", "data/kinds.yml") == {"oom": {"ends": ["crashed", 1.5]}}


def test_labels_are_sorted_cut_and_never_empty() -> None:
    assert make_labels(run="gpt", kind="oom", rank=None, node="") == (
        ("kind", "oom"), ("run", "gpt"),
    )  # fmt: skip
    ((_, cut),) = make_labels(run="x" * 200)
    assert cut == "x" * MAX_LABEL_LENGTH
    assert MAX_LABEL_LENGTH == 128


@pytest.mark.parametrize(
    ("words", "begins", "finds_nobody"),
    [
        ({"start", "first words"}, True, False), ({"start"}, False, False),
        ({"first words"}, False, False), ({"finding", "left"}, False, True),
        ({"finding"}, False, False), ({"left", "look"}, False, False),
        ({"start", "first words", "course"}, True, False),
        ({"finding", "left", "look"}, False, True), (set(), False, False),
    ],
)  # fmt: skip
def test_words_of_a_meaning_are_read_together(
    words: set[Word], begins: bool, finds_nobody: bool
) -> None:
    meaning = Meaning(words=frozenset(words))
    assert (meaning.begins_run, meaning.finds_nobody) == (begins, finds_nobody)


def test_an_event_without_a_meaning_is_no_cause_and_ends_nothing() -> None:
    assert Meaning() == NOTHING
    assert (NOTHING.cause, NOTHING.ends, NOTHING.fault, NOTHING.pause) == ("none", None, None, None)
    assert (NOTHING.lasts, NOTHING.opens, NOTHING.accuses) == (False, False, None)
