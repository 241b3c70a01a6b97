"""The numbers of a page: parts add up, nothing is clamped, rounding happens last."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.report import (
    TOKEN_CLASSES,
    Baseline,
    added,
    ago,
    bar_parts,
    baseline_text,
    baselines_in,
    cache_share,
    change,
    class_lines,
    comparison,
    dollar_format,
    duration,
    largest,
    percent,
    period_of,
    plain,
    savings_of,
    short_count,
    usd,
    whole_period,
)
from ledger.answers import Cost, Day, Share, Sums
from pricing.money import PICO_PER_USD, PicoUsd
from pricing.usage import BUCKETS, Usage

TODAY = date(2026, 11, 29)
_tokens = st.integers(0, 10**15)
_money = st.integers(0, 10**30).map(PicoUsd)


@st.composite
def sums(draw: st.DrawFn) -> Sums:
    parts = [draw(_money) for _ in TOKEN_CLASSES]
    return Sums(
        requests=draw(_tokens),
        attempts=draw(_tokens),
        compared=draw(st.integers(0, 3)),
        unpriced=draw(_tokens),
        usage=Usage(**{name: draw(_tokens) for name in BUCKETS}, tools={}, extra={}),
        cost=Cost(total=PicoUsd(sum(parts)), **dict(zip(TOKEN_CLASSES, parts, strict=True))),
        compared_cost=draw(_money),
        baseline=draw(_money),
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(sums(), max_size=4))
def test_parts_add_up_to_the_whole_exactly(parts: list[Sums]) -> None:
    whole = added(parts)
    assert whole.cost.total == sum(part.cost.total for part in parts)
    assert whole.usage.input_total == sum(part.usage.input_total for part in parts)
    assert added([added(parts[:2]), added(parts[2:])]) == whole
    lines = class_lines(whole.usage, whole.cost)
    assert sum(line.cost for line in lines) == whole.cost.total
    assert sum(line.tokens or 0 for line in lines) == whole.usage.input_total + whole.usage.output_total


@settings(max_examples=25, deadline=None)
@given(st.lists(sums(), max_size=6), st.integers(0, 4))
def test_the_rest_of_a_long_list_is_not_lost(parts: list[Sums], most: int) -> None:
    shares = [Share(name=f"{n}", sums=one) for n, one in enumerate(parts)]
    first, rest, others = largest(shares, most)
    kept = [*first, *([rest] if rest else [])]
    assert added(one.sums for one in kept) == added(parts)
    assert len(first) + others == len(shares)


@settings(max_examples=25, deadline=None)
@given(sums())
def test_a_saving_is_the_difference_and_never_clamped(one: Sums) -> None:
    saved = savings_of(one)
    assert (saved is None) == (one.compared == 0)
    if saved is not None:
        assert saved.amount + one.compared_cost == one.baseline


def test_every_day_of_a_period_is_shown_once_and_no_other() -> None:
    one = Day(day=date(2026, 11, 24), sums=Sums(requests=3))
    outside = Day(day=date(2026, 11, 26), sums=Sums(requests=9))
    days = whole_period([one, outside], date(2026, 11, 23), date(2026, 11, 26))
    assert [(day.day.day, day.sums.requests) for day in days] == [(23, 0), (24, 3), (25, 0)]


def test_a_bar_has_a_piece_for_each_class_that_cost_something() -> None:
    cost = Cost(total=PicoUsd(3 * PICO_PER_USD), output=PicoUsd(2 * PICO_PER_USD), fees=PicoUsd(PICO_PER_USD))
    pieces = bar_parts([Day(day=TODAY, sums=Sums(cost=cost))])
    assert [(one.token_class, one.usd, one.text) for one in pieces] == [
        ("output", 2.0, "$2.00"),
        ("fees", 1.0, "$1.00"),
    ]


@pytest.mark.parametrize(
    ("choice", "days", "before"),
    [
        ("7d", "2026-11-23 to 2026-11-29, 7 UTC days, today so far included", "2026-11-16 to 2026-11-22"),
        ("30d", "2026-10-31 to 2026-11-29, 30 UTC days, today so far included", "2026-10-01 to 2026-10-30"),
        ("month", "2026-11-01 to 2026-11-29, 29 UTC days, today so far included", "2026-10-01 to 2026-10-29"),
        ("last-month", "2026-10-01 to 2026-10-31, 31 UTC days", "2026-09-01 to 2026-09-30"),
        ("custom", "2026-11-02 to 2026-11-03, 2 UTC days", "2026-10-31 to 2026-11-01"),
    ],
)
def test_a_period_says_its_days_and_those_it_is_compared_with(choice: str, days: str, before: str) -> None:
    custom = (date(2026, 11, 3), date(2026, 11, 2))
    period = period_of(choice, TODAY, custom)  # pyright: ignore[reportArgumentType] - the table is of texts
    assert period.text(TODAY) == days
    assert period.before_text() == before


def test_a_month_is_not_compared_with_days_that_the_month_before_lacks() -> None:
    period = period_of("month", date(2026, 3, 31))
    assert (period.before_since, period.before_until) == (date(2026, 2, 1), date(2026, 3, 1))


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (0, "$0.00"),
        (1, "$0.000000000001"),
        (177_300_000, "$0.000177"),
        (749_200_000_000, "$0.749"),
        (1_005_000_000_000, "$1.00"),
        (-2_500_000_000_000, "−$2.50"),
        (12_345_678_900_000_000, "$12,345.68"),
        (2**70, "$1,180,591,621"),
    ],
)
def test_dollars_are_rounded_for_reading_only(pico: int, text: str) -> None:
    assert usd(pico) == text


@pytest.mark.parametrize(
    ("amounts", "form"),
    [
        ([], "dollar"),
        ([None, "0"], "dollar"),
        (["17.40", "0.000072", None], "dollar"),
        (["1", "0"], "dollar"),
        (["0.98", "0.123"], "$%.3f"),
        (["0.000217", "0", "0.0000068"], "$%.8f"),
        (["-0.000217"], "$%.6f"),
        (["0.000000000001"], "$%.12f"),
    ],
)
def test_a_column_of_less_than_a_dollar_has_digits_for_its_smallest(
    amounts: list[str | None], form: str
) -> None:
    assert dollar_format(None if one is None else Decimal(one) for one in amounts) == form


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "—"),
        (0.0, "0.0 %"),
        (0.0001, "< 0.1 %"),
        (-0.0001, "> −0.1 %"),
        (0.123, "12.3 %"),
        (-2.5, "−250.0 %"),
        (0.99999, "> 99.9 %"),
        (1.0, "100.0 %"),
    ],
)
def test_a_share_never_looks_like_nothing_or_all_unless_it_is(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_a_comparison_says_what_it_compares_with_or_why_it_cannot() -> None:
    period = period_of("7d", TODAY)
    assert comparison(3, 2, period, date(2026, 1, 1)) == "+50.0 % on 2026-11-16 to 2026-11-22"
    assert comparison(3, 0, period, date(2026, 1, 1)) == "none in 2026-11-16 to 2026-11-22"
    # The ledger's first day is not a whole day.
    assert (
        comparison(3, 2, period, date(2026, 11, 16))
        == "nothing to compare with: the ledger begins 2026-11-16"
    )
    assert comparison(0, 0, period, None) == "nothing to compare with"
    assert (change(1, 2), change(2, 2), change(1, 0)) == ("−50.0 %", "± 0 %", None)


def test_cached_audio_is_cached_input_and_no_input_has_no_share() -> None:
    assert cache_share(Usage(input_uncached=50, input_cached=25, input_audio_cached=25)) == 0.5
    assert cache_share(Usage(output_text=9)) is None


def test_baselines_are_read_from_the_file_and_a_broken_file_has_none() -> None:
    text = """
