"""A fix on disk can be taken back byte for byte, whatever happens."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_doctor.errors import DoctorError
from ldlm_doctor.journal import Change, apply, rollback

STATE = ".ldlm-doctor"


def picture(root: Path) -> dict[str, tuple[bytes, int, int]]:
    """Content, mode and time of every file."""
    return {
        str(path.relative_to(root)): (
            path.read_bytes(),
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def tree(root: Path, *contents: bytes) -> list[Change]:
    """Files with these contents, each with a mode and a time of its own; and a change of each."""
    changes = []
    for number, content in enumerate(contents):
        path = root / f"d{number % 2}" / f"f{number}.sh"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o640 + number)
        os.utime(path, ns=(10**18, 10**18 + 12345 + number))
        changes.append(Change(path, content, content + b"# fixed\n"))
    return changes


@given(st.lists(st.tuples(st.binary(max_size=60), st.binary(max_size=60)), min_size=1, max_size=5))
def test_what_was_fixed_and_taken_back_is_what_it_was(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[bytes, bytes]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    changes = [
        Change(change.path, change.before, after)
        for change, (_, after) in zip(tree(root, *(b for b, _ in pairs)), pairs, strict=True)
    ]
    before = picture(root)
    apply(root, changes)
    assert [change.path.read_bytes() for change in changes] == [c.after for c in changes]
    rollback(root)
    assert picture(root) == before


def test_a_fix_keeps_modes_and_takes_the_place_at_once(tmp_path: Path) -> None:
    changes = tree(tmp_path, b"a\n", b"b\n")
    modes = [change.path.stat().st_mode for change in changes]
    apply(tmp_path, changes)
    assert [change.path.stat().st_mode for change in changes] == modes
    assert {path.name for path in tmp_path.iterdir()} == {"d0", "d1", STATE}
    assert [path.name for path in (tmp_path / "d0").iterdir()] == ["f0.sh"]


def test_fixes_are_taken_back_one_by_one_the_last_first(tmp_path: Path) -> None:
    (change,) = tree(tmp_path, b"one\n")
    first = picture(tmp_path)
    apply(tmp_path, [change])
    apply(tmp_path, [Change(change.path, change.after, b"three\n")])
    assert rollback(tmp_path) == [change.path]
    assert change.path.read_bytes() == change.after
    rollback(tmp_path)
    assert picture(tmp_path) == first
    with pytest.raises(DoctorError, match="there is no fix to take back"):
        rollback(tmp_path)


def test_a_file_that_was_changed_since_is_not_overwritten_and_the_others_neither(
    tmp_path: Path,
) -> None:
    one, two = tree(tmp_path, b"one\n", b"two\n")
    apply(tmp_path, [one, two])
    two.path.write_bytes(b"mine\n")
    with pytest.raises(DoctorError, match=r"f1.sh: was changed since the fix"):
        rollback(tmp_path)
    assert one.path.read_bytes() == one.after
    assert two.path.read_bytes() == b"mine\n"


def test_a_file_that_was_deleted_since_comes_back(tmp_path: Path) -> None:
    changes = tree(tmp_path, b"one\n")
    before = picture(tmp_path)
    apply(tmp_path, changes)
    changes[0].path.unlink()
    rollback(tmp_path)
    assert picture(tmp_path) == before


def test_a_file_that_is_no_longer_what_was_read_is_not_touched(tmp_path: Path) -> None:
    one, two = tree(tmp_path, b"one\n", b"two\n")
    two.path.write_bytes(b"mine\n")
    before = picture(tmp_path)
    with pytest.raises(DoctorError, match="was changed while the doctor looked at it"):
        apply(tmp_path, [one, two])
    assert {k: v for k, v in picture(tmp_path).items() if STATE not in k} == before


def test_a_file_with_two_names_is_not_parted(tmp_path: Path) -> None:
    (change,) = tree(tmp_path, b"one\n")
    (tmp_path / "other.sh").hardlink_to(change.path)
    with pytest.raises(DoctorError, match="several names"):
        apply(tmp_path, [change])


def test_a_write_that_fails_leaves_every_file_as_it_was(tmp_path: Path) -> None:
    (one,) = tree(tmp_path, b"one\n")
    two = Change(tmp_path / ("long" * 62), b"two\n", b"2\n")
    two.path.write_bytes(two.before)
    before = picture(tmp_path)  # the new bytes of the second need a name that is too long
    with pytest.raises(DoctorError, match="every file is as it was"):
        apply(tmp_path, [one, two])
    assert picture(tmp_path) == before


def test_the_tree_may_be_moved_before_a_rollback(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    changes = tree(old, b"one\n")
    before = picture(old)
    apply(old, changes)
    old.rename(new)
    rollback(new)
    assert picture(new) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from ldlm_doctor import journal

left = int(sys.argv[2])

def until_then(call):
    def counted(*arguments, **named):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)
    return counted

for name in ("replace", "open", "fsync", "utime"):
    setattr(journal.os, name, until_then(getattr(os, name)))
root = Path(sys.argv[1])
if sys.argv[3] == "apply":
    changes = [journal.Change(path, path.read_bytes(), path.read_bytes() + b"# fixed\\n")
               for path in sorted(root.glob("d*/*.sh"))]
    journal.apply(root, changes)
else:
    journal.rollback(root)
"""


