"""Does the ledger agree with itself: totals with rows, requests with their attempts, costs with their parts."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from operator import add
from typing import Any

from sqlalchemy import Connection, and_, case, delete, func, literal, literal_column, or_, select
from sqlalchemy.sql.elements import ColumnElement

from ledger.rows import SUM_COLUMNS, TotalKey, Totals, day_totals, total_rows
from ledger.store import Ledger
from ledger.sums import join_parts, sum_parts
from ledger.tables import (
    ATTEMPT,
    COST_CLASSES,
    COUNTS,
    DAY_TOTAL,
    HOUR_TOTAL,
    MONEY_SUMS,
    MS_PER_HOUR,
    REQUEST,
    TOTAL_KEYS,
)
from pricing.money import usd_text
from pricing.usage import BUCKETS


def verify(ledger: Ledger) -> list[str]:
    """Everything that does not add up, one line each; empty: all of it does. Raises LedgerAway."""
    with ledger.reading() as connection:
        return [
            *_requests_against_attempts(connection),
            *_attempts_against_their_parts(connection),
            *_totals_against_rows(connection),
        ]


def rebuild_totals(ledger: Ledger) -> int:
    """Throw the totals away and build them again from the rows; how many rows of totals there are now.

    Writers wait meanwhile. Raises LedgerAway.
    """
    with ledger.writing() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("LOCK TABLE hour_total, day_total IN EXCLUSIVE MODE")
        hours = totals_of_rows(connection)
        count = 0
        for table, moment, totals in (
            (HOUR_TOTAL, "hour", hours),
            (DAY_TOTAL, "day", day_totals(hours)),
        ):
            connection.execute(delete(table))
            columns = (moment, *TOTAL_KEYS, *SUM_COLUMNS)
            rows = [dict(zip(columns, row, strict=True)) for row in total_rows(totals)]
            if rows:
                connection.execute(table.insert(), rows)
            count += len(rows)
        return count


def totals_of_rows(connection: Connection) -> Totals:
    """The totals by hour as the rows have them, added up by the database in parts that cannot overflow."""
    # Written out, as PostgreSQL does not see that two parameters of a grouping are the same.
    hour = REQUEST.c.admitted_at_ms.op("/")(literal_column(str(MS_PER_HOUR)))
    application = func.coalesce(REQUEST.c.application, literal_column("''"))
    head = (hour, REQUEST.c.team, application, REQUEST.c.tier)
    totals: Totals = {}

    # Per attempt.
    keys = (*head, ATTEMPT.c.deployment, ATTEMPT.c.provider, ATTEMPT.c.model_called)
    is_estimated = ATTEMPT.c.state == "estimated"
    is_priced = ATTEMPT.c.cost_pico_usd.is_not(None)
    money = (
        ATTEMPT.c.cost_pico_usd,
        *(_if(is_priced, ATTEMPT.c[f"cost_{name}_pico_usd"]) for name in COST_CLASSES),
        _if(is_estimated, ATTEMPT.c.cost_pico_usd),
    )
    asked = (
        select(
            *keys,
            func.count(),
            _count(is_estimated),
            _count(~is_priced),
            *(func.sum(ATTEMPT.c[name]) for name in BUCKETS),
            *(part for column in money for part in sum_parts(column)),
        )
        .join_from(ATTEMPT, REQUEST, ATTEMPT.c.request_id == REQUEST.c.id)
        .group_by(*keys)
    )
    plain = 3 + len(BUCKETS)
    for row in connection.execute(asked):
        key, values = _key(row), row[7:]
        sums = [0, 0, 0, 0, *map(int, values[:plain]), *_joined(values[plain:]), 0, 0]
        _add(totals, key, sums)

    # Per request.
    keys = (*head, REQUEST.c.deployment, REQUEST.c.provider, REQUEST.c.model)
    is_compared = and_(REQUEST.c.cost_pico_usd.is_not(None), REQUEST.c.baseline_pico_usd.is_not(None))
    compared = (_if(is_compared, REQUEST.c.cost_pico_usd), _if(is_compared, REQUEST.c.baseline_pico_usd))
    asked = select(
        *keys,
        func.count(),
        _count(REQUEST.c.state == "failed"),
        _count(REQUEST.c.state == "cancelled"),
        _count(is_compared),
        *(part for column in compared for part in sum_parts(column)),
    ).group_by(*keys)
    nothing = [0] * (len(COUNTS) - 4 + len(MONEY_SUMS) - 2)
    for row in connection.execute(asked):
        key, values = _key(row), row[7:]
        _add(totals, key, [*map(int, values[:4]), *nothing, *_joined(values[4:])])
    return totals


def _key(row: Any) -> TotalKey:
    return (int(row[0]), row[1], row[2], row[3], row[4], row[5], row[6])


def _add(totals: Totals, key: TotalKey, sums: list[int]) -> None:
    so_far = totals.get(key)
    totals[key] = sums if so_far is None else list(map(add, so_far, sums))


def _joined(parts: Any) -> list[int]:
    return [join_parts(parts[at], parts[at + 1]) for at in range(0, len(parts), 2)]


def _if(condition: ColumnElement[bool], column: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((condition, column), else_=None)


def _count(condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


def _requests_against_attempts(connection: Connection) -> Generator[str]:
    millions, rest = sum_parts(ATTEMPT.c.cost_pico_usd)
    by_request = (
        select(
            ATTEMPT.c.request_id,
            func.count().label("attempts"),
            func.max(ATTEMPT.c.n).label("last"),
            _count(ATTEMPT.c.cost_pico_usd.is_(None)).label("unpriced"),
            millions.label("millions"),
            rest.label("rest"),
        )
        .group_by(ATTEMPT.c.request_id)
        .subquery()
    )
    asked = (
        select(
            REQUEST.c.id,
            REQUEST.c.cost_pico_usd,
            REQUEST.c.attempts,
            func.coalesce(by_request.c.attempts, 0),
            func.coalesce(by_request.c.last, 0),
            func.coalesce(by_request.c.unpriced, 0),
            by_request.c.millions,
            by_request.c.rest,
        )
        .join_from(REQUEST, by_request, REQUEST.c.id == by_request.c.request_id, isouter=True)
        .order_by(REQUEST.c.id)
    )
    for id_, cost, said, there, last, unpriced, high, low in connection.execution_options(
        yield_per=1000
    ).execute(asked):
        if said != there or last != there:
            yield f"request {id_}: it says {said} attempts, and there are {there}, the last of them number {last}"
        spent = join_parts(high, low)
        if unpriced:
            if cost is not None:
                yield f"request {id_}: an attempt is unpriced, yet its cost is {usd_text(cost)} USD"
        elif there and cost is None:
            yield f"request {id_}: all attempts are priced, yet it has no cost"
        elif cost is not None and cost != spent:
            yield f"request {id_}: its cost is {usd_text(cost)} USD, its attempts cost {usd_text(spent)} USD"
    orphans = (
        select(ATTEMPT.c.request_id, ATTEMPT.c.n)
        .join_from(ATTEMPT, REQUEST, ATTEMPT.c.request_id == REQUEST.c.id, isouter=True)
        .where(REQUEST.c.id.is_(None))
        .order_by(ATTEMPT.c.request_id, ATTEMPT.c.n)
    )
    for id_, n in connection.execute(orphans):
        yield f"attempt {n} of {id_}: there is no such request"


def _attempts_against_their_parts(connection: Connection) -> Generator[str]:
    # The difference is added up from the left, so that it stays as small as the cost itself.
    left: ColumnElement[Any] = ATTEMPT.c.cost_pico_usd
    for name in COST_CLASSES:
        left = left - ATTEMPT.c[f"cost_{name}_pico_usd"]
    negative = or_(*(ATTEMPT.c[name] < 0 for name in BUCKETS))
    asked = (
        select(ATTEMPT.c.request_id, ATTEMPT.c.n, left, case((negative, 1), else_=0))
        .where(or_(left != literal(0), negative))
        .order_by(ATTEMPT.c.request_id, ATTEMPT.c.n)
    )
    for id_, n, difference, is_negative in connection.execute(asked):
        if difference:
            amount = usd_text(int(difference))
            yield f"attempt {n} of {id_}: its cost is {amount} USD more than its parts add up to"
        if is_negative:
            yield f"attempt {n} of {id_}: it has a negative number of tokens"


def _totals_against_rows(connection: Connection) -> Generator[str]:
    hours = totals_of_rows(connection)
    for table, moment, totals in ((HOUR_TOTAL, "hour", hours), (DAY_TOTAL, "day", day_totals(hours))):
        wanted = {row[:7]: row[7:] for row in total_rows(totals)}
        columns = (moment, *TOTAL_KEYS, *SUM_COLUMNS)
        for row in connection.execute(select(*(table.c[name] for name in columns))):
            key, found = tuple(row[:7]), tuple(row[7:])
            should = wanted.pop(key, None)
            name = f"{moment} {_named(moment, key)}"
            if should is None:
                yield f"{name}: there are no rows for this total"
                continue
            for column, there, right in zip(SUM_COLUMNS, found, should, strict=True):
                if there != right:
                    yield f"{name}: {column} is {there}, the rows make {right}"
        for key in sorted(wanted):
            yield f"{moment} {_named(moment, key)}: the total is missing"


def _named(moment: str, key: tuple[Any, ...]) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(**{f"{moment}s": key[0]})
    names = [f"{column} {value}" for column, value in zip(TOTAL_KEYS, key[1:], strict=True) if value]
    return ", ".join([f"{at:%Y-%m-%d %H:%M}" if moment == "hour" else f"{at:%Y-%m-%d}", *names])
