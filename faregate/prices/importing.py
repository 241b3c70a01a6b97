"""`faregate prices import`: what another list publishes beside our prices, and rows appended to a file of your own.

Nothing is written without `--apply`, and what is written is appended: no row of any file is ever changed.
"""

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, cast

from faregate.prices.genai import PACKAGE, NotInstalled, Offer, offers, package_version
from faregate.prices.source import prices_here, say
from pricing.price_changes import Change, changes_between, said_in
from pricing.price_checks import Finding, check_rows
from pricing.price_tables import PriceProblem
from pricing.price_text import row_text
from pricing.published import OWN_ORIGIN, load_book, price_file_of
from pricing.sheet import PriceBook, Sheet, undated

OWN_FILE = "faregate.prices.toml"
_HEADER = """\
# Prices of our own, beside those that come with the program. Rows are added at the end, never changed.

currency = "USD"
"""
_MOST_CHANGES = 8  # of one model, in the lines for a person


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What the list says of a model beside what we have."""

    kind: Literal["new", "changed", "same"]
    provider: str
    model: str  # as it is called here, or will be
    since: str  # the `from` of the row that would be appended
    changes: tuple[Change, ...]
    text: str  # the row
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that the list says, and what the checks say of it."""

    news: tuple[News, ...]
    findings: tuple[Finding, ...]


def run(args: argparse.Namespace) -> int:
    """Compare, print, append if asked to, and give the exit code."""
    prices = prices_here(args)
    if prices is None:
        return 2
    today = datetime.now(UTC).date()
    configured = None if prices.config is None else prices.config.gateway.price_file
    target = Path(args.out or configured or OWN_FILE)
    try:
        version = package_version()
        own = target if target.exists() else None
        book = load_book(own=own)
        found = compare(offers(today), book, today, source=f"{PACKAGE} {version}", only=only_of(args))
    except NotInstalled as wrong:
        return say(str(wrong))
    except PriceProblem as wrong:
        for problem in wrong.problems:
            say(problem)
        return 2
    stops = {"refused"} if args.yes else {"refused", "asked"}
    stopped = {(one.provider, one.model, one.version) for one in found.findings if one.level in stops}
    wanted = [one for one in found.news if one.kind != "same"]
    good = [one for one in wanted if (one.provider, one.model, one.since) not in stopped]
    appended = 0
    if args.apply and good:
        problems = append(target, good)
        if problems:
            for problem in problems:
                say(f"{target}: {problem}")
            return 2
        appended = len(good)
    if args.json:
        print(json.dumps(facts(found, version=version, target=target, appended=appended), ensure_ascii=False))
    else:
        print("\n".join(lines(found, stopped, version=version, target=target, appended=appended)))
        if appended and configured is None:
            print(f'to have it read: price_file = "{target}" under [gateway] in faregate.toml')
    return 1 if stopped or (wanted and not args.apply) else 0


def only_of(args: argparse.Namespace) -> Mapping[str, frozenset[str]]:
    """Which providers and models are asked for; empty: all."""
    return {
        "providers": frozenset(cast("list[str]", args.provider or ())),
        "models": frozenset(cast("list[str]", args.model or ())),
    }


def compare(
    listed: Iterable[Offer],
    book: PriceBook,
    today: date,
    *,
    source: str,
    only: Mapping[str, frozenset[str]] | None = None,
) -> Found:
    """What the list says beside a book, and what is strange about it."""
    only = only or {}
    providers, models = only.get("providers") or None, only.get("models") or None
    news: list[News] = []
    seen: set[tuple[str, str, str]] = set()
    for offer in listed:
        if providers is not None and offer.provider not in providers:
            continue
        if models is not None and models.isdisjoint(offer.names):
            continue
        one = news_of(offer, book.for_provider(offer.provider), today, source=source)
        key = (one.provider, one.model, one.since)
        if key not in seen:  # two entries of the list may be one model of ours
            seen.add(key)
            news.append(one)
    fresh = price_file_of(
        _HEADER + "".join(one.text for one in news if one.kind != "same"), origin=OWN_ORIGIN
    )
    assert not fresh.problems, fresh.problems
    return Found(news=tuple(news), findings=check_rows(fresh.rows, today=today, known=book))


