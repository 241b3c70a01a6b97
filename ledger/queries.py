"""What finance asks the ledger: one function per question, named as the question, answered in `ledger.answers`.

Each takes a connection of `Ledger.reading()`: questions asked on the same one see the same moment. `since` is
the first UTC day, `until` the first one that is not in it any more. Sums of money are exact at any size.

Whatever is asked about a period as a whole rests on the day totals, so its cost grows with the days, teams and
deployments and not with the requests. Only `find_requests` and `request_by_id` read rows of requests, and
`baselines_seen` looks at a bounded number of them.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, select

from ledger.answers import (
    AttemptSeen,
    Cost,
    Day,
    Extent,
    Maker,
    Names,
    PriceSeen,
    RequestFilter,
    RequestLine,
    RequestSeen,
    Share,
    Sums,
)
from ledger.sums import joined
from ledger.tables import (
    ATTEMPT,
    CONFIG_VERSION,
    COST_CLASSES,
    COUNTS,
    DAY_TOTAL,
    META,
    MONEY_SUMS,
    MS_PER_DAY,
    PRICE,
    REQUEST,
)
from pricing.money import PicoUsd
from pricing.usage import BUCKETS, Usage

_EPOCH = date(1970, 1, 1)
_PER_LOOK_UP = 500  # ids in one statement
_LOOKED_AT = 1_000  # rows of requests, at each end of a period
MOST_REQUESTS = 5_000  # that one question for requests gives


# Periods, from the day totals


def spend_by_day(at: Connection, since: date, until: date) -> list[Day]:
    """Every day that has any, oldest first."""
    return [
        Day(day=_EPOCH + timedelta(days=int(row["day"])), sums=_sums_of(row))
        for row in _grouped(at, DAY_TOTAL.c.day, since, until)
    ]


def spend_by_team(at: Connection, since: date, until: date) -> list[Share]:
    """The most expensive first."""
    return _shares(at, "team", since, until)


def spend_by_application(at: Connection, since: date, until: date) -> list[Share]:
    """The most expensive first; "" is what named no application."""
    return _shares(at, "application", since, until)


def spend_by_tier(at: Connection, since: date, until: date) -> list[Share]:
    """The most expensive first; "" is what was pinned to a deployment."""
    return _shares(at, "tier", since, until)


def spend_by_deployment(at: Connection, since: date, until: date) -> list[Share]:
    """The most expensive first; "" is what never reached one."""
    return _shares(at, "deployment", since, until)


def names_in(at: Connection, since: date, until: date) -> Names:
    """What can be chosen from in a period."""

    def names(column: str) -> tuple[str, ...]:
        asked = select(DAY_TOTAL.c[column]).where(_days(since, until)).distinct()
        return tuple(sorted(name for name in at.execute(asked).scalars() if name))

    return Names(
        teams=names("team"),
        applications=names("application"),
        tiers=names("tier"),
        deployments=names("deployment"),
    )


def extent(at: Connection) -> Extent:
    """From when to when the ledger has anything."""
    first = at.execute(select(func.min(DAY_TOTAL.c.day))).scalar()
    newest = at.execute(select(func.max(REQUEST.c.admitted_at_ms))).scalar()
    return Extent(
        first_day=None if first is None else _EPOCH + timedelta(days=int(first)),
        newest_at=None if newest is None else _moment(newest),
    )


def mark_of(at: Connection) -> str | None:
    """What the whole ledger is marked as: "made-up", "simulated"; None: it is real."""
    return at.execute(select(META.c.value).where(META.c.name == "marked")).scalar()


def newest_config(at: Connection) -> str | None:
    """The text of the newest version of faregate.toml that was in force; None: none is kept."""
    asked = select(CONFIG_VERSION.c.text).order_by(CONFIG_VERSION.c.taken_at_ms.desc()).limit(1)
    return at.execute(asked).scalar()


def baselines_seen(at: Connection, since: date, until: date) -> tuple[str, ...]:
    """The baselines that the first and the last requests of a period were compared with, oldest first.

    Looks at a thousand requests at each end, so one that held for a while in between is not found.
    """
    moment = REQUEST.c.admitted_at_ms
    seen: dict[str, None] = {}
    for order in (moment.asc(), moment.desc()):
        end = (
            select(REQUEST.c.baseline_deployment)
            .where(_moments(since, until))
            .order_by(order)
            .limit(_LOOKED_AT)
        )
        for name in at.execute(end).scalars():
            if name is not None:
                seen[name] = None
    return tuple(seen)


# Requests


def find_requests(
    at: Connection, since: date, until: date, wanted: RequestFilter, *, limit: int = 200
) -> list[RequestLine]:
    """The newest requests first, at most `limit` (and at most MOST_REQUESTS) of them."""
    asked = (
        select(REQUEST)
        .where(_moments(since, until), *_conditions(wanted))
        .order_by(REQUEST.c.admitted_at_ms.desc(), REQUEST.c.id.desc())
        .limit(min(limit, MOST_REQUESTS))
    )
    rows = [dict(row) for row in at.execute(asked).mappings()]
    attempts = _attempts_of(at, [row["id"] for row in rows])
    return [_line_of(row, attempts[row["id"]]) for row in rows]


def request_by_id(at: Connection, request_id: str) -> RequestSeen | None:
    """One request with its attempts and their prices; None: there is none of that id."""
    found = at.execute(select(REQUEST).where(REQUEST.c.id == request_id)).mappings().first()
    if found is None:
        return None
    row = dict(found)
    rows = _attempts_of(at, [request_id])[request_id]
    ids = {one["price_id"] for one in rows if one["price_id"] is not None}
    prices = at.execute(select(PRICE).where(PRICE.c.id.in_(ids)).order_by(PRICE.c.id)).mappings()
    return RequestSeen(
        line=_line_of(row, rows),
        key_id=row["key_id"],
        feature=row["feature"],
        customer=row["customer"],
        session=row["session"],
        task=row["task"],
        user=row["user"],
        endpoint=row["endpoint"],
        model_asked=row["model_asked"],
        stream=bool(row["stream"]),
        turn=row["turn"],
        task_kind=row["task_kind"],
        confidence=row["confidence"],
        classified_because=_texts(row["classified_because"]),
        rule=row["rule"],
        decided_because=_texts(row["decided_because"]),
        planned=_texts(row["deployments"]),
        config_digest=row["config_digest"],
        closed_at=_moment(row["closed_at_ms"]),
        error=row["error"],
        baseline_deployment=row["baseline_deployment"],
        baseline=_money(row["baseline_pico_usd"]),
        first_byte_ms=row["first_byte_ms"],
        attempts=tuple(_attempt_of(one) for one in rows),
        prices=tuple(
            PriceSeen(
                id=price["id"],
                from_date=price["from_date"],
                source=price["source"],
                checked_on=price["checked_on"],
                sheet=price["sheet"],
            )
            for price in prices
        ),
    )


# What the questions have in common


def maker_of(at: Connection, answer_id: str) -> Maker | None:
    """Who made the answer that gave itself this id; None: it is not in the ledger. Of several the latest."""
    row = at.execute(
        select(ATTEMPT.c.deployment, REQUEST.c.team)
        .join_from(ATTEMPT, REQUEST, ATTEMPT.c.request_id == REQUEST.c.id)
        .where(ATTEMPT.c.answer_id == answer_id)
        .order_by(ATTEMPT.c.started_at_ms.desc())
        .limit(1)
    ).first()
    return None if row is None else Maker(deployment=row[0], team=row[1])


def _days(since: date, until: date) -> ColumnElement[bool]:
    day = DAY_TOTAL.c.day
    return and_(day >= (since - _EPOCH).days, day < (until - _EPOCH).days)


def _moments(since: date, until: date) -> ColumnElement[bool]:
    moment = REQUEST.c.admitted_at_ms
    return and_(
        moment >= (since - _EPOCH).days * MS_PER_DAY,
        moment < (until - _EPOCH).days * MS_PER_DAY,
    )


def _grouped(at: Connection, by: ColumnElement[Any], since: date, until: date) -> list[Mapping[str, Any]]:
    columns = DAY_TOTAL.c
    halves = [f"{name}_{half}" for name in MONEY_SUMS for half in ("whole_usd", "rest_pico_usd")]
    sums = [func.sum(columns[name]).label(name) for name in (*COUNTS, *halves)]
    asked = select(by, *sums).where(_days(since, until)).group_by(by).order_by(by)
    return [dict(row) for row in at.execute(asked).mappings()]


def _shares(at: Connection, name: str, since: date, until: date) -> list[Share]:
    shares = [
        Share(name=row[name], sums=_sums_of(row)) for row in _grouped(at, DAY_TOTAL.c[name], since, until)
    ]
    return sorted(shares, key=lambda share: (-share.sums.cost.total, -share.sums.requests, share.name))


def _sums_of(row: Mapping[str, Any]) -> Sums:
    money = {name: joined(row[f"{name}_whole_usd"], row[f"{name}_rest_pico_usd"]) for name in MONEY_SUMS}
    return Sums(
        requests=int(row["requests"]),
        failed=int(row["failed"]),
        cancelled=int(row["cancelled"]),
        compared=int(row["compared"]),
        attempts=int(row["attempts"]),
        estimated=int(row["estimated"]),
        unpriced=int(row["unpriced"]),
        usage=_usage_of([row]),
        cost=Cost(total=money["cost"], **{name: money[f"cost_{name}"] for name in COST_CLASSES}),
        cost_estimated=money["cost_estimated"],
        compared_cost=money["compared_cost"],
        baseline=money["baseline"],
    )


def _usage_of(
    rows: Sequence[Mapping[str, Any]],
    *,
    tools: Mapping[str, int] | None = None,
    extra: Mapping[str, int] | None = None,
) -> Usage:
    """The tokens of several rows together; tools and further counts only where they are given."""
    counts: dict[str, Any] = {name: sum(int(row[name]) for row in rows) for name in BUCKETS}
    # Plain maps: a read-only view cannot be pickled, and so not be cached.
    return Usage(**counts, tools=tools or {}, extra=extra or {})


def _conditions(wanted: RequestFilter) -> list[ColumnElement[bool]]:
    columns = REQUEST.c
    conditions = [
        columns[name] == value
        for name in ("team", "application", "tier", "deployment", "state")
        if (value := getattr(wanted, name)) is not None
    ]
    if wanted.quality == "unpriced":
        conditions.append(columns.cost_pico_usd.is_(None))
    if wanted.quality == "estimated":
        conditions.append(
            select(ATTEMPT.c.n)
            .where(ATTEMPT.c.request_id == columns.id, ATTEMPT.c.state == "estimated")
            .exists()
        )
    return conditions


def _attempts_of(at: Connection, ids: Sequence[str]) -> Mapping[str, list[dict[str, Any]]]:
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for start in range(0, len(ids), _PER_LOOK_UP):
        some = ids[start : start + _PER_LOOK_UP]
        asked = select(ATTEMPT).where(ATTEMPT.c.request_id.in_(some)).order_by(ATTEMPT.c.n)
        for row in at.execute(asked).mappings():
            found[row["request_id"]].append(dict(row))
    return found


def _line_of(row: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]]) -> RequestLine:
    return RequestLine(
        id=row["id"],
        admitted_at=_moment(row["admitted_at_ms"]),
        team=row["team"],
        application=row["application"],
        tier=row["tier"],
        deployment=row["deployment"],
        model=row["model"],
        state=row["state"],
        status=row["status"],
        attempts=len(attempts),
        is_estimated=any(attempt["state"] == "estimated" for attempt in attempts),
        usage=_usage_of(attempts),
        cost=_money(row["cost_pico_usd"]),
        duration_ms=row["duration_ms"],
    )


def _attempt_of(row: Mapping[str, Any]) -> AttemptSeen:
    cost: Cost | None = None
    if row["cost_pico_usd"] is not None:
        parts = {name: PicoUsd(row[f"cost_{name}_pico_usd"]) for name in COST_CLASSES}
        cost = Cost(total=PicoUsd(row["cost_pico_usd"]), **parts)
    return AttemptSeen(
        n=row["n"],
        deployment=row["deployment"],
        provider=row["provider"],
        model_called=row["model_called"],
        model_answered=row["model_answered"],
        started_at=_moment(row["started_at_ms"]),
        status=row["status"],
        state=row["state"],
        failure=row["failure"],
        usage=_usage_of([row], tools=json.loads(row["tools"]), extra=json.loads(row["extra"])),
        usage_source=row["usage_source"],
        service_tier=row["service_tier"],
        price_id=row["price_id"],
        priced_as=row["priced_as"],
        rate_set=row["rate_set"],
        cost=cost,
        provider_cost_usd=row["provider_cost_usd"],
        output_low=row["output_low"],
        output_high=row["output_high"],
        flags=_texts(row["flags"]),
        first_byte_ms=row["first_byte_ms"],
        duration_ms=row["duration_ms"],
    )


def _money(amount: int | None) -> PicoUsd | None:
    return None if amount is None else PicoUsd(amount)


def _texts(text: str) -> tuple[str, ...]:
    return tuple(str(one) for one in json.loads(text))


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
