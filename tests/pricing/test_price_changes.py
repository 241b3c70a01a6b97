"""What changed in prices is said by place, before and after."""

from datetime import UTC, datetime
from typing import Any

from pricing.price_changes import (
    Change,
    changes_between,
    changes_of_books,
    changes_over_time,
    days_text,
    said_by,
)
from pricing.published import load_book
from pricing.sheet import PriceBook, Sheet


def sheet(*rates: tuple[str, str], **more: Any) -> Sheet:
    versions = [{"from": day, "rates": {"input": rate, "output": "9"}} for day, rate in rates]
    return Sheet.from_table({"versions": versions, **more}, name="m", origin="book")


def book(**sheets: Sheet) -> PriceBook:
    return PriceBook({}, providers={"one": PriceBook(sheets)})


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_row_says_everything_by_its_place() -> None:
    full = sheet(
        ("2026-06-01", "2"),
        windows=[
            {
                "name": "peak",
                "days": [1, 2, 3, 4, 5],
                "from": "01:00",
                "to": "04:00",
                "rates": {"input": "4"},
            },
            {"name": "peak", "from": "06:00", "to": "10:00", "rates": {"input": "4"}},
        ],
        service_tiers={
            "flex": {"rates": {"input": "1"}, "long_context": {"threshold": 9, "rates": {"input": "3"}}}
        },
        long_context=[{"threshold": 5, "rates": {"input": "5"}}, {"threshold": 7, "rates": {"input": "6"}}],
        tools={"web_search": "0.01"},
    )
    assert said_by(full.rows[0]) == {
        "rates.input": "2",
        "rates.output": "9",
        "clock": "request_start",
        "windows.peak 01:00-04:00.days": "Monday to Friday",
        "windows.peak 01:00-04:00.rates.input": "4",
        "windows.peak 06:00-10:00.days": "every day",
        "windows.peak 06:00-10:00.rates.input": "4",
        "service_tiers.flex.rates.input": "1",
        "service_tiers.flex.long_context.above 9.rates.input": "3",
        "long_context.above 5.rates.input": "5",
        "long_context.above 7.rates.input": "6",
        "tools.web_search": "0.01",
    }


def test_a_step_that_begins_at_the_same_token_reads_the_same() -> None:
    above, from_ = (
        said_by(
            sheet(
                ("2026-06-01", "2"),
                long_context={"threshold": at, "applies": applies, "rates": {"input": "5"}},
            ).rows[0]
        )
        for at, applies in ((199_999, "above"), (200_000, "at_or_above"))
    )
    assert changes_between(above, from_) == ()


def test_days_are_said_as_a_person_says_them() -> None:
    assert days_text([1, 2, 3, 4, 5, 6, 7]) == "every day"
    assert days_text([5, 4, 3]) == "Wednesday to Friday"
    assert days_text([6, 7]) == "Saturday, Sunday"
    assert days_text([1, 3, 5]) == "Monday, Wednesday, Friday"


def test_changes_are_told_in_the_order_of_the_later_row() -> None:
    before, after = {"b": "1", "a": "1", "c": "3"}, {"a": "2", "b": "1", "d": "4"}
    assert changes_between(before, after) == (
        Change(what="a", before="1", after="2"),
        Change(what="d", before=None, after="4"),
        Change(what="c", before="3", after=None),
    )
    assert [change.text for change in changes_between(before, after)] == [
        "a 1 -> 2",
        "d none -> 4",
        "c 3 -> none",
    ]


def test_between_two_days_a_price_is_new_or_changed_or_the_same() -> None:
    prices = book(
        same=sheet(("2026-01-01", "1"), ("2026-06-15", "1")),
        new=sheet(("2026-06-15", "1")),
        cut=sheet(("2026-01-01", "5"), ("2026-06-15", "4")),
        later=sheet(("2026-01-01", "5"), ("2026-08-01", "4")),
    )
    found = changes_over_time(prices, moment("2026-06-01"), moment("2026-07-01"))
    assert {(one.model, one.kind) for one in found} == {("new", "new"), ("cut", "changed")}
    (cut,) = [one for one in found if one.model == "cut"]
    assert cut.changes == (Change(what="rates.input", before="5", after="4"),)
    assert cut.provider == "one"


def test_between_two_books_rows_are_told_apart_by_model_and_day() -> None:
    before = book(m=sheet(("2026-01-01", "1"), ("2026-02-01", "2")), gone=sheet(("2026-01-01", "1")))
    after = book(m=sheet(("2026-01-01", "1"), ("2026-02-01", "3"), ("2026-03-01", "4")))
    found = changes_of_books(before, after)
    assert [(one.model, one.kind, (one.after or one.before).version) for one in found] == [  # pyright: ignore[reportOptionalMemberAccess]
        ("gone", "gone", "2026-01-01"),
        ("m", "changed", "2026-02-01"),
        ("m", "new", "2026-03-01"),
    ]


def test_a_book_does_not_differ_from_itself() -> None:
    assert changes_of_books(load_book(), load_book()) == ()
