"""A ledger on SQLite and on PostgreSQL, for the same tests. Set TEST_POSTGRES_URL to use a server of your own."""

import os
import secrets
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest

from ledger.store import Ledger, open_ledger
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
def _postgres_template(postgres_url: str) -> Generator[str]:
    """The name of a database that holds an empty ledger: copying it is faster than making one."""
    name = f"faregate_template_{secrets.token_hex(4)}"
    _on_server(postgres_url, f"CREATE DATABASE {name}")
    open_ledger(_with_database(postgres_url, name)).close()
    yield name
    _on_server(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_postgres_url(postgres_url: str) -> Generator[str]:
    """A database of this test's own, without tables."""
    with _database(postgres_url, "template1") as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The URL of an empty ledger."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/ledger.db"
        return
    server = request.getfixturevalue("postgres_url")
    with _database(server, request.getfixturevalue("_postgres_template")) as url:
        yield url


@pytest.fixture
def ledger(ledger_url: str) -> Generator[Ledger]:
    """An empty ledger."""
    opened = open_ledger(ledger_url)
    yield opened
    opened.close()


class _database:  # noqa: N801 - used as a function
    def __init__(self, server: str, template: str) -> None:
        self._server, self._template = server, template
        self._name = f"faregate_test_{secrets.token_hex(6)}"

    def __enter__(self) -> str:
        _on_server(self._server, f"CREATE DATABASE {self._name} TEMPLATE {self._template}")
        return _with_database(self._server, self._name)

    def __exit__(self, *_: object) -> None:
        _on_server(self._server, f"DROP DATABASE {self._name} WITH (FORCE)")


def _on_server(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def _with_database(url: str, name: str) -> str:
    before, _, options = url.partition("?")
    start = before.rpartition("/")[0]
    return f"{start}/{name}" + (f"?{options}" if options else "")
