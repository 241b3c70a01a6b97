"""Turns the ledger's answers into the numbers that a page shows. Pure: values in, values out.

Sums stay whole pico-dollars to the last step. What a person reads is rounded only by `usd`, `count` and
`percent`; parts are never rounded before they are added, and a negative saving stays negative.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Literal, cast

from ledger.answers import Cost, Day, Share, Sums
from pricing.money import PICO_PER_USD, PicoUsd, usd_text
from pricing.usage import BUCKETS, Usage

TOKEN_CLASSES: Mapping[str, str] = {
    "input_uncached": "uncached input",
    "input_cached": "cached input",
    "cache_write": "cache writes",
    "output": "output",
    "fees": "fees",
}
"""The parts of a cost, as a person reads them, in the order they are shown."""

DOLLARS = "dollar"
"""The form of a column of dollars; `dollar_format` says how many digits its amounts need."""

Choice = Literal["7d", "30d", "month", "last-month", "custom"]

CHOICES: Mapping[Choice, str] = {
    "7d": "Last 7 days",
    "30d": "Last 30 days",
    "month": "This month",
    "last-month": "Last month",
    "custom": "Custom",
}


# Periods


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Some UTC days, and the days they are compared with; `until` is the first that is not in it."""

    since: date
    until: date
    before_since: date
    before_until: date

    @property
    def days(self) -> int:
        """How many."""
        return (self.until - self.since).days

    def text(self, today: date) -> str:
        """What the numbers are about: `2026-11-23 to 2026-11-29, 7 UTC days, today so far included`."""
        last = self.until - timedelta(days=1)
        days = "1 UTC day" if self.days == 1 else f"{self.days} UTC days"
        so_far = ", today so far included" if self.since <= today < self.until else ""
        return f"{_from_to(self.since, last)}, {days}{so_far}"

    def before_text(self) -> str:
        """What they are compared with: `2026-11-16 to 2026-11-22`."""
        return _from_to(self.before_since, self.before_until - timedelta(days=1))


def period_of(choice: Choice, today: date, custom: tuple[date, date] | None = None) -> Period:
    """The period that was chosen, today in it; `custom` gives its first and its last day.

    Days are compared with as many just before them, the month with the same days of the month before, and
    the last month with the one before that.
    """
    tomorrow = today + timedelta(days=1)
    if choice in ("month", "last-month"):
        first = today.replace(day=1)
        before = _month_before(first)
        if choice == "last-month":
            return Period(since=before, until=first, before_since=_month_before(before), before_until=before)
        return Period(
            since=first,
            until=tomorrow,
            before_since=before,
            before_until=min(first, before + (tomorrow - first)),
        )
    since, until = today - timedelta(days=29 if choice == "30d" else 6), tomorrow
    if choice == "custom" and custom is not None:
        since, until = min(custom), max(custom) + timedelta(days=1)
    return Period(since=since, until=until, before_since=since - (until - since), before_until=since)


def _month_before(first: date) -> date:
    return (first - timedelta(days=1)).replace(day=1)


def _from_to(first: date, last: date) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


# Sums


def added(parts: Iterable[Sums]) -> Sums:
    """The sums of everything together."""
    total = Sums(usage=Usage(tools={}, extra={}))
    for part in parts:
        values: dict[str, Any] = {
            field.name: getattr(total, field.name) + getattr(part, field.name)
            for field in fields(Sums)
            if field.name not in ("usage", "cost")
        }
        counts: dict[str, Any] = {
            name: getattr(total.usage, name) + getattr(part.usage, name) for name in BUCKETS
        }
        costs: dict[str, Any] = {
            field.name: getattr(total.cost, field.name) + getattr(part.cost, field.name)
            for field in fields(Cost)
        }
        total = Sums(**values, usage=Usage(**counts, tools={}, extra={}), cost=Cost(**costs))
    return total


