"""The made-up week looks like a week, and its sums are right."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec

from faregate.made_up_week import APPLICATIONS, MODELS, busyness, entries
from pricing.cost import cost_of
from pricing.published import load_book
from pricing.usage import Reading, Usage

NOW = datetime(2026, 11, 29, 15, 30, tzinfo=UTC)  # a Sunday
START_MS = int((NOW - timedelta(days=7)).timestamp() * 1000)
WEEK = list(entries(7, NOW))
ATTEMPTS = [attempt for _, closed in WEEK for attempt in closed.attempts]


def test_the_week_is_the_same_each_time_and_another_for_another_seed() -> None:
    encoder = msgspec.json.Encoder()
    small = [list(entries(seed, NOW, scale=0.02)) for seed in (1, 1, 2)]
    assert encoder.encode(small[0]) == encoder.encode(small[1])
    assert encoder.encode(small[0]) != encoder.encode(small[2])


def test_it_is_about_six_thousand_requests_within_the_seven_days_oldest_first() -> None:
    assert 5_700 < len(WEEK) <= 6_000
    moments = [admitted.admitted_at_ms for admitted, _ in WEEK]
    assert moments == sorted(moments)
    assert moments[0] >= START_MS
    assert max(closed.closed_at_ms for _, closed in WEEK) <= int(NOW.timestamp() * 1000)
    assert len({admitted.id for admitted, _ in WEEK}) == len(WEEK)
    assert all(admitted.id == closed.id for admitted, closed in WEEK)


def test_nothing_of_it_lies_in_the_future_however_busy_now_is() -> None:
    busy = datetime(2026, 11, 25, 13, 30, tzinfo=UTC)
    ends = [closed.closed_at_ms for seed in range(3) for _, closed in entries(seed, busy)]
    assert max(ends) <= int(busy.timestamp() * 1000)


def test_everybody_is_in_it() -> None:
    assert len({admitted.team for admitted, _ in WEEK}) == 5
    assert {admitted.application for admitted, _ in WEEK} == {one.name for one in APPLICATIONS}
    assert len(APPLICATIONS) == 8
    assert {admitted.tier for admitted, _ in WEEK} == {"fast", "standard", "small"}
    assert {attempt.deployment for attempt in ATTEMPTS} == set(MODELS)
    assert len(MODELS) == 5
    assert abs(sum(one.share for one in APPLICATIONS) - 1) < 1e-9


def test_nights_and_weekends_are_quiet_but_for_the_nightly_batch() -> None:
    moments = [
        (datetime.fromtimestamp(admitted.admitted_at_ms / 1000, UTC), admitted.application)
        for admitted, _ in WEEK
    ]
    by_day = Counter(moment.date() for moment, _ in moments if moment.date() not in {NOW.date()})
    assert by_day[(NOW - timedelta(days=1)).date()] < by_day[(NOW - timedelta(days=3)).date()] / 2
    awake = [moment for moment, name in moments if name != "receipts"]
    by_hour = Counter(moment.hour for moment in awake)
    assert by_hour[3] < by_hour[15] / 4
    receipts = Counter(moment.hour for moment, name in moments if name == "receipts")
    assert receipts[2] > 0.9 * sum(receipts.values())
    assert 0 < busyness(NOW) < busyness(NOW - timedelta(days=2)) <= 1


def test_costs_add_up_by_class_by_attempt_and_by_request() -> None:
    for attempt in ATTEMPTS:
        if attempt.cost_pico_usd is None:
            assert "unpriced" in attempt.flags
            assert attempt.price_id is None
            continue
        assert attempt.cost_pico_usd == (
            attempt.cost_input_uncached_pico_usd
            + attempt.cost_input_cached_pico_usd
            + attempt.cost_cache_write_pico_usd
            + attempt.cost_output_pico_usd
        )
    for _, closed in WEEK:
        costs = [attempt.cost_pico_usd for attempt in closed.attempts]
        if None in costs:
            assert closed.cost_pico_usd is None
        else:
            assert closed.cost_pico_usd == sum(cost or 0 for cost in costs)


def test_one_attempt_recomputed_by_hand() -> None:
    attempt = next(a for a in ATTEMPTS if a.deployment == "terra" and a.input_cached and a.cache_write_5m)
    by_hand = attempt.input_uncached * 1_000_000 + attempt.input_cached * 50_000
    by_hand += (attempt.output_text + attempt.output_reasoning) * 5_000_000
    assert attempt.cost_pico_usd == by_hand + attempt.cache_write_5m * 1_250_000
    closed = next(closed for _, closed in WEEK if attempt in closed.attempts)
    assert closed.baseline_pico_usd == attempt.cost_pico_usd


def test_every_priced_attempt_costs_what_the_product_makes_of_it() -> None:
    book = load_book()
    compared = 0
    for attempt in ATTEMPTS:
        if attempt.deployment == "house-8b" or attempt.state == "unbilled":
            continue
        started = datetime.fromtimestamp(attempt.started_at_ms / 1000, UTC)
        usage = Usage(
            input_uncached=attempt.input_uncached,
            input_cached=attempt.input_cached,
            cache_write_5m=attempt.cache_write_5m,
            output_text=attempt.output_text,
            output_reasoning=attempt.output_reasoning,
        )
        cost = cost_of(
            Reading(usage=usage, source="provider", model=attempt.model_answered),
            book.for_provider(attempt.provider),
            requested_model=attempt.model_called,
            started_at=started,
            completed_at=started,
        )
        compared += 1
        assert (cost.total, cost.price_id) == (attempt.cost_pico_usd, attempt.price_id)
        assert (cost.priced_as, cost.rate_set) == (attempt.priced_as, attempt.rate_set)
        assert cost.input_uncached == attempt.cost_input_uncached_pico_usd
        assert cost.input_cached == attempt.cost_input_cached_pico_usd
        assert cost.cache_write == attempt.cost_cache_write_pico_usd
        assert cost.output == attempt.cost_output_pico_usd
    assert compared > 3_000


def test_tokens_are_read_from_caches_and_sessions_grow() -> None:
    cached = sum(attempt.input_cached for attempt in ATTEMPTS)
    total = cached + sum(attempt.input_uncached + attempt.cache_write_5m for attempt in ATTEMPTS)
    assert 0.3 < cached / total < 0.9
    assert all(attempt.input_uncached >= 0 for attempt in ATTEMPTS)
    session = next(admitted.session for admitted, _ in WEEK if admitted.turn == 6)
    sizes = [admitted.input_tokens_estimate for admitted, _ in WEEK if admitted.session == session]
    assert sizes == sorted(sizes)
    assert len(sizes) >= 6


def test_there_is_something_of_everything_that_can_go_wrong_and_not_too_much() -> None:
    states = Counter(closed.state for _, closed in WEEK)
    assert states["answered"] > 0.96 * len(WEEK)
    assert states["failed"] > 5
    assert states["cancelled"] > 20
    assert {attempt.state for attempt in ATTEMPTS} == {"settled", "estimated", "unbilled"}
    estimated = [attempt for attempt in ATTEMPTS if attempt.state == "estimated"]
    assert all(attempt.usage_source == "estimated" and attempt.flags for attempt in estimated)
    assert any("unpriced" in attempt.flags for attempt in ATTEMPTS)
    assert 50 < sum(len(closed.attempts) > 1 for _, closed in WEEK) < 500
    assert any(attempt.failure == "first_token_timeout" for attempt in ATTEMPTS)
    assert all(
        (attempt.cost_pico_usd == 0 and attempt.failure) or attempt.status == 400
        for attempt in ATTEMPTS
        if attempt.state == "unbilled"
    )


def test_a_fallback_starts_after_the_attempt_before_it_and_ends_with_the_request() -> None:
    for admitted, closed in WEEK:
        at_ms = admitted.admitted_at_ms
        for n, attempt in enumerate(closed.attempts, 1):
            assert (attempt.n, attempt.started_at_ms) == (n, at_ms)
            assert attempt.first_byte_ms is None or attempt.first_byte_ms <= attempt.duration_ms
            at_ms += attempt.duration_ms
        assert closed.closed_at_ms == at_ms


def test_the_pages_can_compare_with_the_baseline() -> None:
    served = [closed for _, closed in WEEK if closed.state == "answered"]
    priced = [closed for closed in served if closed.cost_pico_usd is not None]
    spent = sum(closed.cost_pico_usd or 0 for closed in priced)
    baseline = sum(closed.baseline_pico_usd or 0 for closed in priced)
    assert baseline > spent > 10 * 10**12
