"""While many files have much to read, those with urgent lines do not wait for the others."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.logs.source.file_system_reader import QUICK_BYTES
from ldlm_monitor.logs.source.follower import Follower
from ldlm_monitor.logs.source.split import CHUNK_BYTES

HEALTHY = b"step 1 loss 0.5\n" * 8192  # two in each turn of `CHUNK_BYTES`


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[[int], Follower]]:
    made: list[Follower] = []

    def follower(files: int) -> Follower:
        made.append(Follower(urgent=lambda data: b"NaN" in data))
        for number in range(files):
            path = tmp_path / f"{number}.log"
            path.write_bytes(HEALTHY)
            made[-1].add(path)
        return made[-1]

    yield follower
    for each in made:
        each.close()


def turn(follower: Follower, path: Path | None = None) -> dict[str, bytes]:
    """What the next turn reads of each file, by its name."""
    found: dict[str, bytes] = {}
    for chunk in follower.read({path} if path else set(), 0.0, CHUNK_BYTES):
        name = Path(chunk.path).name
        found[name] = found.get(name, b"") + chunk.data
    return found


def append(path: Path, data: bytes) -> Path:
    with path.open("ab") as file:
        file.write(data)
    return path


def test_a_file_with_an_urgent_line_is_read_alone_and_whole_before_the_others(
    follow: Callable[[int], Follower], tmp_path: Path
) -> None:
    follower = follow(40)
    live = append(tmp_path / "live.log", b"step 1 loss NaN\nstep 2")
    turn(follower)
    follower.add(live)
    assert turn(follower) == {"live.log": b"step 1 loss NaN\n"}


def test_files_that_are_urgent_all_the_time_leave_every_second_turn_to_the_others(
    follow: Callable[[int], Follower], tmp_path: Path
) -> None:
    follower = follow(40)
    read = {*turn(follower)}
    for _ in range(60):
        read |= {*turn(follower, append(tmp_path / "0.log", b"NaN\n"))}
    assert len(read) == 40


def test_an_urgent_line_is_sought_once(tmp_path: Path) -> None:
    sought: list[bytes] = []

    def seek(data: bytes) -> bool:
        sought.append(data)
        return False

    follower = Follower(urgent=seek)
    for number in range(40):
        follower.add(append(tmp_path / f"{number}.log", HEALTHY))
    for _ in range(10):
        turn(follower)
    follower.close()
    assert len(b"".join(sought)) <= 40 * len(HEALTHY)


def test_new_content_of_an_urgent_file_is_sought_anew(
    follow: Callable[[int], Follower], tmp_path: Path
) -> None:
    follower = follow(40)
    live = append(tmp_path / "live.log", b"step 1 loss NaN\n")
    follower.add(live)
    assert turn(follower) == {"live.log": b"step 1 loss NaN\n"}
    live.write_bytes(b"")
    turn(follower, live)
    append(live, b"loss NaN\n")
    turns = turn(follower, live), turn(follower, live)
    assert {"live.log": b"loss NaN\n"} in turns


def test_of_few_bytes_none_is_read_before_others(tmp_path: Path) -> None:
    follower = Follower(urgent=lambda data: pytest.fail("it was sought"))
    for number in range(4):
        follower.add(append(tmp_path / f"{number}.log", HEALTHY[: QUICK_BYTES // 4]))
    assert len([*follower.read(None, 0.0)]) == 4
    follower.close()
