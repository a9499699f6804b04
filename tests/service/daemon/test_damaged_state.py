"""No damage in the state folder keeps a daemon from starting, judging and keeping its state."""

import random
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import settings

from ldlm_monitor.service.notify.message import Receipt
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.policy import Policy
from ldlm_monitor.service.notify.silences import Silences
from ldlm_monitor.service.state.database import Database
from tests.service.daemon.test_restart import NAN, Watched
from tests.service.daemon.watching import NOW, SLACK, bars

FILES = ("ledger.sqlite", "outbox.sqlite", "silences.sqlite")
VARIANTS = -(-settings().max_examples // 3)
"""Of each kind of damage and file."""
SILENCE = (
    b'{"matchers": [{"name": "alertname", "value": "LossSpike"}], "createdBy": "me",'
    b' "endsAt": "2036-01-30T06:00:00Z", "comment": "known"}'
)


@pytest.fixture(scope="module")
def genuine(tmp_path_factory) -> Path:
    """The state that a pump has left, with an alert, a silence and a message that waits."""
    watched = Watched(tmp_path_factory.mktemp("genuine"))
    watched.write(bars(0, 60), 60)
    watched.begin(60)
    watched.write(NAN + bars(60, 80), 80)
    watched.look(80)
    watched.pump.close()
    watched.kill()
    silences = Silences(watched.folder / "state" / "silences.sqlite")
    silences.take_silence(SILENCE, 0.0)
    silences.close()
    return watched.folder


@pytest.fixture
def killed(genuine: Path, tmp_path: Path) -> Path:
    """The files of silences and messages as a killed daemon leaves them: partly in a WAL."""
    state, left = tmp_path / "state", tmp_path / "left"
    shutil.copytree(genuine / "state", state)
    silences = Silences(state / "silences.sqlite")
    outbox = Outbox(state / "outbox.sqlite", {SLACK: Policy()}, silences)
    silences.take_silence(SILENCE, 0.0)
    outbox.register("webhook")
    left.mkdir()
    for name in FILES[1:]:
        for part in (name, f"{name}-wal"):
            (left / part).write_bytes((state / part).read_bytes())
    outbox.close()
    silences.close()
    return left


@pytest.fixture
def watched(genuine: Path, tmp_path: Path) -> Iterator[Watched]:
    folder = tmp_path / "run"
    shutil.copytree(genuine, folder)
    watched = Watched(folder)
    yield watched
    watched.kill()


def starts(watched: Watched) -> None:
    """The daemon's parts open their files, judge what is new, and keep it."""
    silences = Silences(watched.folder / "state" / "silences.sqlite")
    silences.silenced  # noqa: B018
    watched.begin(90)
    watched.write(bars(90, 92), 91)
    watched.look(101)
    assert watched.pump.monitor.runs.get("train_20260129_101500") is not None
    watched.reported()
    watched.pump.close()
    watched.kill()
    silences.close()


def sends(state: Path) -> bool:
    """Whether the message that waits is sent; silences and messages are taken in any case."""
    silences = Silences(state / "silences.sqlite")
    silences.listing(NOW)
    silences.take_silence(SILENCE, 0.0)
    outbox = Outbox(state / "outbox.sqlite", {SLACK: Policy()}, silences)
    outbox.register(SLACK)
    outbox.firing_keys()
    outbox.counts()
    sent = 0
    while (pending := outbox.due(SLACK, NOW + 1e6)) is not None:
        assert sent < 10, "the same message again and again"
        outbox.accepted(pending, NOW + 1e6, Receipt())
        sent += 1
    outbox.close()
    silences.close()
    return sent > 0


def flipped(rng: random.Random, raw: bytes) -> bytes:
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 3, 30))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def other_values(rng: random.Random, path: Path) -> None:
    """Another value in one cell of the file: of another type, too large, or cut."""
    with closing(sqlite3.connect(path)) as db, db:
        names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = [name for (name,) in db.execute(names)]
        filled = [name for name in tables if db.execute(f"SELECT 1 FROM {name}").fetchone()]
        table = rng.choice(filled)
        column = rng.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
        old = db.execute(f"SELECT {column} FROM {table}").fetchone()[0]
        values = ["x", b"\xff\xfe", -1, 0, 2**63 - 1, 1e300, -1e300, "{}", "[]", "9" * 5000]
        if isinstance(old, str):
            spot = rng.randrange(len(old) + 1)
            values += [
                old[:spot],
                f"{old[:spot]}\x00{old[spot + 1 :]}",
                f"{old[:spot]}9{old[spot:]}",
            ]
            values.append((old[:spot] + "é" + old[spot:]).encode("latin-1", "replace"))
        with suppress(sqlite3.IntegrityError):  # a key is an integer, whatever happens
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (rng.choice(values),))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["flipped", "value"])
@pytest.mark.slice(3)
def test_any_damage_in_a_state_file_is_survived(
    watched: Watched, genuine: Path, tmp_path: Path, name: str, kind: str
) -> None:
    rng = random.Random(f"{name} {kind}")
    for number in range(VARIANTS):
        shutil.rmtree(watched.folder)
        shutil.copytree(genuine, watched.folder)
        path = watched.folder / "state" / name
        if kind == "value":
            other_values(rng, path)
        else:
            path.write_bytes(flipped(rng, path.read_bytes()))
        try:
            starts(watched)
        except Exception as error:
            raise AssertionError(f"variant {number}") from error