def news_of(offer: Offer, book: PriceBook, today: date, *, source: str) -> News:
    """What one entry of the list says beside the sheet that we have under one of its names."""
    model, sheet = _ours(offer, book)
    day = max(today, offer.since) if offer.since is not None and offer.since > today else today
    row = None if sheet is None else sheet.row_at(datetime(day.year, day.month, day.day, tzinfo=UTC))
    newest = None if sheet is None else sheet.rows[-1].from_
    since = day
    if offer.since is not None and (newest is None or newest.date() < offer.since):
        since = offer.since  # the list knows the day, and we have no row as late as that
    ours = {} if row is None else row.as_table()
    merged = _merged(ours, offer.table)
    changes = changes_between({} if row is None else said_in(ours), said_in(merged))
    text = row_text(
        {**merged, "from": since.isoformat()},
        provider=offer.provider,
        model=model,
        aliases=() if sheet is not None else tuple(name for name in offer.names if name != model),
        source=source if offer.page is None else f"{source} ({offer.page})",
        checked_on=today.isoformat(),
    )
    return News(
        kind="new" if row is None else "changed" if changes else "same",
        provider=offer.provider,
        model=model,
        since=since.isoformat(),
        changes=changes,
        text="\n" + text,
        left_out=offer.left_out,
    )


def append(path: Path, news: Iterable[News]) -> tuple[str, ...]:
    """Add rows at the end of a file, whole or not at all; gives what is wrong with the file that would come of it."""
    before = path.read_text("utf-8") if path.exists() else _HEADER
    after = before + ("" if before.endswith("\n") else "\n") + "".join(one.text for one in news)
    file = price_file_of(after, origin=OWN_ORIGIN)
    if file.problems:
        return file.problems
    half = path.with_name(path.name + ".new")
    half.write_text(after, "utf-8")
    half.replace(path)
    return ()


def facts(found: Found, *, version: str, target: Path, appended: int) -> dict[str, Any]:
    """All of it as plain values."""
    return {
        "list": PACKAGE,
        "version": version,
        "file": str(target),
        "appended": appended,
        "same": sum(one.kind == "same" for one in found.news),
        "news": [
            {
                "kind": one.kind,
                "provider": one.provider,
                "model": one.model,
                "from": one.since,
                "changes": [
                    {"what": change.what, "before": change.before, "after": change.after}
                    for change in one.changes
                ],
                "left_out": list(one.left_out),
                "row": one.text.strip(),
            }
            for one in found.news
            if one.kind != "same"
        ],
        "findings": [
            {
                "level": one.level,
                "provider": one.provider,
                "model": one.model,
                "from": one.version,
                "field": one.field,
                "message": one.message,
            }
            for one in found.findings
        ],
    }


def lines(
    found: Found,
    stopped: set[tuple[str, str, str | None]],
    *,
    version: str,
    target: Path,
    appended: int,
) -> list[str]:
    """The difference, for a person."""
    text: list[str] = []
    for one in found.news:
        if one.kind == "same":
            continue
        mark = "+" if one.kind == "new" else "~"
        held = "  NOT TAKEN, see below" if (one.provider, one.model, one.since) in stopped else ""
        text.append(f"{mark} {one.provider} {one.model} from {one.since}{held}")
        said = [
            f"{change.what} {change.after}" if one.kind == "new" else change.text for change in one.changes
        ]
        text += [f"    {line}" for line in said[:_MOST_CHANGES]]
        if len(said) > _MOST_CHANGES:
            text.append(f"    and {len(said) - _MOST_CHANGES} more")
    if found.findings:
        text.append("")
        text += [
            f"{one.level:8} {one.provider} {one.model} from {one.version}: {one.field} {one.message}"
            for one in found.findings
        ]
    counts = {kind: sum(one.kind == kind for one in found.news) for kind in ("new", "changed", "same")}
    text.append("")
    text.append(
        f"{PACKAGE} {version}: {counts['new']} new, {counts['changed']} changed, {counts['same']} the same"
    )
    if appended:
        text.append(f"{appended} rows appended to {target}")
    elif counts["new"] or counts["changed"]:
        text.append(f"nothing was written; --apply appends the rows to {target}")
    return text


def _ours(offer: Offer, book: PriceBook) -> tuple[str, Sheet | None]:
    """The model that the list means, as we call it, and its sheet; None: we have none."""
    for name in (*offer.names, *(undated(name) for name in offer.names)):
        model = book.model_of(name)
        if model is not None:
            return model, book.sheets[model]
    return offer.names[0], None


def _merged(ours: Mapping[str, Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Our row with what the list says put in. What the list has no word for stays: tiers, places, tools."""
    merged = {key: value for key, value in ours.items() if key not in ("from", "long_context")}
    for key, value in offered.items():
        if key == "service_tiers":
            merged[key] = {**merged.get(key, {}), **value}
        elif key == "windows":
            # The list has no weekdays: where we know better when they are, only rates can be news.
            if not ours.get("windows"):
                merged[key] = value
        elif key in ("rates", "tools"):
            merged[key] = {**merged.get(key, {}), **value}
        else:
            merged[key] = value
    return merged
