"""The tables, and what a row of each one is.

Entries (`request`, `attempt`, `price`, `config_version`) are only ever inserted. A request and its attempts
are written together, when its books close; a request whose process died is written by the next start as
`failed`, with one attempt of state `estimated` and flag `interrupted`.

Moments are milliseconds since 1970-01-01 UTC (`_at_ms`). Money is pico-dollars. Both, and tokens, are BIGINT.
Lists and small maps are JSON text.

The totals (`hour_total`, `day_total`) are derived: they can be thrown away and built again from the rows.
A request counts in the hour and the day in which it was admitted, with all of its attempts. Two kinds of
columns stand in one row, and neither counts anything twice:

- per attempt, under the attempt's own deployment: attempts, estimated, unpriced, every token and every cost;
- per request, under the deployment of its last attempt ("" if it had none): requests, failed, cancelled,
  and the comparison with the baseline (`compared`, `compared_cost`, `baseline`).

So a request that fell back from A to B adds an attempt to both rows and a request to B's; summed over
deployments every column is right. `compared_cost` is the cost of the whole request, the failed attempt too:
it is not part of B's `cost`, and only the difference to `baseline` means something.

A sum of money is two integers, whole dollars and the rest in pico-dollars (0 to 999,999,999,999): one
integer would pass 2^63 at 9.2 million dollars, and an upsert past it silently becomes a float on SQLite.
"""

from typing import Any

from sqlalchemy import BigInteger, Index, MetaData, PrimaryKeyConstraint, Table, Text
from sqlmodel import Field, SQLModel

from pricing.usage import BUCKETS

MS_PER_HOUR = 3_600_000
MS_PER_DAY = 24 * MS_PER_HOUR

COST_CLASSES = ("input_uncached", "input_cached", "cache_write", "output", "fees")
"""The parts of an attempt's cost; `cost_<class>_pico_usd` of an attempt add up to its cost."""

TOTAL_KEYS = ("team", "application", "tier", "deployment", "provider", "model")
"""What a row of the totals is about, beside its hour or day."""

COUNTS = (
    "requests",
    "failed",
    "cancelled",
    "compared",
    "attempts",
    "estimated",
    "unpriced",
    *BUCKETS,
)
"""Plain sums in the totals."""

MONEY_SUMS = (
    "cost",
    "cost_input_uncached",
    "cost_input_cached",
    "cost_cache_write",
    "cost_output",
    "cost_fees",
    "cost_estimated",
    "compared_cost",
    "baseline",
)
"""Sums of money in the totals: each is `<name>_whole_usd` and `<name>_rest_pico_usd`."""


# SQLModel would make INTEGER of int, which is 32 bits on PostgreSQL, and VARCHAR of str.


def _big(**more: Any) -> Any:
    return Field(sa_type=BigInteger, **more)


def _text(**more: Any) -> Any:
    return Field(sa_type=Text, **more)


class RequestRow(SQLModel, table=True):
    """One admitted request, written when its books closed."""

    __tablename__ = "request"  # pyright: ignore[reportAssignmentType] - SQLModel declares it as a declared_attr
    __table_args__ = (
        Index("request_by_moment", "admitted_at_ms"),
        Index("request_by_key", "key_id", "admitted_at_ms"),
        {"sqlite_with_rowid": False},
    )

    id: str = _text(primary_key=True)
    admitted_at_ms: int = _big()
    key_id: str = _text()
    team: str = _text()
    application: str | None = _text()
    feature: str | None = _text()
    customer: str | None = _text()
    session: str = _text()
    task: str | None = _text()
    user: str | None = _text()
    endpoint: str = _text()
    model_asked: str = _text()
    stream: bool
    input_bytes: int = _big()
    input_tokens_estimate: int = _big()
    max_output_tokens: int | None = _big()
    choices: int = _big()
    messages: int = _big()
    turn: int = _big()
    has_tools: bool
    has_images: bool
    json_output: bool
    task_kind: str = _text()
    confidence: float
    classified_because: str = _text()  # JSON list of texts
    rule: str = _text()
    tier: str = _text()  # "": pinned to a deployment
    deployments: str = _text()  # JSON list: the order planned
    decided_because: str = _text()  # JSON list of texts
    arm: str | None = _text()
    propensity: float
    config_digest: str = _text()
    held_pico_usd: int = _big()
    # how it ended
    closed_at_ms: int = _big()
    state: str = _text()  # answered | failed | cancelled
    status: int = _big()  # the HTTP status the client got; 499: it left before that; 0: nobody knows
    error: str | None = _text()  # a code of the gateway's errors; "interrupted": the process died
    cost_pico_usd: int | None = _big()  # of all its attempts; null: one of them is unpriced
    baseline_deployment: str | None = _text()
    baseline_pico_usd: int | None = _big()  # the same tokens at the baseline's price; null: unknown
    first_byte_ms: int | None = _big()
    duration_ms: int = _big()
    attempts: int = _big()  # how many rows of `attempt` it has
    # of its last attempt; "" if there was none
    deployment: str = _text()
    provider: str = _text()
    model: str = _text()


