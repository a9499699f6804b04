"""One SQLite file; while it fails (disk full, damaged, read-only), memory replaces it."""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]  # statements that make one transaction

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Result codes (https://sqlite.org/rescode.html) for a file whose content is unusable."""
_OUTSIDE = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM),
)
"""Result codes after which the file may be sound: the disk, rights or another process failed."""
_BUSY_SECONDS = 5.0  # Python's default; longer delays alerts while another process has the lock
RETRY_SECONDS = 10.0
"""Seconds between two tries to leave memory for the file: a choice; what happens between is lost by
a `kill -9`, and a try costs a look at the disk's free bytes."""
SPARE_BYTES = 8 << 20
"""Free bytes, beside twice the data (the copy is in the WAL first), for a try: a choice. Less could
take a nearly full disk's last bytes from a checkpoint, and be full again at once."""
_TYPES = ("INTEGER", "REAL", "TEXT")  # checked at the start; other columns may hold any value

log = logging.getLogger(__name__)


class Database:
    """One connection, used by one thread at a time.

    A damaged file is renamed and replaced by a new one. From the first other failure of the file
    on, the data are kept in memory, and copied back by a thread once the file can be written; what
    a start could not read of it is left as it is. Every such event is logged. A commit survives
    the end of the process; with `durable` also a loss of power, at the cost of one disk sync per
    commit.
    """

    def __init__(self, path: Path, schema: str, *, durable: bool = True) -> None:
        self._path = path
        self._schema = schema
        self._synchronous = "FULL" if durable else "NORMAL"
        self._lock = threading.Lock()
        self._is_whole = True  # memory, if it replaces the file, holds all that the file does
        self._closed = threading.Event()
        self._returning: threading.Thread | None = None
        with self._lock:
            self._connection = self._open()

    def run(self, work: Work[T]) -> T:
        """Call `work` in one transaction and return its result; an exception rolls it back.

        If the file fails, `work` is called again, on the new file or the copy in memory.
        Raises sqlite3.ProgrammingError after `close`.
        """
        with self._lock:
            try:
                return _transact(self._connection, work)
            except sqlite3.DatabaseError as error:
                if not _of_the_file(error):
                    raise
                if _primary(error) in _DAMAGED:
                    self._connection.close()
                    self._connection = self._open(error)
                else:
                    self._go_on_in_memory(error)
                return _transact(self._connection, work)

    def load(self, work: Work[T]) -> T:
        """Return what `work` reads of a file that was just opened.

        If `work` raises, the file is set aside and `work` reads a new one: otherwise any damage
        that our own code does not expect would end each start.
        """
        try:
            return self.run(work)
        except Exception as error:  # noqa: BLE001 # a wrong type, a number beyond 64 bits, ...
            with self._lock:
                self._connection.close()
                self._connection = self._open(error)
                return _transact(self._connection, work)

    def rows(self, query: str) -> list[Any]:
        """All rows of a query without parameters."""
        return self.run(lambda db: db.execute(query).fetchall())

    def close(self) -> None:
        """Close the file. Every commit is in it already."""
        self._closed.set()
        with self._lock:
            returning = self._returning
            self._connection.close()
        if returning is not None:
            returning.join()

    def _open(self, damage: Exception | None = None) -> sqlite3.Connection:
        """Open the file; if it is damaged (`damage`: in which way), set it aside for a new one."""
        try:
            self._is_whole = self._is_empty()
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # the owner alone
            if damage is None:
                try:
                    connection = self._connect()
                    self._is_whole = True
                    return connection
                except Exception as error:  # or UnicodeDecodeError, of its message
                    if isinstance(error, OSError) or _primary(error) in _OUTSIDE:
                        raise
                    damage = error
            self._move_aside(damage)
            self._is_whole = True
            return self._connect()
        except (OSError, sqlite3.Error) as error:
            self._stay_in_memory(error)
            return _prepare(_connection(), self._schema)

    def _is_empty(self) -> bool:
        try:
            return self._path.stat().st_size == 0
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False

    def _connect(self) -> sqlite3.Connection:
        # A link is set aside like damage: another user may have planted it to reach its target.
        if self._path.is_symlink() or (self._path.exists() and not self._path.is_file()):
            raise damaged("not a file")
        self._path.touch(mode=0o600)  # it holds log lines; SQLite gives -wal and -shm its mode
        self._path.chmod(0o600)
        with self._path.open("rb") as file:
            # Another write version (https://sqlite.org/fileformat.html) makes it read-only, and
            # each copy of it, too: no disk error, although it seems to be one.
            if file.read(19)[18:].strip(b"\x01\x02"):
                raise damaged("its header names no write version that is known")
        connection = _connection(str(self._path))
        try:
            if (damage := connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise damaged(damage)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            _prepare(connection, self._schema)
            _check_columns(connection, self._schema)
            _check_types(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _move_aside(self, error: Exception) -> None:
        number = 1
        while (aside := self._path.with_name(f"{self._path.name}.damaged-{number}")).exists():
            number += 1
        self._path.rename(aside)
        for suffix in ("-wal", "-shm"):
            companion = self._path.with_name(self._path.name + suffix)
            if companion.exists():
                companion.rename(aside.with_name(aside.name + suffix))
        log.error(
            "%s: damaged, or of another version (%s); kept as %s, and replaced by a new file;"
            " alerts in it that were not sent yet will not be sent",
            *(self._path, error, aside.name),
        )

    def _go_on_in_memory(self, error: sqlite3.Error) -> None:
        failed, self._connection = self._connection, _connection()
        try:
            failed.backup(self._connection)
            _prepare(self._connection, self._schema)
        except sqlite3.Error:
            self._connection.close()
            self._connection = _prepare(_connection(), self._schema)
            self._is_whole = False
        finally:
            failed.close()
        self._stay_in_memory(error)

    def _stay_in_memory(self, error: OSError | sqlite3.Error) -> None:
        log.error(
            "%s: cannot be used (%s); alerts that are not sent yet are kept in memory only; %s",
            self._path,
            error.strerror if isinstance(error, OSError) else error,
            "free space on the disk, which is then used again, or restart with another --state-dir"
            if self._is_whole
            else "free space on the disk or choose another --state-dir, and restart",
        )
        if self._is_whole and self._returning is None:
            self._returning = threading.Thread(target=self._return, name="state", daemon=True)
            self._returning.start()

    def _return(self) -> None:
        """Copy memory into the file as soon as it can be written, in one transaction."""
        while not self._closed.wait(RETRY_SECONDS):
            with self._lock:
                if self._closed.is_set() or not self._is_whole:
                    break
                try:
                    self._copy_back()
                except (OSError, sqlite3.Error, ValueError):  # of a message that is no UTF-8
                    continue
                self._returning = None
                log.info("%s: can be used again, and holds what was kept in memory", self._path)
                break

    def _copy_back(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        pages, size = (
            self._connection.execute(f"PRAGMA {each}").fetchone()[0]
            for each in ("page_count", "page_size")
        )
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < 2 * pages * size + SPARE_BYTES:
            raise OSError("too little room")
        connection = self._connect()
        try:
            self._connection.backup(connection)
        except BaseException:
            connection.close()
            raise
        self._connection.close()
        self._connection = connection


def _of_the_file(error: sqlite3.Error) -> bool:
    """Whether the file failed (full, locked, read-only, damaged), rather than our statement."""
    return isinstance(error, sqlite3.OperationalError) or _primary(error) in _DAMAGED


def damaged(what: str) -> sqlite3.DatabaseError:
    """The error to raise for a damaged file: `Database.run` then replaces it."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _check_columns(connection: sqlite3.Connection, schema: str) -> None:
    """Raises `sqlite3.DatabaseError` for a table that lacks a column as `schema` declares it."""
    wanted = _prepare(_connection(), schema)
    with closing(wanted):
        for table in _tables(wanted):
            if not set(_columns(wanted, table)) <= set(_columns(connection, table)):
                raise damaged(f"{table} has other columns")


def _tables(connection: sqlite3.Connection) -> list[str]:
    names = "SELECT name FROM sqlite_master WHERE type = 'table'"
    return [name for (name,) in connection.execute(names)]


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    """Name, type, whether it is required, default, and place in the key, of each column."""
    return [row[1:] for row in connection.execute(f'PRAGMA table_info("{table}")')]


def _check_types(connection: sqlite3.Connection) -> None:
    """Raises `sqlite3.DatabaseError` for a value that is not of its column's type.

    SQLite stores any type in any column; STRICT tables need 3.37, which not every system has.
    """
    for table in _tables(connection):
        wrong = " OR ".join(
            f"typeof([{name}]) NOT IN ('{kind.lower()}', '{kind.lower() if required else 'null'}')"
            for name, kind, required, *_ in _columns(connection, table)
            if kind in _TYPES
        )
        if wrong and connection.execute(f'SELECT 1 FROM "{table}" WHERE {wrong}').fetchone():
            raise damaged(f"a value of {table} is not of its type")


def _primary(error: Exception) -> int:
    """The primary result code: the low 8 bits of SQLite's code; 0 if `error` has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _connection(name: str = ":memory:") -> sqlite3.Connection:
    """A connection without implicit transactions: `_transact` begins them, under the lock."""
    connection = sqlite3.connect(
        name, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    # A byte that is no UTF-8 must not end a query: the code that uses the text rejects it.
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


def _prepare(connection: sqlite3.Connection, schema: str) -> sqlite3.Connection:
    connection.executescript(f"BEGIN IMMEDIATE;\n{schema}\nCOMMIT;")
    return connection


def _transact(connection: sqlite3.Connection, work: Work[T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result