def killed_after(calls: int, root: Path, what: str) -> bool:
    """Runs a fix or its rollback in a process that is killed after so many calls to the system."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), str(calls), what], check=False, timeout=60
    )
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


@pytest.mark.parametrize("calls", [2, 7, 13, 16, 19, 23])
def test_a_fix_that_was_killed_is_taken_back(tmp_path: Path, calls: int) -> None:
    changes = tree(tmp_path, b"one\n", b"two\n", b"three\n")
    before = picture(tmp_path)
    assert killed_after(calls, tmp_path, "apply")
    for change in changes:
        assert change.path.read_bytes() in (change.before, change.after)
    rollback(tmp_path)
    assert {k: v for k, v in picture(tmp_path).items() if STATE not in k} == before
    assert not (tmp_path / STATE).exists()


@pytest.mark.parametrize("calls", [1, 4, 9])
def test_a_rollback_that_was_killed_goes_on(tmp_path: Path, calls: int) -> None:
    changes = tree(tmp_path, b"one\n", b"two\n", b"three\n")
    before = picture(tmp_path)
    apply(tmp_path, changes)
    assert killed_after(calls, tmp_path, "rollback")
    rollback(tmp_path)
    assert picture(tmp_path) == before


@pytest.mark.long
def test_a_fix_may_be_killed_at_any_call(tmp_path: Path) -> None:
    for calls in range(200):
        root = tmp_path / str(calls)
        root.mkdir()
        tree(root, b"one\n", b"two\n", b"three\n")
        before = picture(root)
        if not killed_after(calls, root, "apply"):
            break
        if (root / STATE).exists():
            rollback(root)
        assert picture(root) == before
    assert calls > 20


def test_after_an_interrupted_fix_the_next_one_waits_for_the_rollback(tmp_path: Path) -> None:
    changes = tree(tmp_path, b"one\n", b"two\n")
    assert killed_after(14, tmp_path, "apply")
    now = [Change(c.path, c.path.read_bytes(), b"x") for c in changes]
    with pytest.raises(DoctorError, match="an earlier fix was interrupted"):
        apply(tmp_path, now)


def test_a_file_that_is_named_has_its_own_last_fix_taken_back(tmp_path: Path) -> None:
    first, second = tree(tmp_path, b"one\n", b"two\n")
    before = picture(tmp_path)
    apply(tmp_path, [first])
    apply(tmp_path, [second])
    assert rollback(tmp_path, first.path) == [first.path]
    assert second.path.read_bytes() == second.after
    with pytest.raises(DoctorError, match="there is no fix to take back"):
        rollback(tmp_path, first.path)
    assert rollback(tmp_path, second.path) == [second.path]
    assert picture(tmp_path) == before