class AttemptRow(SQLModel, table=True):
    """One upstream call, as it ended."""

    __tablename__ = "attempt"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        Index("attempt_by_moment", "started_at_ms"),
        Index("attempt_by_answer", "answer_id"),
        {"sqlite_with_rowid": False},
    )

    request_id: str = _text(primary_key=True)
    n: int = _big(primary_key=True, sa_column_kwargs={"autoincrement": False})  # 1 for the first
    deployment: str = _text()
    provider: str = _text()
    model_called: str = _text()
    model_answered: str | None = _text()
    answer_id: str | None = _text()  # the id the answer gave itself; null: none that somebody asks for later
    started_at_ms: int = _big()
    status: int | None = _big()  # the provider's HTTP status; null: it sent none
    state: str = _text()  # settled | estimated | unbilled
    failure: str | None = _text()
    input_uncached: int = _big()
    input_cached: int = _big()
    cache_write_5m: int = _big()
    cache_write_1h: int = _big()
    input_audio: int = _big()
    input_audio_cached: int = _big()
    input_image: int = _big()
    output_text: int = _big()
    output_reasoning: int = _big()
    output_audio: int = _big()
    output_image: int = _big()
    tools: str = _text()  # JSON map: billable tool units by tool
    extra: str = _text()  # JSON map: one provider's further token counts
    usage_source: str = _text()
    service_tier: str | None = _text()
    price_id: str | None = _text()
    priced_as: str | None = _text()
    rate_set: str | None = _text()
    cost_pico_usd: int | None = _big()  # null: unpriced
    cost_input_uncached_pico_usd: int = _big()
    cost_input_cached_pico_usd: int = _big()
    cost_cache_write_pico_usd: int = _big()
    cost_output_pico_usd: int = _big()
    cost_fees_pico_usd: int = _big()
    provider_cost_usd: str | None = _text()  # the provider's own figure, exact decimal text
    output_low: int | None = _big()  # range of an estimated output, in tokens
    output_high: int | None = _big()
    flags: str = _text()  # JSON list, sorted
    first_byte_ms: int | None = _big()
    duration_ms: int = _big()


class PriceRow(SQLModel, table=True):
    """One dated price, as it was in force at a start. A change is a later row under another id."""

    __tablename__ = "price"  # pyright: ignore[reportAssignmentType]

    id: str = _text(primary_key=True)  # "book:gpt-5.6-luna@2026-06-01"; an attempt's price_id
    provider: str | None = _text()
    deployment: str | None = _text()  # null: it holds for every deployment of the model
    model: str | None = _text()
    from_date: str = _text()  # ISO date
    sheet: str = _text()  # JSON: rates, steps and fees, decimals as texts
    source: str | None = _text()
    checked_on: str | None = _text()  # ISO date
    recorded_at_ms: int = _big()


class VirtualKeyRow(SQLModel, table=True):
    """One key that we issued: its keyed hash, never the key. Only `revoked_at_ms` is ever set later, once."""

    __tablename__ = "virtual_key"  # pyright: ignore[reportAssignmentType]

    key_id: str = _text(primary_key=True)  # short and public
    key_hash: str = _text(unique=True)
    team: str = _text()
    application: str | None = _text()
    tiers: str | None = _text()  # JSON list, sorted; null: any
    regions: str | None = _text()  # JSON list, sorted; null: any
    requests_per_minute: int | None = _big()
    tokens_per_minute: int | None = _big()
    created_at_ms: int = _big()
    expires_at_ms: int | None = _big()
    revoked_at_ms: int | None = _big()


class ConfigVersionRow(SQLModel, table=True):
    """One version of faregate.toml that was in force."""

    __tablename__ = "config_version"  # pyright: ignore[reportAssignmentType]

    digest: str = _text(primary_key=True)
    path: str = _text()
    text: str = _text()  # the file; secrets are never in it
    taken_at_ms: int = _big()  # the first time


