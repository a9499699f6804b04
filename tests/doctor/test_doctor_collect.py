"""Which files of a folder are read, and what is said of those that are not."""

import os
from pathlib import Path

import pytest

from ldlm_doctor.collect import MAX_BYTES, collect
from ldlm_doctor.errors import DoctorError
from ldlm_doctor.model import Kind

CONFIGURATION = b'{"zero_optimization": {"stage": 2}}'


def kinds(*paths: Path) -> dict[str, Kind]:
    found = collect([str(path) for path in paths]).project.files
    return {Path(file.path).name: file.kind for file in found}


def test_a_json_file_is_read_where_it_configures_a_training(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_bytes(CONFIGURATION)
    (tmp_path / "args.json").write_text('{"per_device_train_batch_size": 4}')
    (tmp_path / "samples.json").write_text('[{"text": "zero_optimization"}]')
    (tmp_path / "data.json").write_bytes(CONFIGURATION + b" " * 70_000)
    (tmp_path / ".deepspeed_env").write_text("NCCL_DEBUG=WARN\n")
    assert kinds(tmp_path) == {
        "ds.json": Kind.JSON,
        "args.json": Kind.JSON,
        ".deepspeed_env": Kind.ENVIRONMENT,
    }
    assert kinds(tmp_path / "samples.json") == {"samples.json": Kind.JSON}


def test_what_cannot_be_read_is_said_in_a_line_each(tmp_path: Path) -> None:
    (tmp_path / "binary.sh").write_bytes(b"#!/bin/sh\n\0\1\2")
    (tmp_path / "huge.sh").write_bytes(b"a" * (MAX_BYTES + 1))
    (tmp_path / "cut.json").write_bytes(CONFIGURATION[:-1])
    notices = [notice.removeprefix(f"{tmp_path}/") for notice in collect([str(tmp_path)]).notices]
    assert notices == [
        "binary.sh: not text, left out",
        "cut.json: not valid JSON, left out",
        "huge.sh: 1048577 bytes, left out (1048576 at most)",
    ]


def test_a_template_is_left_out_in_silence_unless_it_is_named(tmp_path: Path) -> None:
    template = tmp_path / "job.yaml"
    template.write_text("{% if gpu %}\na: [\n")
    assert collect([str(tmp_path)]).notices == ()
    assert collect([str(template)]).notices == (f"{template}: not valid YAML, left out",)


def test_links_pipes_and_strange_texts_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "nowhere.sh").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe.sh")
    (tmp_path / "folder.sh").mkdir()
    (tmp_path / "empty.sh").touch()
    (tmp_path / "latin.sh").write_bytes(b"export NCCL_TIMEOUT=7200 # caf\xe9\r\n")
    assert set(kinds(tmp_path)) == {"empty.sh", "latin.sh"}
    assert collect([str(tmp_path)]).notices == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    secret = tmp_path / "secret.sh"
    secret.touch(0o000)
    assert collect([str(tmp_path)]).notices == (f"{secret}: Permission denied, left out",)


@pytest.mark.parametrize("name", ["gone.sh", "pipe"])
def test_a_name_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DoctorError):
        collect([str(tmp_path / name)])