[[baselines]]
deployment = "terra"
from = 2026-01-01
approved_by = "finance"
[[baselines]]
deployment = "terra"
from = 2027-01-01
"""
    known = baselines_in(text)
    assert known[0] == Baseline(deployment="terra", from_=date(2026, 1, 1), approved_by="finance")
    assert (
        baseline_text(("terra", "luna"), known, TODAY)
        == "terra (from 2026-01-01, approved by finance), then luna"
    )
    assert baselines_in("not = [toml") == baselines_in(None) == baselines_in("baselines = 3") == []


def test_a_name_from_outside_is_one_visible_line() -> None:
    assert plain("a\nb\x1b[31m\u202ec") == "a\\nb\\x1b[31m\\u202ec"
    assert plain("<b>日本</b>") == "<b>日本</b>"
    assert len(plain("x" * 10_000)) == 300


def test_words_for_counts_and_times() -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert (short_count(999), short_count(39_460_000)) == ("999", "39.5 million")
    assert ago(now - timedelta(seconds=59), now) == "just now"
    assert ago(now - timedelta(minutes=1), now) == "1 minute ago"
    assert ago(now - timedelta(days=3), now) == "3 days ago"
    assert (duration(None), duration(850), duration(12_345)) == ("—", "850 ms", "12.3 s")
