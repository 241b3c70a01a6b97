"""Slips in prices are found, each by its place; what is usual is not."""

from datetime import date
from typing import Any

import pytest

from pricing.price_checks import Finding, check_rows
from pricing.published import BOOK, PriceFile, load_book, price_file_of, read_price_file

TODAY = date(2026, 12, 1)
USUAL = 'input = "2", input_cached = "0.2", output = "10"'


def file(*rows: str, provider: str = "house") -> PriceFile:
    text = f'provider = "{provider}"\ncurrency = "USD"\n' + "".join(rows)
    read = price_file_of(text, origin="book")
    assert read.problems == ()
    return read


def row(rates: str = USUAL, *, from_: str = "2026-06-01", more: str = "", checked: str = "2026-11-30") -> str:
    return (
        f'[[prices]]\nmodel = "m"\nfrom = {from_}\nrates = {{ {rates} }}\n{more}\n'
        f'source = "https://example.com"\nchecked_on = {checked}\n'
    )


def found(*rows: str, provider: str = "house") -> list[Finding]:
    return list(check_rows(file(*rows, provider=provider).rows, today=TODAY))


def said(*rows: str, **more: Any) -> list[tuple[str, str, str]]:
    return [(one.level, one.field, one.message) for one in found(*rows, **more)]


def test_usual_prices_pass() -> None:
    more = """
batch.rates = { input = "1", output = "5" }
service_tiers.flex.rates = { input = "1", output = "5" }
service_tiers.fast.rates = { input = "4", input_cached = "0.4", output = "20" }
long_context = { threshold = 200000, rates = { input = "4", output = "15" } }
windows = [{ name = "night", from = "00:00", to = "06:00", rates = { input = "0.5" } }]
tools.web_search = "0.01"
multipliers.inference_geo.us = "1.1"
"""
    assert found(row(more=more)) == []
    assert found(row('input = "0.1"')) == []  # an embedding


@pytest.mark.parametrize(
    ("rates", "more", "finding"),
    [
        (
            'input = "0.0000025", output = "10"',
            "",
            (
                "refused",
                "rates.input",
                "is 0.0000025 dollars per million tokens: is that per token (2.5 per million)?",
            ),
        ),
        (
            'input = "2", output = "10000"',
            "",
            ("refused", "rates.output", "is 10000 dollars per million tokens: is that per billion?"),
        ),
        ('input = "2", output = "1"', "", ("asked", "rates.output", "is less than rates.input")),
        (
            'input = "2", input_cached = "3", output = "10"',
            "",
            ("asked", "rates.input_cached", "is more than input"),
        ),
        (
            'input = "2", cache_write_5m = "1", output = "10"',
            "",
            ("asked", "rates.input", "is more than cache_write_5m"),
        ),
        (
            'input = "2", cache_write_5m = "4", cache_write_1h = "2.5", output = "10"',
            "",
            ("asked", "rates.cache_write_5m", "is more than cache_write_1h"),
        ),
        (
            'input = "2", input_audio = "4", input_audio_cached = "8", output = "10"',
            "",
            ("asked", "rates.input_audio_cached", "is more than input_audio"),
        ),
        (
            'input = "2", output = "0"',
            "",
            ("asked", "rates.output", "is 0; free = true says that such tokens cost nothing"),
        ),
        (USUAL, 'batch.rates.output = "11"', ("asked", "batch.rates.output", "is more than rates.output")),
        (
            USUAL,
            'service_tiers.flex.rates.input = "3"',
            ("asked", "service_tiers.flex.rates.input", "is more than rates.input"),
        ),
        (
            USUAL,
            'service_tiers.priority.rates.input = "1"',
            ("asked", "service_tiers.priority.rates.input", "is less than rates.input"),
        ),
        (
            USUAL,
            'long_context = { threshold = 9, rates = { output = "9" } }',
            ("asked", "long_context.9.rates.output", "is less than rates.output"),
        ),
        (
            USUAL,
            'windows = [{ name = "w", from = "00:00", to = "06:00", rates = { input_cached = "2.5" } }]',
            ("asked", "windows.w.rates.input_cached", "is more than input"),
        ),
        (
            USUAL,
            'tools.web_search = "10"',
            ("asked", "tools.web_search", "is $10 for one use: is that the price of 1,000?"),
        ),
        (
            USUAL,
            'multipliers.inference_geo.us = "110"',
            ("asked", "multipliers.inference_geo.us", "is not between 0.1 and 10"),
        ),
    ],
)
def test_a_slip_is_found_at_its_place_unless_it_is_confirmed(
    rates: str, more: str, finding: tuple[str, str, str]
) -> None:
    assert said(row(rates, more=more)) == [finding]
    assert said(row(rates, more=f"{more}\nconfirmed = true")) == []


