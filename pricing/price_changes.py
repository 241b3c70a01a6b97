"""What changed in prices: from one row to the next, between two days of a book, between two books."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from pricing.price_row import Row
from pricing.sheet import PriceBook

What = Literal["new", "changed", "gone"]

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that two rows say differently."""

    what: str  # `service_tiers.flex.rates.input`
    before: str | None  # None: the row before does not say it
    after: str | None

    @property
    def text(self) -> str:
        """`rates.input 5 -> 4`."""
        return f"{self.what} {self.before or 'none'} -> {self.after or 'none'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A model, or one of its rows, that two books or two days differ in."""

    kind: What
    provider: str
    model: str
    before: Row | None
    after: Row | None
    changes: tuple[Change, ...]  # what differs; of a new one or one that is gone all that it says


def said_by(row: Row) -> dict[str, str]:
    """All that a row prices by, each by its place; amounts are decimal texts, rates dollars per million tokens."""
    return said_in(row.as_table())


def said_in(table: Mapping[str, Any]) -> dict[str, str]:
    """As `said_by`, for the plain values of a row (`Row.as_table`)."""
    said: dict[str, str] = {}

    def add(place: str, value: object) -> None:
        if isinstance(value, Mapping):
            for name, part in cast("Mapping[str, object]", value).items():
                if name == "long_context" and isinstance(part, Mapping):
                    part = [cast("object", part)]
                add(f"{place}.{name}" if place else name, part)
        elif isinstance(value, list):
            for part in cast("list[dict[str, Any]]", value):
                rest = dict(part)
                if "days" in rest:
                    # Two windows may have one name.
                    name = f"{rest.pop('name')} {rest.pop('from')}-{rest.pop('to')}"
                    said[f"{place}.{name}.days"] = days_text(rest.pop("days"))
                else:
                    # "at 200,000 or above" is "above 199,999": the same price must read the same.
                    inclusive = rest.pop("applies", "above") == "at_or_above"
                    name = f"above {rest.pop('threshold') - inclusive}"
                add(f"{place}.{name}", rest)
        elif value is not None:
            said[place] = str(value)

    add("", {key: value for key, value in table.items() if key != "from"})
    return said


def days_text(days: Iterable[int]) -> str:
    """`Monday to Friday`."""
    listed = sorted(days)
    if listed == list(range(1, 8)):
        return "every day"
    if len(listed) > 2 and listed == list(range(listed[0], listed[-1] + 1)):
        return f"{_DAYS[listed[0] - 1]} to {_DAYS[listed[-1] - 1]}"
    return ", ".join(_DAYS[day - 1] for day in listed)


def changes_between(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """What two rows say differently, in the order of the later one; see `said_by`."""
    places = [*after, *(place for place in before if place not in after)]
    return tuple(
        Change(what=place, before=before.get(place), after=after.get(place))
        for place in places
        if before.get(place) != after.get(place)
    )


def changes_over_time(book: PriceBook, since: datetime, until: datetime) -> tuple[Difference, ...]:
    """What a request of the one moment would have been priced by, and one of the other otherwise."""
    found: list[Difference] = []
    for provider, prices in book.providers.items():
        for model, sheet in prices.sheets.items():
            before, after = sheet.row_at(since), sheet.row_at(until)
            difference = _difference(provider, model, before, after)
            if difference is not None:
                found.append(difference)
    return tuple(found)


def changes_of_books(before: PriceBook, after: PriceBook) -> tuple[Difference, ...]:
    """The rows that only one of two books has, and those that both have with other figures."""
    found: list[Difference] = []
    old, new = _rows_of(before), _rows_of(after)
    for key in sorted({*old, *new}):
        difference = _difference(key[0], key[1], old.get(key), new.get(key))
        if difference is not None:
            found.append(difference)
    return tuple(found)


def _rows_of(book: PriceBook) -> dict[tuple[str, str, str], Row]:
    return {
        (provider, model, row.version or ""): row
        for provider, prices in book.providers.items()
        for model, row in prices.rows()
    }


def _difference(provider: str, model: str, before: Row | None, after: Row | None) -> Difference | None:
    changes = changes_between(
        {} if before is None else said_by(before), {} if after is None else said_by(after)
    )
    if not changes:
        return None
    kind: What = "new" if before is None else "gone" if after is None else "changed"
    return Difference(kind=kind, provider=provider, model=model, before=before, after=after, changes=changes)
