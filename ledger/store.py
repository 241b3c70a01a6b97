"""The ledger: open it, append to it, look things up. Together with `queries` the only place with SQL.

What is appended is harmless to repeat. Rows go in by their ids, once; what they add to the totals and the
spool's mark go in with them, in one transaction. So a batch whose commit got lost on the way back, or a spool
that is replayed three times by two processes, leaves the same ledger.
"""

import json
import secrets
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Table, and_, delete, func, insert, select, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from ledger.rows import (
    ATTEMPT_COLUMNS,
    REQUEST_COLUMNS,
    SUM_COLUMNS,
    Books,
    NotAnEntry,
    attempt_row,
    day_totals,
    hour_totals,
    request_row,
    total_rows,
)
from ledger.schema import LedgerTooNew, NotALedgerUrl, engine_of, prepare
from ledger.sums import join_parts, joined, sum_parts
from ledger.tables import (
    ATTEMPT,
    CONFIG_VERSION,
    COUNTS,
    DAY_TOTAL,
    HOUR_TOTAL,
    META,
    MONEY_SUMS,
    MS_PER_DAY,
    MS_PER_HOUR,
    PRICE,
    REQUEST,
    SPOOL_MARK,
    TOTAL_KEYS,
    VIRTUAL_KEY,
)
from pricing.money import PICO_PER_USD, PicoUsd

__all__ = [
    "Appended",
    "Ledger",
    "LedgerAway",
    "LedgerTooNew",
    "Mark",
    "NotALedgerUrl",
    "StoredKey",
    "StoredPrice",
    "open_ledger",
]

_KEYS_VERSION = "keys_version"  # the fact that changes with every key
_TRIES = 5  # for a batch that another writer got in the way of
_PER_LOOK_UP = 500  # ids in one statement


