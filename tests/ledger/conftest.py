"""A ledger on SQLite and on PostgreSQL, for the same tests. Set TEST_POSTGRES_URL to use a server of your own.

Making tables takes longer than most tests, so it is done once for each: SQLite's file is copied, and
PostgreSQL's rows are deleted between tests.
"""

import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from ledger.store import Ledger, open_ledger
from ledger.tables import METADATA
from tests.ledger.postgres import postgres_server


@pytest.fixture(scope="session")
def postgres_url() -> Generator[str]:
    """A PostgreSQL server; the URL is that of a database on it that nobody uses."""
    url = os.environ.get("TEST_POSTGRES_URL")
    if url:
        yield url
        return
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def shared_postgres_ledger(postgres_url: str) -> Generator[str]:
    """A database with an empty ledger in it, for one test at a time."""
    with a_database(postgres_url) as url:
        open_ledger(url).close()
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty ledger, to be copied."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    open_ledger(f"sqlite:///{path}").close()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty ledger."""
    if request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        shutil.copy(template, tmp_path / "ledger.db")
        return f"sqlite:///{tmp_path}/ledger.db"
    url: str = request.getfixturevalue("shared_postgres_ledger")
    with psycopg.connect(url) as connection:
        for table in METADATA.tables:
            connection.execute(f'DELETE FROM "{table}"'.encode())
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/new/ledger.db"
        return
    with a_database(request.getfixturevalue("postgres_url")) as url:
        yield url


@pytest.fixture
def ledger(ledger_url: str) -> Generator[Ledger]:
    """An empty ledger."""
    opened = open_ledger(ledger_url)
    yield opened
    opened.close()


@contextmanager
def a_database(server: str) -> Generator[str]:
    """A fresh database on that server."""
    name = f"faregate_test_{secrets.token_hex(6)}"
    _on_server(server, f"CREATE DATABASE {name}")
    before, _, options = server.partition("?")
    yield f"{before.rpartition('/')[0]}/{name}" + (f"?{options}" if options else "")
    _on_server(server, f"DROP DATABASE {name} WITH (FORCE)")


def _on_server(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
