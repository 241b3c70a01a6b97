"""What the questions of `ledger.queries` are answered with: plain values, without a database behind them."""

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal

from pricing.money import PicoUsd
from pricing.usage import Usage

_NOTHING = PicoUsd(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A cost and its parts by token class, which add up to it."""

    total: PicoUsd = _NOTHING
    input_uncached: PicoUsd = _NOTHING
    input_cached: PicoUsd = _NOTHING
    cache_write: PicoUsd = _NOTHING
    output: PicoUsd = _NOTHING
    fees: PicoUsd = _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What a group of requests and their attempts come to."""

    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    compared: int = 0  # requests that have both a cost and a baseline
    attempts: int = 0
    estimated: int = 0  # attempts whose usage is an estimate
    unpriced: int = 0  # attempts without a price: their cost is unknown and in no sum
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    cost_estimated: PicoUsd = _NOTHING  # the part of the cost that comes from estimated usage
    compared_cost: PicoUsd = _NOTHING  # of the compared requests, all their attempts
    baseline: PicoUsd = _NOTHING  # the same requests, same tokens, at the baseline's price


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One UTC day's sums."""

    day: date
    sums: Sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The sums of everything under one name; "" is what has none."""

    name: str
    sums: Sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names that occur in a period, sorted; "" is not among them."""

    teams: tuple[str, ...] = ()
    applications: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    deployments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """From when to when there is anything; None: there is nothing."""

    first_day: date | None = None
    newest_at: datetime | None = None  # when the newest request was admitted


Quality = Literal["estimated", "unpriced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFilter:
    """Which requests are wanted; None: any. `deployment` is that of the last attempt."""

    team: str | None = None
    application: str | None = None
    tier: str | None = None
    deployment: str | None = None
    state: str | None = None
    quality: Quality | None = None  # with at least one attempt that is


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Who made an answer that has an id."""

    deployment: str
    team: str  # of the request that it answered


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """One request in a list."""

    id: str
    admitted_at: datetime
    team: str
    application: str | None
    tier: str  # "": pinned
    deployment: str
    model: str
    state: str
    status: int
    attempts: int
    is_estimated: bool  # the usage of one of its attempts is
    usage: Usage  # of all its attempts
    cost: PicoUsd | None  # of all its attempts; None: one of them is unpriced
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSeen:
    """A dated price that an attempt points at."""

    id: str
    from_date: str
    source: str | None
    checked_on: str | None
    sheet: str  # JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSeen:
    """One upstream call."""

    n: int
    deployment: str
    provider: str
    model_called: str
    model_answered: str | None
    started_at: datetime
    status: int | None
    state: str
    failure: str | None
    usage: Usage
    usage_source: str
    service_tier: str | None
    price_id: str | None
    priced_as: str | None
    rate_set: str | None
    cost: Cost | None  # None: unpriced
    provider_cost_usd: str | None
    output_low: int | None
    output_high: int | None
    flags: tuple[str, ...]
    first_byte_ms: int | None
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSeen:
    """One request with all that is written about it. There is no text of a prompt or an answer."""

    line: RequestLine
    key_id: str
    feature: str | None
    customer: str | None
    session: str
    task: str | None
    user: str | None
    endpoint: str
    model_asked: str
    stream: bool
    turn: int
    task_kind: str
    confidence: float
    classified_because: tuple[str, ...]
    rule: str
    decided_because: tuple[str, ...]
    planned: tuple[str, ...]  # deployments, in the order to try
    config_digest: str
    closed_at: datetime
    error: str | None
    baseline_deployment: str | None
    baseline: PicoUsd | None  # the same tokens at the baseline's price
    first_byte_ms: int | None
    attempts: tuple[AttemptSeen, ...]
    prices: tuple[PriceSeen, ...]  # those that the attempts point at and that are kept
