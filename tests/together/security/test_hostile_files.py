"""Files that are made to hang, to crash or to fill the memory: logs, rules, formats, settings."""

import bz2
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., Any]
MIB = 1024 * 1024
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
LOGS = {
    "a line without end": b"step 1 loss 2.5 " * (4 * MIB // 16),
    "NUL bytes": b"\0" * MIB,
    "JSON nested deeply": b'{"step": 1, "loss": ' + b"[" * 100_000 + b"\n",
    "JSON objects nested deeply": b'{"a":' * 50_000 + b"\n",
    "a number of a million digits": b'{"step": 1, "loss": ' + b"9" * MIB + b"}\n",
    "a step beyond 64 bits": b"step 99999999999999999999999 loss 2.5\n",
    "a traceback without end": b"Traceback (most recent call last):\n" + b'  File "a"\n' * 20_000,
    "carriage returns alone": b"10%|#\r" * 100_000,
    "escape sequences alone": b"\x1b[" * 200_000,
    "UTF-16 cut in the middle": "\ufeffstep 1 loss 2.5\n".encode("utf-16-le")[:-1],
    "invalid UTF-8": b"step 1 loss 2.5 \xff\xfe\xc0\x80\n",
    "keys without end": b"{"
    + b",".join(b'"k%d": 1' % n for n in range(50_000))
    + b', "step": 1}\n',
    "a regular expression's worst": b"loss " * 100_000 + b"!\n",
}
COMPRESSED = {
    "gzip bomb.log.gz": gzip.compress(b"x" * (64 * MIB)),
    "cut.log.gz": gzip.compress(b"step 1 loss 2.5\n" * 1000)[:-9],
    "no gzip.log.gz": b"\x1f\x8b\x08garbage",
    "bzip2.log.bz2": bz2.compress(b"step 1 loss 2.5\n"),
}
YAML = {
    "aliases that multiply": BOMB + "groups: *i\nformat: *i\n",
    "nested deeply": "groups: " + "[" * 20_000,
    "an object of Python": "groups: !!python/object/apply:os.system ['touch hit']\n",
    "a name of Python": "!!python/name:os.system\n",
    "an anchor to itself": "groups: &a [*a]\n",
    "keys twice": "groups: []\ngroups: []\n",
    "a merge of itself": "groups: &a\n  <<: *a\n",
}


def is_answered(answer: Any) -> bool:
    """With a result, or one line that says what is wrong; never as a bug of ours."""
    return answer.code in (0, 2, 3) and "a bug of ours" not in answer.err


@pytest.mark.parametrize("name", LOGS)
def test_a_hostile_log_is_read(ask: Ask, tmp_path: Path, name: str) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"step 0 loss 2.5\n" + LOGS[name] + b"\nstep 7 loss 2.4\n")
    answer = ask("parse", str(log))
    assert is_answered(answer)
    assert '"step":0,' in answer.out
    assert len(answer.out) < 4 * len(LOGS[name]) + 10_000


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_hostile_compressed_file_is_read_or_refused(ask: Ask, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(COMPRESSED[name])
    assert is_answered(ask("parse", "--stats", str(tmp_path / name)))


@pytest.mark.parametrize("command", [["rules", "check"], ["formats", "test"], ["rules", "test"]])
@pytest.mark.parametrize("name", YAML)
def test_a_hostile_definition_is_refused(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.test.yml").write_text(YAML[name])
    answer = ask(*command, "mine.test.yml")
    assert is_answered(answer)
    assert answer.code == 2
    assert not Path("hit").exists()


@pytest.mark.parametrize("kind", ["loop", "dangling", "folder", "device", "pipe without a writer"])
def test_what_is_no_log_is_not_waited_for(ask: Ask, tmp_path: Path, kind: str) -> None:
    """In a folder, as a glob or a folder argument finds it."""
    path = tmp_path / "a.log"
    match kind:
        case "loop":
            path.symlink_to(path)
        case "dangling":
            path.symlink_to(tmp_path / "gone")
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            os.mkfifo(path)
    (tmp_path / "b.log").write_text("step 1 loss 2.5\n")
    assert is_answered(ask("--once", str(tmp_path)))
    assert is_answered(ask("--once", f"{tmp_path}/*.log"))
