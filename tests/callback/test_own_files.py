"""The callback appends to its own regular files, whatever else is in their place."""

import os
from pathlib import Path

import pytest

from ldlm_callback.own_files import open_to_append


def test_what_two_processes_append_stands_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    first, second = open_to_append(path), open_to_append(path)
    for fd, text in ((first, b"one\n"), (second, b"two\n"), (first, b"three\n")):
        os.write(fd, text)
    os.truncate(path, 0)  # as a rotation that copies does
    os.write(second, b"four\n")
    assert path.read_bytes() == b"four\n"
    assert os.pread(first, 100, 0) == b"four\n"
    os.close(first)
    os.close(second)


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_is_no_regular_file_is_refused_with_what_to_do(tmp_path: Path, what: str) -> None:
    path = tmp_path / "rows.jsonl"
    if what == "link":
        (tmp_path / "target").write_text("mine")
        path.symlink_to("target")
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(PermissionError, match="a link, folder, pipe or device, and is not written"):
        open_to_append(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's file takes root")
def test_a_file_of_the_folders_owner_is_written_and_that_of_another_is_not(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.touch()
    os.chown(path, 65533, -1)
    with pytest.raises(PermissionError, match=r"belongs to another user \(65533\)"):
        open_to_append(path)
    os.chown(tmp_path, 65533, -1)
    os.close(open_to_append(path))


def test_a_folder_that_is_missing_is_another_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_to_append(tmp_path / "none" / "rows.jsonl")