BYTES = ("outbox.sqlite", "outbox.sqlite-wal", "silences.sqlite", "silences.sqlite-wal")


def each_byte(killed: Path, tmp_path: Path, name: str, places: Iterable[int]) -> tuple[int, int]:
    """How many bytes of a file were damaged in turn, and after how many the message was sent."""
    state = tmp_path / "damaged"
    parts = {path.name: path.read_bytes() for path in killed.iterdir()}
    tried = sent = 0
    for place in places:
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir()
        for part, content in parts.items():
            (state / part).write_bytes(content)
        with (state / name).open("r+b") as file:
            file.seek(place)
            file.write(bytes([parts[name][place] ^ (1 + place * 37 % 255)]))
        try:
            sent += sends(state)
        except Exception as error:
            raise AssertionError(f"byte {place} of {name}") from error
        tried += 1
    return tried, sent


@pytest.mark.parametrize("name", BYTES)
def test_any_byte_of_messages_and_silences_may_be_another(
    killed: Path, tmp_path: Path, name: str
) -> None:
    places = random.Random(name).choices(range((killed / name).stat().st_size), k=VARIANTS)
    each_byte(killed, tmp_path, name, places)


def test_an_index_that_lacks_a_row_is_damage(killed: Path) -> None:
    """A group would wait for its message, which is then not found, without end."""
    path = killed / "outbox.sqlite"
    path.write_bytes(path.read_bytes().replace(b"slackpending", b"\xadlackpending"))
    Outbox(path).close()
    assert path.with_name("outbox.sqlite.damaged-1").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", BYTES)
def test_every_byte_of_messages_and_silences_may_be_another(
    killed: Path, tmp_path: Path, name: str
) -> None:
    tried, sent = each_byte(killed, tmp_path, name, range((killed / name).stat().st_size))
    print(f"{name}: {tried} bytes, the message was sent after {sent}")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"", b"\x00" * 9000, bytes(range(256)) * 40, None])
def test_what_is_no_database_is_set_aside_with_one_line(
    watched: Watched, caplog, name: str, content: bytes | None
) -> None:
    path = watched.folder / "state" / name
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    starts(watched)
    assert path.is_file()
    lines = [each.message for each in caplog.records if "kept as" in each.message]
    aside = path.with_name(f"{name}.damaged-1")
    assert (len(lines), aside.exists()) == ((0, False) if content == b"" else (1, True))


def test_a_file_that_turns_out_damaged_while_it_is_used_is_begun_anew(tmp_path, caplog) -> None:
    database = Database(tmp_path / "a.sqlite", "CREATE TABLE IF NOT EXISTS t (v INTEGER);")

    def finds_damage(db: sqlite3.Connection) -> int:
        if db.execute("SELECT count(*) FROM t").fetchone()[0]:
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        return 7

    database.run(lambda db: db.execute("INSERT INTO t VALUES (1)"))
    assert database.run(finds_damage) == 7
    database.run(lambda db: db.execute("INSERT INTO t VALUES (2)"))
    database.close()
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as db:
        assert db.execute("SELECT v FROM t").fetchall() == [(2,)]
    assert len(caplog.records) == 1
    assert (tmp_path / "a.sqlite.damaged-1").exists()
