from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pricing.budget import worst_case, worst_case_at_ms
from pricing.cost import cost_of
from pricing.sheet import PriceBook, Sheet
from pricing.usage import INPUT_BUCKETS, OUTPUT_BUCKETS, Reading, Usage

AT = datetime(2026, 11, 2, 12, tzinfo=UTC)
SHEET: dict[str, Any] = {
    "rates": {
        "input": "1",
        "input_cached": "0.1",
        "cache_write_5m": "1.25",
        "cache_write_1h": "2",
        "output": "4",
    },
    "windows": [{"name": "peak", "from": "13:00", "to": "14:00", "rates": {"output": "8"}}],
    "clock": "response_end",
    "long_context": {"threshold": 1000, "applies": "at_or_above", "rates": {"cache_write_1h": "5"}},
    "service_tiers": {
        "flex": {"rates": {"input": "0.5", "cache_write_1h": "1", "output": "2"}},
        "priority": {"rates": {"output": "9"}, "long_context": {"rates": {"output": "20"}}},
    },
    "multipliers": {"inference_geo": {"us": "1.1"}},
    "per_request_by": {"size": {"low": "0.001", "high": "0.002"}},
}


def most(
    parts: dict[str, Any] | None = None, *, tokens: int = 10, output: int = 10, choices: int = 1, **more: Any
) -> Any:
    table = parts or {"rates": {"input": "1", "output": "4"}}
    return worst_case(Sheet.from_table(table), tokens, output, choices, at=AT, **more)


def test_the_bound_is_input_and_output_of_every_choice() -> None:
    assert most(choices=3) == (10 * 1 + 3 * 10 * 4) * 1_000_000


@pytest.mark.parametrize(
    ("parts", "per_input", "per_output"),
    [
        ({"rates": {"input": "1", "output": "4", "cache_write_1h": "2", "cache_write_5m": "1.25"}}, 2, 4),
        ({"rates": {"input": "1", "output": "4", "output_reasoning": "6"}}, 1, 6),
        ({"rates": {"input": "1", "output": "4", "input_audio": "30", "output_audio": "60"}}, 30, 60),
        (
            {
                "rates": {"input": "1", "output": "4"},
                "long_context": {"threshold": 9, "rates": {"input": "2"}},
            },
            2,
            4,
        ),
        (
            {
                "rates": {"input": "1", "output": "4"},
                "long_context": {"threshold": 10, "rates": {"input": "2"}},
            },
            1,
            4,
        ),
    ],
)
def test_the_dearest_kind_counts(parts: dict[str, Any], per_input: int, per_output: int) -> None:
    assert most(parts) == 10 * (per_input + per_output) * 1_000_000


def test_audio_rates_do_not_count_where_there_can_be_no_audio() -> None:
    parts = {"rates": {"input": "1", "output": "4", "input_audio": "30", "output_audio": "60"}}
    assert most(parts, has_audio=False) == 50 * 1_000_000


def test_a_cheap_tier_may_be_refused_and_auto_may_be_any() -> None:
    assert most(SHEET, service_tier="flex") == most(SHEET)
    assert most(SHEET, service_tier="auto") == most(SHEET, service_tier="priority") > most(SHEET)


def test_what_has_no_price_then_has_no_bound() -> None:
    table = {"versions": [{"from": "2026-12-01", "rates": {"input": "1", "output": "1"}}]}
    assert most(table) is None
    assert most({"rates": {"input": "1"}}) is None


@settings(deadline=None, max_examples=150)
@given(
    given=st.lists(st.integers(0, 400), min_size=7, max_size=7),
    made=st.lists(st.integers(0, 50), min_size=4, max_size=4),
    asked=st.sampled_from([None, "flex", "priority", "default", "auto"]),
    downgraded=st.booleans(),
    minutes=st.integers(0, 180),
    geo=st.sampled_from([None, "us"]),
    size=st.sampled_from(["low", "high"]),
)
def test_no_answer_costs_more_than_its_bound(
    given: list[int],
    made: list[int],
    asked: str | None,
    downgraded: bool,
    minutes: int,
    geo: str | None,
    size: str,
) -> None:
    usage = Usage(
        **dict(zip(INPUT_BUCKETS, given, strict=True)), **dict(zip(OUTPUT_BUCKETS, made, strict=True))
    )
    bound = most(SHEET, tokens=usage.input_total, output=usage.output_total, service_tier=asked)
    cost = cost_of(
        Reading(
            usage=usage,
            source="provider",
            service_tier="default" if downgraded else None,
            inference_geo=geo,
            fee_keys={"size": size},
        ),
        PriceBook.from_tables({"m": SHEET}),
        requested_model="m",
        started_at=AT,
        completed_at=AT + timedelta(minutes=minutes),
        requested_service_tier=asked,
    )
    assert cost.total is not None
    assert cost.total <= bound