class LedgerAway(Exception):
    """The database cannot be reached or cannot write now; trying again helps. Names no URL and no values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a spool directory has been taken: everything before this place is in the tables."""

    directory: str
    segment: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What became of a batch."""

    written: int  # requests that were not there before
    refused: tuple[Books, ...] = ()  # that no table can keep; everything else was written


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """One virtual key; `key_hash` is the keyed hash, the key itself is nowhere."""

    key_id: str
    key_hash: str
    team: str
    application: str | None = None
    tiers: frozenset[str] | None = None  # None: any
    regions: frozenset[str] | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    created_at_ms: int
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPrice:
    """One dated price as it is kept; `sheet` is its JSON, decimals as texts."""

    id: str
    provider: str | None = None
    deployment: str | None = None
    model: str | None = None
    from_date: str
    sheet: str
    source: str | None = None
    checked_on: str | None = None


def open_ledger(url: str, *, wait: bool = True) -> "Ledger":
    """The ledger at `sqlite:///PATH` or `postgresql://...`, its tables in today's form.

    With `wait` off a database that is away is no error here: the ledger prepares itself once it is back.
    Raises NotALedgerUrl, LedgerTooNew, LedgerAway.
    """
    ledger = Ledger(engine_of(url))
    try:
        ledger.prepare()
    except LedgerAway:
        if wait:
            ledger.close()
            raise
    except LedgerTooNew:
        ledger.close()
        raise
    return ledger


class Ledger:
    """All that is written down. Any thread may use it; every call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_prepared = False
        self._sql = _Statements(engine.dialect.paramstyle)

    def __repr__(self) -> str:
        return f"Ledger({self._engine.dialect.name})"

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    @property
    def is_prepared(self) -> bool:
        """Whether the tables are known to be in today's form."""
        return self._is_prepared

    def prepare(self) -> None:
        """Bring the tables to today's form, unless they are known to have it."""
        if not self._is_prepared:
            with _away_is_said():
                prepare(self._engine)
            self._is_prepared = True

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """One moment of the ledger: all that is asked within sees the same rows.

        Raises LedgerAway.
        """
        self.prepare()
        with _away_is_said():
            options: dict[str, Any] = {}
            if self._engine.dialect.name == "postgresql":
                options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            with self._engine.connect().execution_options(**options) as connection, connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """One transaction that writes.

        Raises LedgerAway; what it did is then undone, unless the connection broke while it was committed.
        """
        self.prepare()
        with (
            _away_is_said(),
            self._engine.connect().execution_options(writes=True) as connection,
            connection.begin(),
        ):
            yield connection

    # Entries

    def append(self, all_books: Sequence[Books], mark: Mark | None = None) -> Appended:
        """Write requests, their attempts, what they add to the totals, and the mark; all or nothing.

        Requests that are there already are passed over. One that no table can keep is refused alone.
        Raises LedgerAway: the same call may be made again, whatever became of this one.
        """
        fresh = list({books.closed.id: books for books in reversed(all_books)}.values())
        fresh.reverse()
        known: set[str] = set()
        for attempt in range(1, _TRIES + 1):
            try:
                with self.writing() as connection:
                    if attempt > 1:
                        known = _known_ids(connection, [books.closed.id for books in fresh])
                    rest = [books for books in fresh if books.closed.id not in known] if known else fresh
                    self._insert(connection, rest)
                    if mark is not None:
                        self._move_mark(connection, mark)
                return Appended(written=len(rest))
            except _SomeAreKnown:
                continue
            except _NOT_ROWS as wrong:
                return self._append_one_by_one(fresh, mark, wrong)
        raise LedgerAway("other writers took the same requests again and again")

    def _insert(self, connection: Connection, fresh: Sequence[Books]) -> None:
        if not fresh:
            return
        sql = self._sql
        hours = hour_totals(fresh)
        inserted = connection.exec_driver_sql(sql.request, [request_row(books) for books in fresh])
        if inserted.rowcount != len(fresh):
            raise _SomeAreKnown
        attempts = [
            attempt_row(books.closed.id, attempt) for books in fresh for attempt in books.closed.attempts
        ]
        if attempts:
            connection.exec_driver_sql(sql.attempt, attempts)
        connection.exec_driver_sql(sql.hour_total, total_rows(hours))
        connection.exec_driver_sql(sql.day_total, total_rows(day_totals(hours)))

    def _append_one_by_one(self, fresh: Sequence[Books], mark: Mark | None, wrong: Exception) -> Appended:
        if len(fresh) == 1:
            self.append((), mark)
            return Appended(written=0, refused=tuple(fresh))
        if not fresh:
            raise LedgerAway(f"the mark could not be moved: {type(wrong).__name__}")
        half = len(fresh) // 2
        first = self.append(fresh[:half])
        second = self.append(fresh[half:], mark)
        return Appended(written=first.written + second.written, refused=first.refused + second.refused)

    def _move_mark(self, connection: Connection, mark: Mark) -> None:
        connection.exec_driver_sql(self._sql.mark, (mark.directory, mark.segment, mark.position))

    def mark_of(self, directory: str) -> Mark | None:
        """How far a spool directory has been taken; None: not at all."""
        with self.reading() as connection:
            row = connection.execute(select(SPOOL_MARK).where(SPOOL_MARK.c.directory == directory)).first()
        return None if row is None else Mark(directory=row[0], segment=row[1], position=row[2])

    def forget_mark(self, directory: str) -> None:
        """Drop the mark of a spool directory that is no more."""
        with self.writing() as connection:
            connection.execute(delete(SPOOL_MARK).where(SPOOL_MARK.c.directory == directory))

    # Keys

    def add_key(self, key: StoredKey) -> None:
        """Keep a new key. Raises ValueError when its id or hash is there already."""
        row = {
            "key_id": key.key_id,
            "key_hash": key.key_hash,
            "team": key.team,
            "application": key.application,
            "tiers": _list_text(key.tiers),
            "regions": _list_text(key.regions),
            "requests_per_minute": key.requests_per_minute,
            "tokens_per_minute": key.tokens_per_minute,
            "created_at_ms": key.created_at_ms,
            "expires_at_ms": key.expires_at_ms,
            "revoked_at_ms": key.revoked_at_ms,
        }
        try:
            with self.writing() as connection:
                connection.execute(insert(VIRTUAL_KEY).values(row))
                self._keys_changed(connection)
        except IntegrityError:
            raise ValueError(f"there is a key {key.key_id} already") from None

    def list_keys(self) -> list[StoredKey]:
        """All keys, the revoked too, oldest first."""
        with self.reading() as connection:
            rows = connection.execute(
                select(VIRTUAL_KEY).order_by(VIRTUAL_KEY.c.created_at_ms, VIRTUAL_KEY.c.key_id)
            ).mappings()
            return [_key_of(dict(row)) for row in rows]

    def key_rows(self) -> list[StoredKey]:
        """The keys that are not revoked: what a key ring is filled with."""
        return [key for key in self.list_keys() if key.revoked_at_ms is None]

    def revoke_key(self, key_id: str, at_ms: int) -> bool:
        """Take a key back from this moment on; False: there is none of that id that still holds."""
        with self.writing() as connection:
            changed = connection.execute(
                update(VIRTUAL_KEY)
                .where(VIRTUAL_KEY.c.key_id == key_id, VIRTUAL_KEY.c.revoked_at_ms.is_(None))
                .values(revoked_at_ms=at_ms)
            )
            if changed.rowcount == 1:
                self._keys_changed(connection)
            return changed.rowcount == 1

    def keys_version(self) -> str | None:
        """Another text whenever a key was made or revoked; None: there never was one."""
        with self.reading() as connection:
            return connection.execute(select(META.c.value).where(META.c.name == _KEYS_VERSION)).scalar()

    def _keys_changed(self, connection: Connection) -> None:
        connection.exec_driver_sql(self._sql.meta, (_KEYS_VERSION, secrets.token_hex(8)))

    # Prices, versions, facts

    def save_price_rows(self, prices: Iterable[StoredPrice], *, now_ms: int | None = None) -> tuple[str, ...]:
        """Keep the prices that are not kept yet.

        Gives the ids that are kept with other numbers: those were edited in place, and what was billed by
        them cannot be recomputed. The kept ones stay.
        """
        recorded = _now_ms() if now_ms is None else now_ms
        wanted = {price.id: price for price in prices}
        changed: list[str] = []
        with self.writing() as connection:
            kept: dict[str, str] = {}
            for ids in _slices(list(wanted)):
                rows = connection.execute(select(PRICE.c.id, PRICE.c.sheet).where(PRICE.c.id.in_(ids)))
                kept.update({row[0]: row[1] for row in rows})
            new = [
                (
                    price.id,
                    price.provider,
                    price.deployment,
                    price.model,
                    price.from_date,
                    price.sheet,
                    price.source,
                    price.checked_on,
                    recorded,
                )
                for price in wanted.values()
                if price.id not in kept
            ]
            if new:
                connection.exec_driver_sql(self._sql.price, new)
            changed = [
                price.id for price in wanted.values() if kept.get(price.id, price.sheet) != price.sheet
            ]
        return tuple(changed)

    def save_config_version(
        self, digest: str, *, path: str, text: str, taken_at_ms: int | None = None
    ) -> None:
        """Keep a version of the file, once."""
        taken = _now_ms() if taken_at_ms is None else taken_at_ms
        with self.writing() as connection:
            connection.exec_driver_sql(self._sql.config_version, (digest, path, text, taken))

    def facts(self) -> Mapping[str, str]:
        """Facts about the ledger as a whole, such as `made_up`."""
        with self.reading() as connection:
            rows = connection.execute(select(META).where(META.c.name != _KEYS_VERSION))
            return {row[0]: row[1] for row in rows}

    def set_fact(self, name: str, value: str) -> None:
        """Write a fact down, or its new value."""
        with self.writing() as connection:
            connection.exec_driver_sql(self._sql.meta, (name, value))

    # What was spent

    def spent_in_window(
        self,
        *,
        since: datetime,
        team: str | None = None,
        application: str | None = None,
        key_id: str | None = None,
    ) -> PicoUsd:
        """What requests admitted since a moment have cost, exactly; None: whatever it is.

        Requests that are still open are not in it, nor attempts without a price. From the totals, but for
        what a key spent and for a part of an hour.
        """
        since_ms = int(since.timestamp() * 1000)
        with self.reading() as connection:
            if key_id is not None:
                return _spent_by_rows(connection, since_ms, None, team, application, key_id)
            if since_ms % MS_PER_DAY == 0:
                return _spent_by_totals(connection, DAY_TOTAL, since_ms // MS_PER_DAY, team, application)
            hour = -(-since_ms // MS_PER_HOUR)
            spent = _spent_by_totals(connection, HOUR_TOTAL, hour, team, application)
            if since_ms % MS_PER_HOUR:
                spent = PicoUsd(
                    spent + _spent_by_rows(connection, since_ms, hour * MS_PER_HOUR, team, application, None)
                )
            return spent

    def attempts(
        self, *, since: datetime, until: datetime | None = None, limit: int | None = None
    ) -> Generator[dict[str, Any]]:
        """Attempts that began since a moment, oldest first: their columns, and who asked for what.

        Lists and maps are values here, not texts.
        """
        since_ms = int(since.timestamp() * 1000)
        asked = select(
            ATTEMPT,
            *(REQUEST.c[name] for name in ("team", "application", "key_id", "tier", "rule", "config_digest")),
            REQUEST.c.state.label("request_state"),
            REQUEST.c.status.label("request_status"),
        ).join_from(ATTEMPT, REQUEST, ATTEMPT.c.request_id == REQUEST.c.id)
        asked = asked.where(ATTEMPT.c.started_at_ms >= since_ms)
        if until is not None:
            asked = asked.where(ATTEMPT.c.started_at_ms < int(until.timestamp() * 1000))
        asked = asked.order_by(ATTEMPT.c.started_at_ms, ATTEMPT.c.request_id, ATTEMPT.c.n)
        if limit is not None:
            asked = asked.limit(limit)
        with (
            self.reading() as connection,
            connection.execution_options(yield_per=1000).execute(asked) as rows,
        ):
            for row in rows.mappings():
                values = dict(row)
                for name in ("tools", "extra", "flags"):
                    values[name] = json.loads(values[name])
                yield values


class _SomeAreKnown(Exception):
    """Some rows of a batch were there already, and it is not known which."""


_NOT_ROWS = (IntegrityError, DataError, OverflowError, NotAnEntry)
"""What a database says about rows that it will never take."""


_REASONS = (
    ("password authentication failed", "it does not take this user with this password"),
    ("no pg_hba.conf entry", "it lets nobody in from here by this user"),
    ("does not exist", "it has no such database, user or table"),
    ("connection refused", "nobody listens at its address"),
    ("resolve host", "the name of its machine is not known"),
    ("translate host name", "the name of its machine is not known"),
    ("timeout", "it did not answer in time"),
    ("timed out", "it did not answer in time"),
    ("too many", "it has no connection left"),
    ("is starting up", "it is starting"),
    ("shutting down", "it is shutting down"),
    ("closed the connection", "it closed the connection"),
    ("database is locked", "another process holds it"),
    ("unable to open database file", "its file cannot be opened"),
    ("not a directory", "its file cannot be opened"),
    ("file exists", "its file cannot be opened"),
    ("permission denied", "its file cannot be opened"),
    ("disk is full", "its disk is full"),
    ("readonly", "its file may not be written"),
    ("not a database", "its file is no ledger"),
)


def _reason_of(wrong: DBAPIError) -> str:
    """What the driver said, in words of our own: its may hold values, a host or a user."""
    said = str(wrong.orig).lower()
    for words, reason in _REASONS:
        if words in said:
            return f"the database cannot be used: {reason}"
    return f"the database cannot be used: {type(wrong.orig).__name__}"


@contextmanager
def _away_is_said() -> Generator[None]:
    try:
        yield
    except (IntegrityError, DataError):
        raise
    except DBAPIError as wrong:
        raise LedgerAway(_reason_of(wrong)) from None
    except SQLAlchemyError as wrong:
        raise LedgerAway(f"the database cannot be used: {type(wrong).__name__}") from None


class _Statements:
    """The statements that are run for every batch, as text, for a driver's way of naming parameters."""

    def __init__(self, paramstyle: str) -> None:
        self._hole = "?" if paramstyle == "qmark" else "%s"
        self._modulo = "%" if paramstyle == "qmark" else "%%"
        nothing = "ON CONFLICT DO NOTHING"
        self.request = self._insert(REQUEST, REQUEST_COLUMNS, nothing)
        self.attempt = self._insert(ATTEMPT, ATTEMPT_COLUMNS, "")
        self.hour_total = self._total(HOUR_TOTAL, "hour")
        self.day_total = self._total(DAY_TOTAL, "day")
        self.mark = self._insert(
            SPOOL_MARK,
            ("directory", "segment", "position"),
            # It never goes back: of two that replay one directory the slower must not undo the faster.
            "ON CONFLICT (directory) DO UPDATE SET segment = excluded.segment, position = excluded.position"
            " WHERE (spool_mark.segment, spool_mark.position) < (excluded.segment, excluded.position)",
        )
        self.price = self._insert(PRICE, tuple(column.name for column in PRICE.columns), nothing)
        self.config_version = self._insert(CONFIG_VERSION, ("digest", "path", "text", "taken_at_ms"), nothing)
        self.meta = self._insert(
            META, ("name", "value"), "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )

    def _insert(self, table: Table, columns: Sequence[str], conflict: str) -> str:
        names = ", ".join(f'"{name}"' for name in columns)
        holes = ", ".join([self._hole] * len(columns))
        return f'INSERT INTO "{table.name}" ({names}) VALUES ({holes}) {conflict}'  # noqa: S608 - our own names

    def _total(self, table: Table, moment: str) -> str:
        name = table.name
        sets = [f"{column} = {name}.{column} + excluded.{column}" for column in COUNTS]
        for money in MONEY_SUMS:
            whole, rest = f"{money}_whole_usd", f"{money}_rest_pico_usd"
            carried = f"({name}.{rest} + excluded.{rest})"
            sets.append(f"{whole} = {name}.{whole} + excluded.{whole} + {carried} / {PICO_PER_USD}")
            sets.append(f"{rest} = {carried} {self._modulo} {PICO_PER_USD}")
        keys = (moment, *TOTAL_KEYS)
        conflict = f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(sets)}"
        return self._insert(table, (*keys, *SUM_COLUMNS), conflict)


def _known_ids(connection: Connection, ids: Sequence[str]) -> set[str]:
    known: set[str] = set()
    for some in _slices(ids):
        known.update(connection.execute(select(REQUEST.c.id).where(REQUEST.c.id.in_(some))).scalars())
    return known


def _slices(ids: Sequence[str]) -> Generator[Sequence[str]]:
    for start in range(0, len(ids), _PER_LOOK_UP):
        yield ids[start : start + _PER_LOOK_UP]


def _spent_by_totals(
    connection: Connection, table: Table, from_: int, team: str | None, application: str | None
) -> PicoUsd:
    asked = select(func.sum(table.c.cost_whole_usd), func.sum(table.c.cost_rest_pico_usd))
    asked = asked.where((table.c.day if table is DAY_TOTAL else table.c.hour) >= from_)
    if team is not None:
        asked = asked.where(table.c.team == team)
    if application is not None:
        asked = asked.where(table.c.application == application)
    whole, rest = connection.execute(asked).one()
    return joined(whole, rest)


def _spent_by_rows(
    connection: Connection,
    since_ms: int,
    until_ms: int | None,
    team: str | None,
    application: str | None,
    key_id: str | None,
) -> PicoUsd:
    conditions = [REQUEST.c.admitted_at_ms >= since_ms]
    if until_ms is not None:
        conditions.append(REQUEST.c.admitted_at_ms < until_ms)
    if team is not None:
        conditions.append(REQUEST.c.team == team)
    if application is not None:
        conditions.append(REQUEST.c.application == application)
    if key_id is not None:
        conditions.append(REQUEST.c.key_id == key_id)
    asked = (
        select(*sum_parts(ATTEMPT.c.cost_pico_usd))
        .join_from(REQUEST, ATTEMPT, ATTEMPT.c.request_id == REQUEST.c.id)
        .where(and_(*conditions))
    )
    millions, rest = connection.execute(asked).one()
    return join_parts(millions, rest)


def _key_of(row: dict[str, Any]) -> StoredKey:
    row["tiers"], row["regions"] = _list_of(row["tiers"]), _list_of(row["regions"])
    return StoredKey(**row)


def _list_text(names: frozenset[str] | None) -> str | None:
    return None if names is None else json.dumps(sorted(names))


def _list_of(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(json.loads(text))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
