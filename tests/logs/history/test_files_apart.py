"""Files near a log that it does not name: they stay apart, and a notice says why."""

from pathlib import Path

from ldlm_monitor.logs.history.strangers import LISTED, Apart, notices_of, set_apart
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.companions import Companion

LOG = Path("/runs/train.log")


def test_a_file_that_nobody_asked_for_is_not_followed() -> None:
    names = RunNames()
    (apart,) = set_apart(LOG, [Companion(Path("/runs/a.jsonl"), "it is older")], names, {})
    why = "because it is older; name the file together with the log to follow it"
    assert apart == Apart(LOG, (Path("/runs/a.jsonl"),), why)


def test_a_file_that_a_folder_holds_is_followed_as_a_run_of_its_own(tmp_path: Path) -> None:
    names, near, log = RunNames(), tmp_path / "train_rank1.log", tmp_path / "train_rank0.log"
    near.touch()
    run = names.origin(str(log)).run
    assert names.origin(str(near)).run == run
    (apart,) = set_apart(log, [Companion(near, "it is older")], names, {near: near})
    assert apart.why == "because it is older; it is followed as a run of its own"
    assert names.origin(str(near)).run == f"{run}/train"
    assert names.origin(str(log)).run == run


def test_files_of_another_run_keep_it(tmp_path: Path) -> None:
    names, near = RunNames(), tmp_path / "other.jsonl"
    near.touch()
    before = names.origin(str(near)).run
    assert before != names.origin(str(LOG)).run
    set_apart(LOG, [Companion(near, "it is older")], names, {near: near})
    assert names.origin(str(near)).run == before


def test_files_are_listed_by_their_reason() -> None:
    reasons = {"a": "it is older", "b": "it is newer", "c": "it is older"}
    near = [Companion(Path(f"/{name}"), why) for name, why in reasons.items()]
    found = set_apart(LOG, near, RunNames(), {})
    assert [(each.files, each.why.split(";")[0]) for each in found] == [
        ((Path("/a"), Path("/c")), "because it is older"),
        ((Path("/b"),), "because it is newer"),
    ]


def test_a_notice_names_each_file_and_log_once_and_four_of_many() -> None:
    files = tuple(Path(f"/{number}") for number in range(LISTED + 2))
    apart = [
        Apart(LOG, files[:3], "because"), Apart(Path("/b.log"), files, "because"),
        Apart(LOG, files[:LISTED], "as"),
    ]  # fmt: skip
    assert [*notices_of(apart)] == [
        "/0, /1, /2, /3 and 2 more: no companion of /runs/train.log, /b.log, because",
        "/0, /1, /2, /3: no companion of /runs/train.log, as",
    ]
    assert [*notices_of([])] == []
