"""While many files have much to read, those with urgent lines do not wait for the others."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.chunk import Chunk
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


def names_of(chunks: Iterable[Chunk]) -> dict[str, bytes]:
    """What was read of each file, by its name."""
    found: dict[str, bytes] = {}
    for chunk in chunks:
        name = Path(chunk.path).name
        found[name] = found.get(name, b"") + chunk.data
    return found


def urgent(follower: Follower, *paths: Path) -> dict[str, bytes]:
    return names_of(follower.read_urgent(paths, 0.0, least=0))


def rest(follower: Follower) -> dict[str, bytes]:
    return names_of(follower.read((), 0.0, CHUNK_BYTES))


def append(path: Path, data: bytes) -> Path:
    with path.open("ab") as file:
        file.write(data)
    return path


def test_a_file_with_an_urgent_line_is_read_alone_and_whole_before_the_others(
    follow: Callable[[int], Follower], tmp_path: Path
) -> None:
    follower = follow(40)
    live = append(tmp_path / "live.log", b"step 1 loss NaN\nstep 2")
    rest(follower)
    follower.add(live)
    assert urgent(follower, live) == {"live.log": b"step 1 loss NaN\n"}


def test_what_is_not_urgent_is_left_to_the_next_read(
    follow: Callable[[int], Follower], tmp_path: Path
) -> None:
    follower = follow(2)
    assert not urgent(follower, *tmp_path.iterdir())
    assert rest(follower).keys() == {"0.log", "1.log"}
    assert urgent(follower, append(tmp_path / "0.log", b"step 2\n")) == {}
    assert not follower.has_backlog, "a turn that ends now need not hurry"
    assert urgent(follower, append(tmp_path / "1.log", b"NaN\n")) == {"1.log": b"NaN\n"}
    assert urgent(follower, append(tmp_path / "0.log", b"NaN\n")) == {"0.log": b"step 2\nNaN\n"}
    assert rest(follower) == {}


def test_an_urgent_line_is_sought_once(tmp_path: Path) -> None:
    sought: list[bytes] = []

    def seek(data: bytes) -> bool:
        sought.append(data)
        return False

    follower = Follower(urgent=seek)
    paths = [append(tmp_path / f"{number}.log", HEALTHY) for number in range(40)]
    for path in paths:
        follower.add(path)
    for _ in range(10):
        urgent(follower, *paths)
        rest(follower)
    follower.close()
    assert len(b"".join(sought)) <= 40 * len(HEALTHY)


def test_new_content_of_an_urgent_file_is_sought_anew(
    follow: Callable[[int], Follower], tmp_path: Path
) -> None:
    follower = follow(40)
    live = append(tmp_path / "live.log", b"step 1 loss NaN\n")
    follower.add(live)
    assert urgent(follower, live) == {"live.log": b"step 1 loss NaN\n"}
    live.write_bytes(b"")
    urgent(follower, live)
    append(live, b"loss NaN\n")
    turns = urgent(follower, live), urgent(follower, live)
    assert {"live.log": b"loss NaN\n"} in turns


def test_of_few_bytes_none_is_read_before_others(tmp_path: Path) -> None:
    follower = Follower(urgent=lambda data: pytest.fail("it was sought"))
    for number in range(4):
        follower.add(append(tmp_path / f"{number}.log", HEALTHY[: QUICK_BYTES // 4]))
    assert [*follower.read_urgent(None, 0.0)] == []
    assert len([*follower.read((), 0.0)]) == 4
    follower.close()