def test_a_free_model_needs_no_other_word() -> None:
    assert found(row('input = "0", output = "0"', more="free = true")) == []


@pytest.mark.parametrize(
    ("new", "is_found"), [("2000", True), ("0.002", True), ("999", False), ("0.003", False)]
)
def test_a_rate_a_thousand_times_the_one_before_is_refused(new: str, is_found: bool) -> None:
    before = row('input = "2", output = "2"')
    after = row(f'input = "2", output = "{new}"', from_="2026-07-01")
    refused = [
        one.field
        for one in found(before, after)
        if one.level == "refused" and "after 2: is the unit right?" in one.message
    ]
    assert refused == (["rates.output"] if is_found else [])
    confirmed = row(f'input = "2", output = "{new}"', from_="2026-07-01", more="confirmed = true")
    assert found(before, confirmed) == []


def test_a_leap_inside_a_block_is_found_too() -> None:
    tier = 'service_tiers.flex.rates = {{ input = "{}", input_cached = "0" }}\nfree = true'
    refused = found(row(more=tier.format("1.5")), row(from_="2026-07-01", more=tier.format("0.0015")))
    assert [(one.level, one.field) for one in refused] == [("refused", "service_tiers.flex.rates.input")]


def test_a_cached_price_that_the_row_before_had_is_missed() -> None:
    assert said(row(), row('input = "2", output = "10"', from_="2026-07-01")) == [
        ("refused", "rates.input_cached", "is missing; the row before it has one")
    ]


def test_where_every_model_caches_a_missing_cached_price_is_asked_for() -> None:
    plain = 'input = "2", output = "10"'
    assert said(row(plain), provider="xai") == [
        ("asked", "rates.input_cached", "is missing; models of xai cache")
    ]
    assert [field for _, field, _ in said(row(plain), provider="anthropic")] == [
        "rates.input_cached",
        "rates.cache_write_5m",
        "rates.cache_write_1h",
    ]
    assert said(row('input = "0.1"'), provider="xai") == []  # an embedding


def test_rows_stand_in_the_order_of_their_days() -> None:
    late = found(row(from_="2026-07-01"), row(from_="2026-06-01"))
    assert [(one.level, one.field) for one in late] == [("refused", "from")]
    assert late[0].text == (
        'prices[1] "m" from 2026-06-01: from is earlier than the row before it (2026-07-01); '
        "rows are added at the end"
    )


def test_a_row_is_compared_with_the_one_before_it_by_day_also_in_another_book() -> None:
    known = load_book()
    text = (
        'currency = "USD"\n[[prices]]\nprovider = "openai"\nmodel = "gpt-5-mini"\nfrom = 2026-12-01\n'
        'rates = { input = "250", input_cached = "25", output = "999" }\n'
        'source = "a list"\nchecked_on = 2026-12-01\n'
    )
    own = price_file_of(text, origin="own")
    assert own.problems == ()
    fields = [one.field for one in check_rows(own.rows, today=TODAY, known=known)]
    assert fields == ["rates.input", "rates.input_cached"]


@pytest.mark.parametrize(
    ("checked", "from_", "expected"),
    [
        ("2026-12-01", "2026-06-01", []),
        ("2026-12-02", "2026-06-01", [("refused", "checked_on")]),
        ("2025-12-01", "2025-06-01", []),
        ("2025-11-30", "2025-06-01", [("noted", "checked_on")]),
        ("2026-11-30", "2020-05-31", [("asked", "from")]),
        ("2026-11-30", "2028-06-01", [("asked", "from")]),
    ],
)
def test_days_that_cannot_be_or_are_long_ago_are_found(
    checked: str, from_: str, expected: list[tuple[str, str]]
) -> None:
    assert [(one.level, one.field) for one in found(row(checked=checked, from_=from_))] == expected


def test_a_price_that_was_superseded_need_not_be_read_again() -> None:
    old = row(checked="2025-01-01", from_="2025-01-01")
    assert found(old, row(from_="2026-07-01")) == []


@pytest.mark.parametrize("name", [path.name for path in sorted(BOOK.glob("*.toml"))])
def test_nothing_in_the_book_is_strange(name: str) -> None:
    read = read_price_file(BOOK / name)
    assert read.problems == ()
    strange = [one.text for one in check_rows(read.rows, today=TODAY) if one.level != "noted"]
    assert strange == []