def whole_period(days: Sequence[Day], since: date, until: date) -> list[Day]:
    """Every day of a period once, those without a request too."""
    known = {one.day: one.sums for one in days}
    nothing = added(())
    return [
        Day(day=day, sums=known.get(day, nothing))
        for day in (since + timedelta(days=n) for n in range((until - since).days))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLine:
    """One token class of a cost. The lines of a cost add up to it, and their tokens to all tokens."""

    name: str  # a key of TOKEN_CLASSES
    tokens: int | None  # None: it is not counted in tokens
    cost: PicoUsd

    @property
    def label(self) -> str:
        """As a person reads it."""
        return TOKEN_CLASSES[self.name]

    @property
    def usd_per_mtok(self) -> Decimal | None:
        """Dollars per million tokens on average; None: there are none."""
        if not self.tokens:
            return None
        return Decimal(self.cost) / (Decimal(self.tokens) * 1_000_000)


def class_lines(usage: Usage, cost: Cost) -> list[ClassLine]:
    """A cost taken apart; audio and images stand in the class they are billed in."""
    tokens: Mapping[str, int | None] = {
        "input_uncached": usage.input_uncached + usage.input_audio + usage.input_image,
        "input_cached": usage.input_cached + usage.input_audio_cached,
        "cache_write": usage.cache_write_5m + usage.cache_write_1h,
        "output": usage.output_total,
        "fees": None,
    }
    return [ClassLine(name=name, tokens=tokens[name], cost=getattr(cost, name)) for name in TOKEN_CLASSES]


def cache_share(usage: Usage) -> float | None:
    """Which share of all input tokens a cache served, 0 to 1; None: there was no input."""
    if not usage.input_total:
        return None
    return (usage.input_cached + usage.input_audio_cached) / usage.input_total


def share_of(part: int, whole: int) -> float | None:
    """A part, 0 to 1; None: there is nothing to be a part of."""
    return part / whole if whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What the baseline would have cost for the same tokens, less what was paid: an upper bound."""

    amount: PicoUsd  # below 0: it was more expensive than the baseline
    share: float | None  # of the baseline's cost
    compared: int  # requests
    requests: int  # of so many


def savings_of(sums: Sums) -> Savings | None:
    """None: no request has both a cost and a baseline."""
    if not sums.compared:
        return None
    amount = PicoUsd(sums.baseline - sums.compared_cost)
    return Savings(
        amount=amount,
        share=share_of(amount, sums.baseline),
        compared=sums.compared,
        requests=sums.requests,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPart:
    """One piece of a stacked bar. `usd` is only good for its length."""

    day: date
    token_class: str
    order: int
    usd: float
    text: str


def bar_parts(days: Sequence[Day]) -> list[BarPart]:
    """The spend by day and token class, without the pieces that are nothing."""
    return [
        BarPart(
            day=one.day,
            token_class=label,
            order=order,
            usd=amount / PICO_PER_USD,
            text=usd(PicoUsd(amount)),
        )
        for one in days
        for order, (name, label) in enumerate(TOKEN_CLASSES.items())
        if (amount := int(getattr(one.sums.cost, name)))
    ]


def largest(shares: Sequence[Share], most: int) -> tuple[list[Share], Share | None, int]:
    """The first `most`, the rest in one (None: there is none), and how many that rest is."""
    if len(shares) <= most:
        return list(shares), None, 0
    rest = shares[most:]
    return list(shares[:most]), Share(name="", sums=added(one.sums for one in rest)), len(rest)


# Baselines


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What savings are measured against, from a day on."""

    deployment: str
    from_: date
    approved_by: str


def baselines_in(config: str | None) -> list[Baseline]:
    """The baselines of a version of faregate.toml, oldest first; none where it cannot be read."""
    try:
        rows: Any = tomllib.loads(config or "").get("baselines", [])
    except tomllib.TOMLDecodeError:
        return []
    found: list[Baseline] = []
    for row in cast("list[Any]", rows) if isinstance(rows, list) else []:
        match row:
            case {"deployment": str(name), "from": date() as from_}:
                by = row.get("approved_by")
                found.append(Baseline(deployment=name, from_=from_, approved_by=str(by or "nobody named")))
            case _:
                continue
    return sorted(found, key=lambda one: one.from_)


def baseline_text(seen: Sequence[str], known: Sequence[Baseline], until: date) -> str:
    """`terra (from 2026-01-01, approved by finance)`: what the compared requests were compared with."""
    texts: list[str] = []
    for name in seen:
        row = next((one for one in reversed(known) if one.deployment == name and one.from_ < until), None)
        texts.append(name if row is None else f"{name} (from {row.from_}, approved by {row.approved_by})")
    return ", then ".join(texts)


# What a person reads


def usd(amount: PicoUsd | int) -> str:
    """Dollars, rounded for reading: cents from one dollar on, three digits below, whole from 100,000 on."""
    sign = "−" if amount < 0 else ""
    value = abs(Decimal(amount)) / PICO_PER_USD
    if value == 0:
        return "$0.00"
    if value >= 100_000:
        places = 0
    elif value >= 1:
        places = 2
    else:
        places = max(2, min(12, 2 - value.adjusted()))
    rounded = value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
    return f"{sign}${rounded:,f}"


def usd_decimal(amount: PicoUsd | int) -> Decimal:
    """Exact dollars, for a table."""
    return Decimal(usd_text(amount))


def dollar_format(amounts: Iterable[Decimal | None]) -> str:
    """The form of a column of dollars: cents, and more digits where all of it is below a dollar.

    Then the smallest amount still shows three digits, so that what was spent never looks like nothing.
    """
    known = [abs(amount) for amount in amounts if amount]
    if not known or max(known) >= 1:
        return DOLLARS
    places = max(2, min(12, 2 - min(known).adjusted()))
    return DOLLARS if places == 2 else f"$%.{places}f"


def count(number: int) -> str:
    """`1,234,567`."""
    return f"{number:,}"


def short_count(number: int) -> str:
    """`1.23 million`: for tokens in a sentence."""
    for size, word in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:.3g} {word}" if number < 1_000 * size else f"{number // size:,} {word}"
    return count(number)


def percent(share: float | None) -> str:
    """`12.3 %`; a long dash for what is not known; what is neither nothing nor all never looks so."""
    if share is None:
        return "—"
    if share and abs(share) < 0.0005:
        return "< 0.1 %" if share > 0 else "> −0.1 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{100 * share:,.1f} %".replace("-", "−")


def change(now: int, before: int) -> str | None:
    """`+12.3 %`: how much more than before; None: before there was nothing."""
    if not before:
        return None
    share = (now - before) / before
    sign = "+" if share > 0 else ""
    return f"{sign}{percent(share)}" if abs(share) >= 0.0005 else "± 0 %"


def is_comparable(period: Period, first_day: date | None) -> bool:
    """Whether the ledger holds all of the days before; its own first day is not whole."""
    return first_day is not None and first_day < period.before_since


def comparison(now: int, before: int, period: Period, first_day: date | None) -> str:
    """A sentence that compares with the days before, or says why nothing can be compared."""
    if not is_comparable(period, first_day):
        began = "" if first_day is None else f": the ledger begins {first_day}"
        return f"nothing to compare with{began}"
    changed = change(now, before)
    return f"none in {period.before_text()}" if changed is None else f"{changed} on {period.before_text()}"


def ago(moment: datetime, now: datetime) -> str:
    """`3 minutes ago`."""
    seconds = max(0, int((now - moment).total_seconds()))
    for size, word in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            number = seconds // size
            return f"{number} {word}{'' if number == 1 else 's'} ago"
    return "just now"


def plain(text: str) -> str:
    """A name from outside in one visible line: control and direction characters as escapes, at most 300 long."""
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    return shown if len(shown) <= 300 else f"{shown[:299]}…"


def duration(ms: int | None) -> str:
    """`850 ms`, `12.3 s`; a long dash for what is not known."""
    if ms is None:
        return "—"
    return f"{count(ms)} ms" if ms < 1_000 else f"{ms / 1_000:,.1f} s"
