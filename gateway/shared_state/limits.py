"""What the limits are, when a budget's window begins and ends, and the words of a refusal."""

from calendar import timegm
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from gateway.shared_state import Demand, Refusal
from pricing.money import PICO_PER_USD, PicoUsd

Per = Literal["day", "week", "month"]

MINUTE_SECONDS = 60.0
_NAMES = {
    "request": ("request", "requests"),
    "token": ("token", "tokens"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSpec:
    """How much one team, application or key (all that are given must match) may spend in a window."""

    name: str
    team: str | None = None
    application: str | None = None
    key: str | None = None  # a key's id; no field set: everybody together
    limit: PicoUsd
    per: Per = "month"  # calendar day, week from Monday, or month, in UTC
    warn_at: tuple[float, ...] = ()  # shares of the limit, 0 to 1
    when_spent: str = "refuse"  # or the tier that may go on spending


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamLimits:
    """What one team may ask for in any 60 seconds. None: no such limit."""

    team: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of a budget, in seconds since 1970-01-01 UTC: `start` is in it, `end` is not."""

    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a budget stands in its present window."""

    spec: BudgetSpec
    window: Window
    spent: PicoUsd
    held: PicoUsd

    @property
    def left_share(self) -> float:
        """What is neither spent nor held, 0 to 1."""
        return left_share(self.spec.limit, self.spent, self.held)


def left_share(limit: int, spent: int, held: int) -> float:
    """The share of a limit that is neither spent nor held, 0 to 1; a limit of nothing has nothing left."""
    taken = spent + held
    return 1.0 - taken / limit if taken < limit and limit > 0 else 0.0


def window_of(per: Per, now: float) -> Window:
    """The window that `now` (seconds, UTC) is in."""
    day = datetime.fromtimestamp(now, UTC).date()
    if per == "day":
        first, after = day, day + timedelta(days=1)
    elif per == "week":
        first = day - timedelta(days=day.weekday())
        after = first + timedelta(days=7)
    else:
        first = day.replace(day=1)
        after = (first + timedelta(days=31)).replace(day=1)
    return Window(start=_seconds(first), end=_seconds(after))


def touches(spec: BudgetSpec, *, team: str | None, application: str | None, key: str | None) -> bool:
    """The budget counts what this caller spends. None: no name, or one that no budget names."""
    return (
        (spec.team is None or spec.team == team)
        and (spec.application is None or spec.application == application)
        and (spec.key is None or spec.key == key)
    )


def dollars(amount: int) -> str:
    """For a person: at least two decimals, more where they are not zero (at most six, cut)."""
    sign = "-" if amount < 0 else ""
    whole, rest = divmod(abs(amount), PICO_PER_USD)
    decimals = f"{rest // 10**6:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}${whole:,}.{decimals}"


# ── refusals ──


def spent(spec: BudgetSpec, window: Window, *, spent: int, held: int, worst_case: int) -> Refusal:
    """The budget has no room for what the request may cost at most."""
    who = spec.application or spec.team or spec.key or "everybody"
    when = f"it opens again on {_day(window.end)}"
    place = f'(budget "{spec.name}")'
    period = _period(spec.per, window)
    left = spec.limit - spent - held
    if left <= 0 and held == 0:
        message = f"{who} has spent its {dollars(spec.limit)} for {period} {place}; {when}"
    elif left <= 0:
        message = f"{who} has spent or reserved its {dollars(spec.limit)} for {period} {place}; {when}"
    else:
        message = (
            f"{who} has {dollars(left)} left of its {dollars(spec.limit)} for {period} {place} and this "
            f"request may cost {dollars(worst_case)}; ask for less (max_tokens), or {when}"
        )
    return Refusal(code="budget_exceeded", message=message, retry_after_seconds=None, budget=spec.name)


def no_tier_left(names: list[str]) -> Refusal:
    """Several budgets are spent, and no tier may go on spending under all of them."""
    listed = ", ".join(f'"{name}"' for name in names)
    return Refusal(
        code="budget_exceeded",
        message=f"the budgets {listed} are spent, and no tier may go on spending under all of them",
        retry_after_seconds=None,
        budget=names[0],
    )


def no_price(spec: BudgetSpec) -> Refusal:
    """Nobody can say what the request may cost."""
    return Refusal(
        code="unpriced",
        message=(
            f'budget "{spec.name}" cannot admit a request that may reach a deployment with neither a price '
            "nor a ceiling_usd_per_mtok"
        ),
        retry_after_seconds=None,
        budget=spec.name,
    )


def too_fast(
    demand: Demand,
    *,
    of: Literal["key", "team"],
    what: Literal["request", "token"],
    limit: int,
    wait: float | None,
) -> Refusal:
    """A limit per minute has no room; `wait` in seconds, None: the request alone is over the limit."""
    who = f"key {demand.key_id}" if of == "key" else f"team {demand.team}"
    one, many = _NAMES[what]
    if wait is None:
        message = (
            f"{who} may use {limit:,} {many} a minute, and this request alone asks for {demand.tokens:,}"
        )
    else:
        message = f"{who} has used its {limit:,} {many if limit != 1 else one} a minute"
    return Refusal(code="rate_limit_exceeded", message=message, retry_after_seconds=wait)


def _seconds(day: date) -> float:
    return float(timegm(day.timetuple()))


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _period(per: Per, window: Window) -> str:
    first = datetime.fromtimestamp(window.start, UTC).date()
    if per == "day":
        return first.isoformat()
    if per == "week":
        return f"the week of {first.isoformat()}"
    return _MONTHS[first.month - 1]


_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