class _Sums(SQLModel):
    """What an hour and a day have in common; see the top of this file."""

    team: str = _text(primary_key=True)
    application: str = _text(primary_key=True)  # "": none
    tier: str = _text(primary_key=True)  # "": pinned
    deployment: str = _text(primary_key=True)  # "": the request had no attempt
    provider: str = _text(primary_key=True)
    model: str = _text(primary_key=True)  # the name that was called
    # per request
    requests: int = _big()
    failed: int = _big()
    cancelled: int = _big()
    compared: int = _big()  # requests that have both a cost and a baseline
    # per attempt
    attempts: int = _big()
    estimated: int = _big()
    unpriced: int = _big()
    input_uncached: int = _big()
    input_cached: int = _big()
    cache_write_5m: int = _big()
    cache_write_1h: int = _big()
    input_audio: int = _big()
    input_audio_cached: int = _big()
    input_image: int = _big()
    output_text: int = _big()
    output_reasoning: int = _big()
    output_audio: int = _big()
    output_image: int = _big()
    # money; `cost_estimated` is the part of `cost` that comes from attempts of state `estimated`
    cost_whole_usd: int = _big()
    cost_rest_pico_usd: int = _big()
    cost_input_uncached_whole_usd: int = _big()
    cost_input_uncached_rest_pico_usd: int = _big()
    cost_input_cached_whole_usd: int = _big()
    cost_input_cached_rest_pico_usd: int = _big()
    cost_cache_write_whole_usd: int = _big()
    cost_cache_write_rest_pico_usd: int = _big()
    cost_output_whole_usd: int = _big()
    cost_output_rest_pico_usd: int = _big()
    cost_fees_whole_usd: int = _big()
    cost_fees_rest_pico_usd: int = _big()
    cost_estimated_whole_usd: int = _big()
    cost_estimated_rest_pico_usd: int = _big()
    # of the compared requests, per request
    compared_cost_whole_usd: int = _big()
    compared_cost_rest_pico_usd: int = _big()
    baseline_whole_usd: int = _big()
    baseline_rest_pico_usd: int = _big()


# They are bases so that they come first: with a key behind other columns in a table without row ids SQLite 3.40
# reports NULLs that are not there (PRAGMA integrity_check).


class _Hour(SQLModel):
    hour: int = _big(
        primary_key=True, sa_column_kwargs={"autoincrement": False}
    )  # admitted_at_ms // 3,600,000


class HourTotalRow(_Sums, _Hour, table=True):
    """Sums over the requests admitted in one hour."""

    __tablename__ = "hour_total"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("hour", *TOTAL_KEYS), {"sqlite_with_rowid": False})


class _Day(SQLModel):
    day: int = _big(primary_key=True, sa_column_kwargs={"autoincrement": False})  # days since 1970-01-01


class DayTotalRow(_Sums, _Day, table=True):
    """Sums over the requests admitted in one UTC day."""

    __tablename__ = "day_total"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("day", *TOTAL_KEYS), {"sqlite_with_rowid": False})


class SpoolMarkRow(SQLModel, table=True):
    """How far one process's spool has been taken into the tables. Moves in the rows' own transaction."""

    __tablename__ = "spool_mark"  # pyright: ignore[reportAssignmentType]

    directory: str = _text(primary_key=True)
    segment: int = _big()
    position: int = _big()  # bytes of that segment


class MetaRow(SQLModel, table=True):
    """A fact about this ledger as a whole, such as `made_up` = "1" for a demonstration."""

    __tablename__ = "meta"  # pyright: ignore[reportAssignmentType]

    name: str = _text(primary_key=True)
    value: str = _text()


def table_of(row: type[SQLModel]) -> Table:
    """The table behind a class of this file."""
    return row.__table__  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


METADATA: MetaData = SQLModel.metadata
REQUEST = table_of(RequestRow)
ATTEMPT = table_of(AttemptRow)
PRICE = table_of(PriceRow)
VIRTUAL_KEY = table_of(VirtualKeyRow)
CONFIG_VERSION = table_of(ConfigVersionRow)
HOUR_TOTAL = table_of(HourTotalRow)
DAY_TOTAL = table_of(DayTotalRow)
SPOOL_MARK = table_of(SpoolMarkRow)
META = table_of(MetaRow)
