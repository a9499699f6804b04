"""One SQLite file; where it fails (disk full, damaged, read-only), memory replaces it."""

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Result codes (https://sqlite.org/rescode.html) of a file whose content is unusable."""
_BUSY_SECONDS = 5.0  # Python's default; longer delays alerts while another process has the lock

log = logging.getLogger(__name__)


class Database:
    """One connection, used by one thread at a time.

    A damaged file is renamed and replaced by a new one. From the first failed write on, the data
    are kept in memory. Both are logged in one line. A commit survives the end of the process;
    with `durable` it also survives a loss of power, at the cost of one disk sync per commit.
    """

    def __init__(self, path: Path, schema: str, *, durable: bool = True) -> None:
        self._path = path
        self._schema = schema
        self._synchronous = "FULL" if durable else "NORMAL"
        self._lock = threading.Lock()
        self._connection = self._open()

    def run(self, work: Work[T]) -> T:
        """Call `work` in one transaction and return its result; an exception rolls it back.

        If the file fails, `work` is called a second time, on the copy in memory.
        Raises sqlite3.ProgrammingError after `close`.
        """
        with self._lock:
            try:
                return _transact(self._connection, work)
            except sqlite3.DatabaseError as error:
                if not _of_the_file(error):
                    raise
                self._go_on_in_memory(error)
                return _transact(self._connection, work)

    def rows(self, query: str) -> list[Any]:
        """All rows of a query without parameters."""
        return self.run(lambda db: db.execute(query).fetchall())

    def close(self) -> None:
        """Close the file. Every commit is in it already."""
        with self._lock:
            self._connection.close()

    def _open(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # the owner alone
            try:
                return self._connect()
            except sqlite3.DatabaseError as error:
                # SQLITE_ERROR: the schema does not fit the tables, which another version made.
                if _primary(error) not in (*_DAMAGED, sqlite3.SQLITE_ERROR):
                    raise
                self._move_aside(error)
                return self._connect()
        except (OSError, sqlite3.Error) as error:
            self._log_memory(error)
            return _prepare(_connection(), self._schema)

    def _connect(self) -> sqlite3.Connection:
        # The owner alone: the file contains log lines. SQLite gives -wal and -shm the same mode.
        self._path.touch(mode=0o600)
        self._path.chmod(0o600)
        connection = _connection(str(self._path))
        try:
            if (damage := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                error = sqlite3.DatabaseError(damage)
                error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise error
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            return _prepare(connection, self._schema)
        except sqlite3.Error:
            connection.close()
            raise

    def _move_aside(self, error: sqlite3.Error) -> None:
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
        except sqlite3.Error:
            self._connection.close()
            self._connection = _connection()
        finally:
            failed.close()
        _prepare(self._connection, self._schema)
        self._log_memory(error)

    def _log_memory(self, error: OSError | sqlite3.Error) -> None:
        log.error(
            "%s: cannot be used (%s); alerts that are not sent yet are kept in memory only; free"
            " space on the disk or choose another --state-dir, and restart",
            self._path,
            error.strerror if isinstance(error, OSError) else error,
        )


def _of_the_file(error: sqlite3.Error) -> bool:
    """Whether the file failed (full, locked, read-only, damaged), rather than our statement."""
    return isinstance(error, sqlite3.OperationalError) or _primary(error) in _DAMAGED


def _primary(error: sqlite3.Error) -> int:
    """The primary result code: the low 8 bits of SQLite's extended code."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _connection(name: str = ":memory:") -> sqlite3.Connection:
    """A connection without implicit transactions: `_transact` begins them, under the lock."""
    return sqlite3.connect(
        name, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


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
