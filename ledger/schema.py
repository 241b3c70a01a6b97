"""Opens the database and brings its tables to today's form.

All steps run in one transaction on one connection. Of two processes that come at once one runs them and the
other waits (an advisory lock on PostgreSQL, the write lock on SQLite); a process that dies half way leaves
nothing of them behind. A database that a newer program has changed is refused before anything is touched.
"""

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.engine import URL, make_url

HEAD = "0002"
"""The newest step."""

_STEPS = Path(__file__).parent / "migrations"
_ADVISORY_LOCK = 0x6661_7265  # any number that nobody else locks in this database
_SQLITE_WAIT_MS = 10_000


class LedgerTooNew(Exception):
    """The tables are those of a newer program."""


class NotALedgerUrl(ValueError):
    """The URL names no database that can hold a ledger."""


def engine_of(url: str) -> Engine:
    """The way to the database; nothing is opened yet.

    Raises NotALedgerUrl.
    """
    try:
        parsed = make_url(url)
    except Exception:  # whatever it was: the text must not get into a message, it may hold a password
        raise NotALedgerUrl(
            "the ledger's URL cannot be read; it is sqlite:///PATH or postgresql://..."
        ) from None
    if parsed.get_backend_name() == "sqlite" and parsed.database and parsed.database != ":memory:":
        return _sqlite_engine(parsed)
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return _postgresql_engine(parsed.set(drivername="postgresql+psycopg"))
    raise NotALedgerUrl(f"a ledger is kept in sqlite:///PATH or postgresql://..., not in {parsed.drivername}")


def _sqlite_engine(url: URL) -> Engine:
    path = Path(url.database or "")
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        pool_size=4,
        max_overflow=4,
        pool_timeout=1,
        connect_args={"check_same_thread": False, "timeout": _SQLITE_WAIT_MS / 1000},
    )

    @event.listens_for(engine, "do_connect")
    def make_private(*_: Any) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives its side files the mode of the database.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
        except OSError as wrong:
            raise sqlite3.OperationalError(wrong.strerror) from None

    @event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun by us, below
        connection.execute(f"PRAGMA busy_timeout = {_SQLITE_WAIT_MS}")
        _keep_a_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes then could not wait for another writer: it would fail.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _keep_a_wal(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log. SQLite does not wait for its turn here as it does elsewhere, so we do."""
    until = time.monotonic() + _SQLITE_WAIT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as wrong:
            if (
                wrong.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                or time.monotonic() > until
            ):
                raise
            time.sleep(0.01)
        else:
            return


def _postgresql_engine(url: URL) -> Engine:
    return create_engine(
        url,
        pool_size=2,
        max_overflow=3,
        pool_timeout=1,
        pool_pre_ping=False,
        connect_args={
            "connect_timeout": 5,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "application_name": "faregate",
        },
    )


def prepare(engine: Engine) -> None:
    """Bring the tables to today's form; cheap where they have it.

    Raises LedgerTooNew; and SQLAlchemy's errors when the database is away.
    """
    with engine.connect() as connection:
        if _version(connection) == HEAD:
            return
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        version = _version(connection)  # another process may have been faster
        if version != HEAD:
            _step_up(connection, version)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if version is None else str(version)


def _step_up(connection: Connection, version: str | None) -> None:
    # Alembic costs a tenth of a second to import; most starts do not need it.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_STEPS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    known = {step.revision for step in ScriptDirectory.from_config(config).walk_revisions()}
    if version is not None and version not in known:
        raise LedgerTooNew(
            f"the ledger is at version {version}, and this program knows {HEAD}: start the newer program"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
