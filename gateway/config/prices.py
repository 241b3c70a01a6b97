"""Reads `[[prices]]`: what the built-in book lacks or a contract changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import cast

from gateway.config.problems import nearest, shown
from gateway.config.table import Table, kind_of
from pricing.money import rate_from_usd_per_mtok
from pricing.price_checks import LEAP

RATE_NAMES = (
    "input",
    "input_cached",
    "cache_write_5m",
    "cache_write_1h",
    "input_audio",
    "input_audio_cached",
    "input_image",
    "output",
    "output_reasoning",
    "output_audio",
    "output_image",
)
MOST_PRICES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPrice:
    """One row of `[[prices]]`."""

    deployment: str
    from_: date
    rates: Mapping[str, Decimal]  # dollars per million tokens
    source: str
    confirmed: bool
    number: int  # of its entry in the file, from 0


def read_prices(top: Table, deployments: Mapping[str, object]) -> dict[str, list[OwnPrice]]:
    """The file's own prices by deployment, oldest first."""
    prices: dict[str, list[OwnPrice]] = {}
    rows: list[tuple[Table, OwnPrice]] = []
    for number, table in enumerate(top.listed_tables("prices", label="deployment", most=MOST_PRICES)):
        table.not_yet({"discount": "discounts off the book"})
        deployment = table.names_one_of("deployment", deployments, required=True)
        day = table.day("from", required=True)
        source = table.text("source", required=True)
        currency = table.text("currency")
        if currency is not None and currency != "USD":
            table.problem("currency", f'is "{shown(currency)}"; prices in this file are US dollars')
        confirmed = table.flag("confirmed", default=False)
        rates = _rates(table)
        table.done()
        if deployment is None or day is None or source is None or rates is None:
            continue
        price = OwnPrice(
            deployment=deployment,
            from_=day,
            rates=rates,
            source=source,
            confirmed=confirmed,
            number=number,
        )
        before = prices.setdefault(deployment, [])
        if any(other.from_ == day for other in before):
            table.problem("from", f"is {day}, as is that of another price of it; a change is a later row")
        before.append(price)
        rows.append((table, price))
    for dated in prices.values():
        dated.sort(key=lambda price: price.from_)
    for table, price in rows:
        dated = prices[price.deployment]
        place = dated.index(price)
        if place and not price.confirmed:
            _check_leap(table, dated[place - 1].rates, price.rates)
    return prices


def _rates(table: Table) -> Mapping[str, Decimal] | None:
    free = table.flag("free", default=False)
    value = table.get("rates", required=not free)
    if value is None:
        return dict.fromkeys(("input", "output"), Decimal(0)) if free else None
    if not isinstance(value, dict):
        table.problem("rates", f"must be a table of dollars per million tokens, not {kind_of(value)}")
        return None
    rates: dict[str, Decimal] = {}
    for name, amount in cast("dict[str, object]", value).items():
        path = (*table.path, "rates", name)
        if name not in RATE_NAMES:
            near = nearest(name, RATE_NAMES)
            table.report.problem(
                path, "is unknown" + (f"; did you mean {near}?" if near else ""), table.label
            )
            continue
        rate = _rate(amount, free=free)
        if isinstance(rate, str):
            table.report.problem(path, rate, table.label)
        else:
            rates[name] = rate
    for name in ("input", "output"):
        if name not in value:
            table.problem("rates", f"lack {name}")
    if not table.report.is_bad and "input_cached" not in rates:
        table.warning("rates", "lack input_cached: cached tokens are priced as input, flagged rate_fallback")
    return rates


def _rate(amount: object, *, free: bool) -> Decimal | str:
    """The rate, or what is wrong with it."""
    if isinstance(amount, bool) or not isinstance(amount, str | int | Decimal):
        return f"must be a number or a decimal text, not {kind_of(amount)}"
    try:
        rate = Decimal(amount)
    except InvalidOperation:
        return f'is "{shown(str(amount))}"; it must be a number or a decimal text like "0.25"'
    if not rate.is_finite() or rate < 0:
        return f"is {amount}; a price is never less than nothing"
    if rate == 0 and not free:
        return "is 0; add free = true if such tokens cost nothing"
    try:
        rate_from_usd_per_mtok(rate)
    except ValueError as wrong:
        return f"cannot be kept exactly: {wrong}"
    return rate


def _check_leap(table: Table, old: Mapping[str, Decimal], new: Mapping[str, Decimal]) -> None:
    for name, rate in new.items():
        former = old.get(name)
        if not former or not rate:
            continue
        if rate >= former * LEAP or rate * LEAP <= former:
            message = f"is {rate} after {former}; add confirmed = true if that is meant"
            table.report.problem((*table.path, "rates", name), message, table.label)
