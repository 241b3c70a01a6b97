"""Windows, amounts for people, and the words of a refusal."""

from datetime import UTC, datetime

import pytest

from gateway.shared_state import Demand
from gateway.shared_state.limits import (
    BudgetSpec,
    Per,
    Window,
    dollars,
    left_share,
    no_price,
    spent,
    too_fast,
    touches,
    window_of,
)
from pricing.money import PICO_PER_USD, PicoUsd


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("per", "now", "start", "end"),
    [
        ("day", "2026-11-29T23:59:59.999", "2026-11-29", "2026-11-30"),
        ("day", "2026-11-30T00:00:00", "2026-11-30", "2026-12-01"),
        ("week", "2026-11-29T23:59:59", "2026-11-23", "2026-11-30"),
        ("week", "2026-11-30T00:00:00", "2026-11-30", "2026-12-07"),
        ("month", "2026-11-29T12:00:00", "2026-11-01", "2026-12-01"),
        ("month", "2026-12-31T23:59:59.5", "2026-12-01", "2027-01-01"),
        ("month", "2028-02-29T00:00:00", "2028-02-01", "2028-03-01"),
    ],
)
def test_a_window_is_a_calendar_one_in_utc(per: Per, now: str, start: str, end: str) -> None:
    assert window_of(per, at(now)) == Window(start=at(start), end=at(end))


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (2500 * PICO_PER_USD, "$2,500.00"),
        (1_234_567_890_000_000_000, "$1,234,567.89"),
        (732_032_000, "$0.000732"),
        (1_500_000_000_000, "$1.50"),
        (-1_500_000_000_000, "-$1.50"),
    ],
)
def test_amounts_are_written_for_people(amount: int, text: str) -> None:
    assert dollars(amount) == text


SEARCH = BudgetSpec(name="search, monthly", team="search", limit=PicoUsd(2500 * PICO_PER_USD))
NOVEMBER = window_of("month", at("2026-11-29"))


def test_a_spent_budget_says_whose_how_much_and_until_when() -> None:
    refusal = spent(SEARCH, NOVEMBER, spent=2500 * PICO_PER_USD, held=0, worst_case=1)

    assert refusal.code == "budget_exceeded"
    assert refusal.budget == "search, monthly"
    assert refusal.retry_after_seconds is None
    assert refusal.message == (
        'search has spent its $2,500.00 for November (budget "search, monthly"); it opens again on 2026-12-01'
    )


def test_a_budget_with_too_little_left_says_how_little() -> None:
    refusal = spent(SEARCH, NOVEMBER, spent=2499 * PICO_PER_USD, held=0, worst_case=3 * PICO_PER_USD)

    assert refusal.message == (
        'search has $1.00 left of its $2,500.00 for November (budget "search, monthly") and this request may '
        "cost $3.00; ask for less (max_tokens), or it opens again on 2026-12-01"
    )


def test_a_reserved_budget_does_not_claim_to_be_spent() -> None:
    refusal = spent(SEARCH, NOVEMBER, spent=0, held=2500 * PICO_PER_USD, worst_case=1)

    assert "has spent or reserved its $2,500.00" in refusal.message


def test_a_request_without_a_price_names_the_budget_that_wants_one() -> None:
    refusal = no_price(SEARCH)

    assert refusal.code == "unpriced"
    assert 'budget "search, monthly"' in refusal.message
    assert "ceiling_usd_per_mtok" in refusal.message


def demand(tokens: int) -> Demand:
    return Demand(
        request_id="r",
        key_id="k1",
        team="search",
        application=None,
        worst_case=None,
        tokens=tokens,
        requests_per_minute=None,
        tokens_per_minute=None,
    )


def test_a_rate_limit_says_whose_and_how_much() -> None:
    wait = too_fast(demand(5), of="key", what="request", limit=600, wait=1.5)
    never = too_fast(demand(5000), of="team", what="token", limit=1000, wait=None)

    assert (wait.code, wait.message, wait.retry_after_seconds) == (
        "rate_limit_exceeded",
        "key k1 has used its 600 requests a minute",
        1.5,
    )
    assert (never.message, never.retry_after_seconds) == (
        "team search may use 1,000 tokens a minute, and this request alone asks for 5,000",
        None,
    )


@pytest.mark.parametrize(
    ("spec", "touched"),
    [
        (BudgetSpec(name="all", limit=PicoUsd(1)), True),
        (BudgetSpec(name="team", team="search", limit=PicoUsd(1)), True),
        (BudgetSpec(name="other", team="ads", limit=PicoUsd(1)), False),
        (BudgetSpec(name="app", team="search", application="chat", limit=PicoUsd(1)), True),
        (BudgetSpec(name="other app", team="search", application="mail", limit=PicoUsd(1)), False),
        (BudgetSpec(name="key", key="k1", limit=PicoUsd(1)), True),
        (BudgetSpec(name="other key", key="k2", limit=PicoUsd(1)), False),
    ],
)
def test_a_budget_touches_whoever_matches_all_it_names(spec: BudgetSpec, touched: bool) -> None:
    assert touches(spec, team="search", application="chat", key="k1") is touched


def test_the_share_left_is_never_below_nothing() -> None:
    assert [left_share(100, 25, 25), left_share(100, 200, 0), left_share(0, 0, 0)] == [0.5, 0.0, 0.0]
