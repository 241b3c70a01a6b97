"""`faregate prices show`: every rate of a model that holds at a moment, and when it changed."""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

from faregate.prices.source import Prices, prices_here, say
from pricing.price_changes import changes_between, days_text, said_by
from pricing.price_checks import decimal_text, usd_per_mtok
from pricing.price_row import Row, Window
from pricing.rates import RATE_NAMES
from pricing.sheet import PriceBook, Sheet, undated

_MOST_NEAR = 5
_MOST_CHANGES = 6  # of one row, in the lines for a person


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The sheet of a model, and whose it is."""

    provider: str
    model: str
    sheet: Sheet
    aliases: tuple[str, ...]
    found_as: str  # the name that was found: as it was asked for, or without a date
    deployment: str | None  # the file's own price of this deployment; None: the book's
    wins_for: tuple[str, ...]  # deployments whose own price wins over this one


def run(args: argparse.Namespace) -> int:
    """Print, and give the exit code."""
    prices = prices_here(args)
    if prices is None:
        return 2
    at = args.at or datetime.now(UTC)
    found = sheets_of(prices, args.model, args.provider)
    if not found:
        return _say_unknown(prices, args.model, args.provider)
    if args.json:
        print(json.dumps([facts(shown, args.model, at) for shown in found], ensure_ascii=False))
    else:
        print("\n\n".join("\n".join(lines(shown, args.model, at)) for shown in found))
    return 0 if any(shown.sheet.row_at(at) is not None for shown in found) else 1


def sheets_of(prices: Prices, name: str, provider: str | None = None) -> list[Shown]:
    """Every sheet that a name finds: the file's own first, then each provider's."""
    found: list[Shown] = []
    config = prices.config
    own: dict[tuple[str, str], list[str]] = {}  # provider and model -> deployments with a price of their own
    if config is not None:
        for deployment in config.policy.deployments.values():
            sheet = _own_sheet(config.books[deployment.name], deployment.model)
            if sheet is None or provider not in (None, deployment.dialect, deployment.provider):
                continue
            model = prices.book.for_provider(deployment.dialect).model_of(deployment.model)
            own.setdefault((deployment.dialect, model or deployment.model), []).append(deployment.name)
            if name in (deployment.name, deployment.model, model) or undated(name) == deployment.model:
                found.append(
                    Shown(
                        provider=deployment.provider,
                        model=deployment.model,
                        sheet=sheet,
                        aliases=(),
                        found_as=deployment.name if name == deployment.name else deployment.model,
                        deployment=deployment.name,
                        wins_for=(),
                    )
                )
        named = config.policy.deployments.get(name)
        if named is not None and not found:
            name, provider = named.model, provider or named.dialect
    for whose, book in prices.book.providers.items():
        if provider not in (None, whose):
            continue
        result = book.find(None, name)
        if result is None:
            continue
        model, sheet = result
        found.append(
            Shown(
                provider=whose,
                model=model,
                sheet=sheet,
                aliases=book.aliases_of(model),
                found_as=name if name in book.names else undated(name),
                deployment=None,
                wins_for=tuple(own.get((whose, model), ())),
            )
        )
    return found


def _own_sheet(book: PriceBook, model: str) -> Sheet | None:
    """The sheet of a deployment if the file gives it a price of its own."""
    found = book.find(None, model)
    if found is None or not any((row.price_id or "").startswith("file:") for row in found[1].rows):
        return None
    return found[1]


def _say_unknown(prices: Prices, name: str, provider: str | None) -> int:
    books = prices.book.providers
    if provider is not None and provider not in books:
        near = get_close_matches(provider, books, 1)
        hint = f"; did you mean {near[0]}?" if near else f": there are {', '.join(sorted(books))}"
        return say(f"no provider {provider} in the price book{hint}")
    names = {
        other: whose for whose, book in books.items() if provider in (None, whose) for other in book.names
    }
    say(f"no price for {name}" + (f" at {provider}" if provider else "") + ": its answers would be unpriced")
    near = get_close_matches(name, names, _MOST_NEAR, 0.5)
    if near:
        say("names that look like it, and whose prices are not its own:")
        for other in near:
            say(f"  {other} ({names[other]})")
    return 1


# ── as plain values ──


def facts(shown: Shown, asked: str, at: datetime) -> dict[str, Any]:
    """All there is to say, as plain values."""
    row = shown.sheet.row_at(at)
    rows = shown.sheet.rows
    place = -1 if row is None else rows.index(row)
    window = None if row is None else _window_at(row, at)
    return {
        "asked": asked,
        "found_as": shown.found_as,
        "provider": shown.provider,
        "model": shown.model,
        "aliases": list(shown.aliases),
        "deployment": shown.deployment,
        "own_price_wins_for": list(shown.wins_for),
        "at": at.isoformat().replace("+00:00", "Z"),
        "price_id": None if row is None else row.price_id,
        "from": None if row is None else row.version,
        "until": rows[place + 1].version if place + 1 < len(rows) else None,
        "source": None if row is None else row.source,
        "checked_on": None if row is None else row.checked_on,
        "window": None if window is None else window.name,
        "row": None if row is None else row.as_table(),
        "rate_sets": None if row is None else dict(rate_sets(row)),
        "history": [
            {
                "from": one.version,
                "price_id": one.price_id,
                "source": one.source,
                "checked_on": one.checked_on,
                "changes": [
                    {"what": change.what, "before": change.before, "after": change.after}
                    for change in changes_between({} if before is None else said_by(before), said_by(one))
                ],
            }
            for before, one in zip((None, *rows), rows, strict=False)
        ],
    }


def rate_sets(row: Row) -> Iterator[tuple[str, dict[str, str]]]:
    """Every set of rates an answer may be priced by, in dollars per million tokens, by how it comes about."""
    services: list[tuple[str, int, bool, str | None]] = [("plain", -1, False, None)]
    for place, window in enumerate(row.windows):
        if all((other.name, other.block) != (window.name, window.block) for other in row.windows[:place]):
            services.append((window.name, place, False, None))
    if row.batch is not None:
        services.append(("batch", -1, True, None))
    services += [(name, -1, False, name) for name in row.tiers]
    for name, window, batch, tier in services:
        for length, step in enumerate((None, *row.steps_of(batch=batch, service_tier=tier))):
            rates = row.rates_of(window=window, batch=batch, service_tier=tier, length=length)
            if step is not None:
                edge = "from" if step.at_or_above else "above"
                label = f"{name}, input {edge} {step.threshold:,}"
            else:
                label = name
            named = {**rates.named, **{f"extra.{kind}": rate for kind, rate in rates.extra.items()}}
            yield label, {kind: decimal_text(usd_per_mtok(rate, rates.scale)) for kind, rate in named.items()}


def _window_at(row: Row, at: datetime) -> Window | None:
    return next((window for window in row.windows if window.holds_at(at)), None)


# ── for a person ──


def lines(shown: Shown, asked: str, at: datetime) -> list[str]:
    """All there is to say."""
    whose = f"faregate.toml: {shown.deployment}" if shown.deployment else shown.provider
    text = [f"{shown.model} ({whose})"]
    if shown.found_as != asked:
        text.append(f"found as {shown.found_as}: {asked} has no price of its own")
    if shown.aliases:
        text.append(f"also: {', '.join(shown.aliases)}")
    if shown.deployment:
        text.append(f"a price of your own: it wins over the book's for {shown.deployment}")
    if shown.wins_for:
        text.append(
            f"not for {', '.join(shown.wins_for)}: faregate.toml gives a price of its own, which wins"
        )
    row = shown.sheet.row_at(at)
    if row is None:
        first = shown.sheet.rows[0].version
        return [*text, "", f"no price on {at:%Y-%m-%d %H:%M} UTC: the earliest is from {first}"]
    text += ["", *_rate_lines(row), ""]
    text += _other_lines(row, at)
    text += [f"price      {row.price_id}", f"source     {row.source or 'not said'}"]
    if row.checked_on:
        text.append(f"checked on {row.checked_on}")
    return [*text, "", *_history(shown.sheet, row)]


def _rate_lines(row: Row) -> list[str]:
    sets = list(rate_sets(row))
    order = (*RATE_NAMES, *sorted({name for _, rates in sets for name in rates if name not in RATE_NAMES}))
    names = [name for name in order if any(name in rates for _, rates in sets)]
    table = [("$ per million tokens", *names)]
    table += [(label, *(rates.get(name, "") for name in names)) for label, rates in sets]
    widths = [max(len(line[at]) for line in table) for at in range(len(names) + 1)]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]


def _other_lines(row: Row, at: datetime) -> list[str]:
    plain = row.as_table()
    text: list[str] = []
    by = "the start of the request" if row.clock == "request_start" else "the end of the answer"
    for window, said in zip(row.windows, plain.get("windows", ()), strict=True):
        now = ", at this moment" if window is _window_at(row, at) else ""
        text.append(f"{window.name}: {days_text(window.days)} {said['from']}-{said['to']} UTC, by {by}{now}")
    multipliers: Mapping[str, str] = plain.get("multipliers", {}).get("inference_geo", {})
    text += [f"tokens that ran in {place}: x {factor}" for place, factor in multipliers.items()]
    if "per_request" in plain:
        text.append(f"${plain['per_request']} a request")
    for key, cases in plain.get("per_request_by", {}).items():
        text += [f"${fee} a request with {key} {case}" for case, fee in cases.items()]
    text += [f"${fee} a use of {tool}" for tool, fee in plain.get("tools", {}).items()]
    if row.provider_cost == "prefer":
        text.append("what the provider itself says it cost is booked")
    elif row.provider_cost == "record":
        text.append("what the provider itself says it cost is kept beside our figure")
    return text


def _history(sheet: Sheet, now: Row) -> list[str]:
    text: list[str] = []
    for before, row in zip((None, *sheet.rows), sheet.rows, strict=False):
        mark = "*" if row is now else " "
        if before is None:
            text.append(f"{mark} from {row.version or 'always'}")
            continue
        changes = [change.text for change in changes_between(said_by(before), said_by(row))]
        more = f", and {len(changes) - _MOST_CHANGES} more" if len(changes) > _MOST_CHANGES else ""
        said = "; ".join(changes[:_MOST_CHANGES]) or "nothing else"
        text.append(f"{mark} from {row.version}: {said}{more}")
    return text
