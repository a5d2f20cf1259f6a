"""Small databases in one file of SQLite, which every process may write to at any time and may be killed at any time."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ..model.errors import WorkbenchError


class DatabaseError(WorkbenchError, RuntimeError):
    """The file cannot be read or written; the message says why."""


class Damaged(DatabaseError):
    """The file is not a database, or it is damaged."""


class Foreign(DatabaseError):
    """The tables have other columns than expected: the file belongs to another program."""


class OtherVersion(DatabaseError):
    """The file was written by another version of the workbench."""


@contextlib.contextmanager
def transaction(path: Path, tables: str, version: int, *, alone: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection whose changes are all made at the end, or none of them where the body raises.

    A file that is new gets `tables` (CREATE TABLE IF NOT EXISTS ...), and gives back to the disk what is deleted in it.
    `alone`: nobody else writes from the beginning on, which is needed where what is written depends on what was read.
    Raises DatabaseError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            if _version(connection) == 0:
                connection.executescript(
                    f"PRAGMA auto_vacuum = FULL; BEGIN IMMEDIATE; {tables} PRAGMA user_version = {version}; COMMIT;"
                )
            if _version(connection) != version:
                raise OtherVersion(f"{path} was written by another version of the workbench")
            connection.execute("BEGIN IMMEDIATE" if alone else "BEGIN")
            yield connection
            connection.execute("COMMIT")  # without it, to close is to roll back
        finally:
            connection.close()
    except (sqlite3.OperationalError, OSError) as error:
        other_columns = "no such column" in str(error) or "has no column" in str(error)
        raise (Foreign if other_columns else DatabaseError)(str(error)) from None
    except sqlite3.Error as error:
        raise Damaged(str(error)) from None


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def marks(count: int) -> str:
    """So many placeholders of a statement."""
    return ", ".join("?" * count)
