"""The tables come into today's form from any state, whoever comes first and whatever is killed."""

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from ledger import schema
from ledger.schema import HEAD, LedgerTooNew, engine_of, prepare
from ledger.store import Ledger, open_ledger
from ledger.tables import METADATA
from ledger.verify import verify
from tests.ledger.builders import books

REPOSITORY = Path(__file__).parents[2]


def test_the_steps_lead_to_the_tables(ledger: Ledger) -> None:
    with ledger.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_the_newest_step_is_the_head() -> None:
    folder = Path(schema.__file__).parent / "migrations"
    assert ScriptDirectory(str(folder)).get_heads() == [HEAD]


def test_a_filled_ledger_keeps_its_rows(ledger: Ledger, ledger_url: str) -> None:
    ledger.append([books("req_1"), books("req_2")])
    before = list(ledger.attempts(since=_long_ago()))
    again = open_ledger(ledger_url)
    assert list(again.attempts(since=_long_ago())) == before
    assert verify(again) == []
    again.close()


def test_of_two_that_come_at_once_one_makes_the_tables(empty_url: str) -> None:
    wrong: list[Exception] = []
    start = threading.Barrier(3)

    def come() -> None:
        try:
            start.wait(10)
            ledger = open_ledger(empty_url)
            ledger.append([books("req_1")])
            ledger.close()
        except Exception as error:  # every one is a finding
            wrong.append(error)

    threads = [threading.Thread(target=come) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert wrong == []
    ledger = open_ledger(empty_url)
    assert verify(ledger) == []
    ledger.close()


_KILLED = """
import os, signal, sys
from sqlalchemy import Engine, event
from ledger.store import open_ledger
made = 0
@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *rest):
    global made
    made += "CREATE TABLE" in statement
    if made == 5:
        os.kill(os.getpid(), signal.SIGKILL)
open_ledger(sys.argv[1])
"""


def test_one_that_is_killed_half_way_leaves_nothing_behind(empty_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, empty_url],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert done.returncode == -9
    engine = engine_of(empty_url)
    assert set(inspect(engine).get_table_names()) == set()
    prepare(engine)
    assert set(inspect(engine).get_table_names()) == {*METADATA.tables, "alembic_version"}
    engine.dispose()


def test_tables_of_a_newer_program_are_refused_untouched(ledger: Ledger, ledger_url: str) -> None:
    try:
        with ledger.writing() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(LedgerTooNew, match="at version 9999, and this program knows"):
            open_ledger(ledger_url)
    finally:
        with ledger.writing() as connection:
            connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{HEAD}'")


def test_sqlite_is_private_and_durable(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch(0o644)
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    ledger.append([books()])
    with ledger.reading() as connection:
        found = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
    assert found == ["wal", 2, 10_000]
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
    ledger.close()


def test_every_sum_of_money_and_tokens_has_64_bits() -> None:
    for table in METADATA.tables.values():
        for column in table.columns:
            assert str(column.type) in ("BIGINT", "TEXT", "BOOLEAN", "FLOAT"), column


def _long_ago() -> datetime:
    return datetime(2020, 1, 1, tzinfo=UTC)