def test_a_bound_that_was_worked_out_before_stays_right_at_every_threshold_and_date() -> None:
    later = {"versions": [{"from": "2026-11-03", "rates": {"input": "7", "output": "1"}}]}
    sheet = Sheet.from_table(SHEET).superseded_by(Sheet.from_table(later))
    asked = [
        (tokens, tier, has_audio, at)
        for tokens in (0, 999, 1000, 1001, 999)
        for tier in (None, "flex", "auto", "priority", "made up")
        for has_audio in (False, True)
        for at in (AT, datetime(2026, 11, 2, 23, 59, 59, 999_999, UTC), datetime(2026, 11, 3, tzinfo=UTC))
    ]

    def bound(of: Sheet, tokens: int, tier: str | None, has_audio: bool, at: datetime) -> int | None:
        return worst_case(of, tokens, 10, at=at, service_tier=tier, has_audio=has_audio)

    for each in asked:
        fresh = Sheet.from_table(SHEET).superseded_by(Sheet.from_table(later))
        assert bound(sheet, *each) == bound(fresh, *each), each


PLAIN: dict[str, Any] = {
    "rates": {"input": "1", "input_cached": "0.1", "input_audio": "9", "cache_write_1h": "2", "output": "4"}
}
STEP = {"threshold": 1000, "applies": "at_or_above", "rates": {"input": "5"}}


@settings(max_examples=200, deadline=None)
@given(
    blocks=st.sets(
        st.sampled_from(
            ["windows", "service_tiers", "multipliers", "per_request_by", "step", "above", "fine"]
        )
    ),
    tokens=st.sampled_from([0, 1, 999, 1000, 1001]),
    output=st.integers(0, 3),
    choices=st.integers(1, 3),
    tier=st.sampled_from([None, "flex", "priority", "auto", "made up"]),
    has_audio=st.booleans(),
    later=st.integers(-1, 2),
)
@example(blocks={"service_tiers"}, tokens=9, output=3, choices=1, tier="priority", has_audio=False, later=0)
def test_a_moment_in_milliseconds_changes_no_bound(
    blocks: set[str], tokens: int, output: int, choices: int, tier: str | None, has_audio: bool, later: int
) -> None:
    sheet = PLAIN | {name: SHEET[name] for name in blocks & SHEET.keys()}
    if "service_tiers" in blocks:
        priority = SHEET["service_tiers"]["priority"] | {"long_context": {**STEP, "threshold": 1}}
        sheet["service_tiers"] = SHEET["service_tiers"] | {"priority": priority}
    if "step" in blocks:
        sheet["long_context"] = STEP
    if "above" in blocks:
        sheet["long_context"] = {**STEP, "applies": "above"}
    if "fine" in blocks:
        sheet["rates"] = {**PLAIN["rates"], "output_reasoning": "4.0000001"}
    begins = {"from": "2026-11-02T12:00:00.001Z", "rates": {"input": "3", "input_cached": "1", "output": "8"}}
    prices = Sheet.from_table(sheet).superseded_by(Sheet.from_table({"versions": [begins]}))
    book = PriceBook({"m": prices})
    for moment in (0, later, 0):
        bound = worst_case_at_ms(
            book,
            "m",
            tokens,
            output,
            choices,
            at_ms=int(AT.timestamp()) * 1000 + moment,
            service_tier=tier,
            has_audio=has_audio,
        )
        assert bound == worst_case(
            prices,
            tokens,
            output,
            choices,
            at=AT + timedelta(milliseconds=moment),
            service_tier=tier,
            has_audio=has_audio,
        )


def test_a_model_without_a_sheet_has_no_bound() -> None:
    assert worst_case_at_ms(PriceBook({}), "m", 10, 10, at_ms=0) is None


def test_service_tiers_that_clients_make_up_are_not_remembered() -> None:
    row = Sheet.from_table(SHEET).rows[0]
    plain = row.dearest(input_tokens=1, service_tier=None, has_audio=False)
    assert row.dearest(input_tokens=1, service_tier="made up", has_audio=False) is plain
    assert row.dearest(input_tokens=2, service_tier="made up too", has_audio=False) is plain
