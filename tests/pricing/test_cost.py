"""`expected_cost` below works the README's rules out once more, with exact fractions and without the product's code."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.cost import Cost, TokensCost, cost_at_ms, cost_of, cost_of_input_at_ms, cost_of_tokens
from pricing.money import PicoUsd
from pricing.price_row import Row
from pricing.savings import same_tokens, same_tokens_at_ms
from pricing.sheet import PriceBook, Sheet, moment_of
from pricing.usage import BUCKETS, SIMPLE_BUCKETS, Reading, Usage

MONDAY_NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
PARTS = ("input_uncached", "input_cached", "cache_write", "output", "fees")


def cost(
    usage: Usage | None = None,
    sheet: Mapping[str, Any] | None = None,
    *,
    reading: Mapping[str, Any] | None = None,
    at: datetime = MONDAY_NOON,
    until: datetime | None = None,
    tier: str | None = None,
    batch: bool = False,
) -> Cost:
    usage = usage or Usage(input_uncached=1000, output_text=100)
    fields: dict[str, Any] = {"usage": usage, "source": "provider", **(reading or {})}
    return cost_of(
        Reading(**fields),
        PriceBook.from_tables({"m": sheet or {"rates": {"input": "2.50", "output": "10"}}}, origin="test"),
        requested_model="m",
        started_at=at,
        completed_at=until or at,
        requested_service_tier=tier,
        batch=batch,
    )


def of(counts: dict[str, Any]) -> Usage:
    return Usage(**counts)


def parts_of(priced: Cost) -> int:
    return sum(getattr(priced, part) for part in PARTS)


def test_a_cost_is_tokens_times_rates() -> None:
    assert cost() == Cost(
        total=PicoUsd(1000 * 2_500_000 + 100 * 10_000_000),
        input_uncached=PicoUsd(2_500_000_000),
        output=PicoUsd(1_000_000_000),
        priced_as="m",
        rate_set="base",
        price_id="test:m@always",
    )


def test_the_classes_hold_what_their_names_say() -> None:
    usage = Usage(
        input_uncached=1,
        input_cached=10,
        cache_write_5m=100,
        cache_write_1h=1000,
        input_audio=2,
        input_audio_cached=20,
        input_image=3,
        output_text=1,
        output_reasoning=10,
        output_audio=100,
        output_image=1000,
        tools={"web_search": 2},
        extra={"citation": 5},
    )
    names = ("input", "input_cached", "cache_write_5m", "cache_write_1h", "input_audio", "input_audio_cached")
    names += ("input_image", "output", "output_reasoning", "output_audio", "output_image")
    rates = dict.fromkeys(names, "1")
    priced = cost(
        usage,
        {
            "rates": {**rates, "extra": {"citation": "1"}},
            "tools": {"web_search": "0.000001"},
            "per_request": "1",
        },
    )
    million = 1_000_000
    assert priced.input_uncached == 6 * million
    assert priced.input_cached == 30 * million
    assert priced.cache_write == 1100 * million
    assert priced.output == 1111 * million
    assert priced.fees == 5 * million + 2 * million + 10**12
    assert priced.total == parts_of(priced)
    assert priced.flags == frozenset()


@pytest.mark.parametrize(
    ("bucket", "rates", "rate", "flags"),
    [
        ("input_cached", {}, 1, {"rate_fallback:input_cached"}),
        ("cache_write_5m", {}, 1, {"rate_fallback:cache_write_5m"}),
        ("cache_write_1h", {"cache_write_5m": "3"}, 1, {"rate_fallback:cache_write_1h"}),
        ("input_audio", {}, 1, {"rate_fallback:input_audio"}),
        ("input_audio_cached", {"input_cached": "4"}, 1, {"rate_fallback:input_audio_cached"}),
        ("input_audio_cached", {"input_audio": "5"}, 5, {"rate_fallback:input_audio_cached"}),
        ("input_image", {}, 1, set[str]()),
        ("output_reasoning", {}, 2, set[str]()),
        ("output_image", {}, 2, set[str]()),
        ("output_audio", {}, 2, {"rate_fallback:output_audio"}),
        ("output_audio", {"output_audio": "7"}, 7, set[str]()),
    ],
)
def test_a_missing_rate_falls_back(bucket: str, rates: dict[str, str], rate: int, flags: set[str]) -> None:
    priced = cost(of({bucket: 10}), {"rates": {"input": "1", "output": "2", **rates}})
    assert priced.total == 10 * rate * 1_000_000
    assert priced.flags == flags


def test_a_fallback_is_flagged_only_if_such_tokens_were_used() -> None:
    assert cost().flags == frozenset()


def test_tokens_without_any_rate_are_unpriced() -> None:
    priced = cost(sheet={"rates": {"input": "1"}})
    assert (priced.total, priced.priced_as, priced.flags) == (None, None, {"unpriced"})
    assert cost(Usage(input_uncached=5), {"rates": {"input": "1"}}).total == 5_000_000


def test_a_model_without_a_sheet_is_unpriced() -> None:
    reading = Reading(usage=Usage(input_uncached=1), source="provider", model="other")
    priced = cost_of(
        reading, PriceBook({}), requested_model="m", started_at=MONDAY_NOON, completed_at=MONDAY_NOON
    )
    assert (priced.total, priced.flags, parts_of(priced)) == (None, {"unpriced"}, 0)


@pytest.mark.parametrize("sheet", [None, {"rates": {"input": "1", "output": "1"}, "per_request": "0.5"}])
def test_what_nobody_bills_costs_nothing(sheet: dict[str, Any] | None) -> None:
    priced = cost(Usage(), sheet, reading={"source": "none", "flags": frozenset({"http_error"})})
    assert (priced.total, priced.priced_as, priced.rate_set, priced.flags) == (0, "m", "base", frozenset())
    unknown = cost_of(
        Reading(usage=Usage(), source="none"),
        PriceBook({}),
        requested_model="m",
        started_at=MONDAY_NOON,
        completed_at=MONDAY_NOON,
    )
    assert (unknown.total, unknown.flags) == (0, frozenset())


def test_the_tier_of_the_answer_wins_over_the_one_asked_for() -> None:
    sheet = {
        "rates": {"input": "2", "output": "2"},
        "service_tiers": {"flex": {"rates": {"input": "1", "output": "1"}}},
    }
    assert cost(sheet=sheet, tier="flex").rate_set == "flex"
    assert cost(sheet=sheet, tier="flex", reading={"service_tier": "default"}).rate_set == "base"
    assert cost(sheet=sheet, reading={"service_tier": "flex"}).rate_set == "flex"
    assert cost(sheet=sheet, tier="auto").rate_set == "base"


def test_all_blocks_together_apply_in_their_order() -> None:
    sheet = {
        "rates": {"input": "1", "output": "1", "input_cached": "1"},
        "windows": [
            {
                "name": "peak",
                "days": [1],
                "from": "11:00",
                "to": "13:00",
                "rates": {"input": "2", "output": "2"},
            }
        ],
        "batch": {"rates": {"output": "3"}},
        "service_tiers": {"flex": {"rates": {"input": "4"}}},
        "long_context": {"threshold": 5, "applies": "above", "rates": {"output": "6"}},
    }
    usage = Usage(input_uncached=6, output_text=1)
    priced = cost(usage, sheet, tier="flex", batch=True)
    assert priced.rate_set == "peak+batch+flex+long_context"
    assert priced.total == (6 * 4 + 6) * 1_000_000


def test_a_tiers_own_step_wins_over_the_sheets() -> None:
    sheet = {
        "rates": {"input": "1", "output": "1"},
        "long_context": {"threshold": 5, "rates": {"input": "10"}},
        "service_tiers": {
            "fast": {"rates": {"input": "2"}, "long_context": {"threshold": 50, "rates": {"output": "7"}}}
        },
    }
    assert cost(Usage(input_uncached=6), sheet).rate_set == "long_context"
    assert cost(Usage(input_uncached=6), sheet, tier="fast").rate_set == "fast"
    priced = cost(Usage(input_uncached=51, output_text=1), sheet, tier="fast")
    assert (priced.rate_set, priced.total) == ("fast+long_context", (51 * 2 + 7) * 1_000_000)


@pytest.mark.parametrize("bucket", [bucket for bucket in BUCKETS if not bucket.startswith("output")])
def test_every_kind_of_input_counts_towards_a_long_context(bucket: str) -> None:
    sheet = {
        "rates": {"input": "1", "output": "1"},
        "long_context": {"threshold": 5, "rates": {"input": "2"}},
    }
    assert cost(of({"input_uncached": 3, bucket: 5}), sheet).rate_set == (
        "base" if bucket == "input_uncached" else "long_context"
    )


def test_a_fee_depends_on_a_field_of_the_usage() -> None:
    sheet = {
        "rates": {"input": "0", "output": "0"},
        "per_request_by": {"size": {"low": "0.005", "high": "0.012"}},
    }
    assert cost(sheet=sheet, reading={"fee_keys": {"size": "high"}}).fees == 12_000_000_000
    assert cost(sheet=sheet).fees == 0
    unknown = cost(sheet=sheet, reading={"fee_keys": {"size": "huge"}})
    assert (unknown.fees, unknown.flags) == (0, {"fee_unpriced:size"})


def test_a_tool_without_a_price_is_flagged() -> None:
    usage = Usage(tools={"web_search": 1}, extra={"citation": 3})
    assert cost(usage).flags == {"fee_unpriced:web_search", "fee_unpriced:citation"}
    assert cost(Usage(tools={"web_search": 0})).flags == frozenset()


def test_a_multiplier_touches_tokens_and_no_fees() -> None:
    sheet = {
        "rates": {"input": "1", "output": "1"},
        "multipliers": {"inference_geo": {"us": "1.1"}},
        "per_request": "0.01",
    }
    assert cost(Usage(input_uncached=10), sheet, reading={"inference_geo": "us"}).total == 11_000_000 + 10**10
    assert cost(Usage(input_uncached=10), sheet, reading={"inference_geo": "eu"}).total == 10_000_000 + 10**10


@pytest.mark.parametrize(
    ("tokens", "total", "flags"),
    [(1, 0, {"rounded"}), (2, 1, set[str]()), (3, 2, {"rounded"}), (5, 2, {"rounded"}), (7, 4, {"rounded"})],
)
def test_half_a_pico_dollar_is_rounded_to_the_even_one(tokens: int, total: int, flags: set[str]) -> None:
    priced = cost(Usage(input_uncached=tokens), {"rates": {"input": "0.0000005", "output": "1"}})
    assert (priced.total, priced.flags) == (total, flags)
    assert parts_of(priced) == total


def test_the_providers_own_figure_is_only_recorded_unless_it_is_preferred() -> None:
    sheet = {"rates": {"input": "1", "output": "1"}}
    theirs = {"provider_cost_usd": Decimal("0.5")}
    for setting in (None, "record"):
        priced = cost(sheet={**sheet, **({"provider_cost": setting} if setting else {})}, reading=theirs)
        assert (priced.total, priced.flags) == (1_100_000_000, {"cost_mismatch"})
        assert priced.provider_cost_usd == Decimal("0.5")
    priced = cost(sheet={**sheet, "provider_cost": "prefer"}, reading=theirs)
    assert (priced.total, priced.flags) == (500_000_000_000, {"cost_mismatch", "provider_cost"})
    assert (priced.input_uncached, priced.output) == (454_545_454_545, 45_454_545_455)
    assert parts_of(priced) == priced.total


def test_a_preferred_figure_for_free_tokens_is_a_fee() -> None:
    sheet = {"rates": {"input": "0", "output": "0"}, "provider_cost": "prefer"}
    assert cost(sheet=sheet, reading={"provider_cost_usd": Decimal("0.1")}).fees == 10**11


@pytest.mark.parametrize(
    ("theirs", "mismatch"),
    [("0.0035001", False), ("0.00350010001", True), ("0.0034999", False), ("0.00349989999", True)],
)
def test_a_ten_millionth_of_a_dollar_is_no_mismatch(theirs: str, mismatch: bool) -> None:
    assert ("cost_mismatch" in cost(reading={"provider_cost_usd": Decimal(theirs)}).flags) is mismatch


# ── the same by exact fractions ──

AMOUNTS = st.decimals(min_value=0, max_value=1000, places=6).map(str)
FINE_AMOUNTS = st.one_of(AMOUNTS, st.decimals(min_value=0, max_value=10, places=9).map(str))
COUNTS = st.one_of(st.just(0), st.integers(0, 3_000_000))
NAMES = (
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
FALLS = {
    "input_audio_cached": ("input_audio", "input"),
    **dict.fromkeys(
        ("input_cached", "cache_write_5m", "cache_write_1h", "input_audio", "input_image"), ("input",)
    ),
    **dict.fromkeys(("output_reasoning", "output_audio", "output_image"), ("output",)),
}


def blocks(amounts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(NAMES), amounts, max_size=6)


@st.composite
def sheets(draw: st.DrawFn) -> dict[str, Any]:
    amounts = draw(st.sampled_from([AMOUNTS, FINE_AMOUNTS]))
    sheet: dict[str, Any] = {
        "rates": {"input": draw(amounts), "output": draw(amounts), **draw(blocks(amounts))}
    }
    if draw(st.booleans()):
        sheet["long_context"] = {
            "threshold": draw(st.integers(0, 4_000_000)),
            "applies": draw(st.sampled_from(["above", "at_or_above"])),
            "rates": draw(blocks(amounts)),
        }
    if draw(st.booleans()):
        sheet["batch"] = {"rates": draw(blocks(amounts))}
    if draw(st.booleans()):
        sheet["service_tiers"] = {"flex": {"rates": draw(blocks(amounts))}}
        if "long_context" in sheet and draw(st.booleans()):
            sheet["service_tiers"]["flex"]["long_context"] = {"rates": draw(blocks(amounts))}
    if draw(st.booleans()):
        sheet["windows"] = [
            {
                "name": "night",
                "days": draw(st.lists(st.integers(1, 7), min_size=1, unique=True)),
                "from": f"{draw(st.integers(0, 23)):02}:{draw(st.integers(0, 59)):02}",
                "to": f"{draw(st.integers(0, 23)):02}:{draw(st.integers(0, 59)):02}",
                "rates": draw(blocks(amounts)),
            }
        ]
        sheet["clock"] = draw(st.sampled_from(["request_start", "response_end"]))
    if draw(st.booleans()):
        sheet["tools"] = {"web_search": draw(amounts)}
        sheet["per_request"] = draw(amounts)
    if draw(st.booleans()):
        sheet["multipliers"] = {"inference_geo": {"us": draw(st.sampled_from(["1.1", "0.333", "2"]))}}
    if draw(st.booleans()):
        sheet["provider_cost"] = draw(st.sampled_from(["record", "prefer"]))
    return sheet


def in_window(window: Mapping[str, Any], moment: datetime) -> bool:
    clock = moment.strftime("%H:%M")
    inside = window["from"] <= clock < window["to"]
    if window["from"] >= window["to"]:
        inside = clock >= window["from"] or clock < window["to"]
    return inside and moment.isoweekday() in window["days"]


def expected_cost(
    sheet: Mapping[str, Any],
    usage: Usage,
    *,
    at: datetime,
    until: datetime,
    tier: str | None,
    batch: bool,
    geo: str | None,
) -> tuple[Fraction, str]:
    """Dollars, exactly, and the rate set."""
    rates = dict(sheet["rates"])
    names: list[str] = []
    for window in sheet.get("windows", ()):
        if in_window(window, at if sheet["clock"] == "request_start" else until):
            rates.update(window["rates"])
            names.append(window["name"])
            break
    if batch and "batch" in sheet:
        rates.update(sheet["batch"]["rates"])
        names.append("batch")
    step: dict[str, Any] | None = sheet.get("long_context")
    block = sheet.get("service_tiers", {}).get(tier)
    if block is not None:
        rates.update(block["rates"])
        names.append(str(tier))
        if "long_context" in block:
            step = {**(step or {}), **block["long_context"]}
    if step is not None:
        tokens = sum(getattr(usage, bucket) for bucket in BUCKETS if not bucket.startswith("output"))
        reached = (
            tokens >= step["threshold"] if step["applies"] == "at_or_above" else tokens > step["threshold"]
        )
        if reached:
            rates.update(step["rates"])
            names.append("long_context")
    total = Fraction(0)
    for bucket, name in zip(BUCKETS, NAMES, strict=True):
        rate = next(rates[one] for one in (name, *FALLS.get(name, ())) if one in rates)
        total += getattr(usage, bucket) * Fraction(rate) / 1_000_000
    total *= Fraction(sheet.get("multipliers", {}).get("inference_geo", {}).get(geo, "1"))
    for tool, count in usage.tools.items():
        total += count * Fraction(sheet.get("tools", {}).get(tool, "0"))
    return total + Fraction(sheet.get("per_request", "0")), "+".join(names) or "base"


@settings(max_examples=150, deadline=None)
@given(
    sheet=sheets(),
    counts=st.lists(COUNTS, min_size=11, max_size=11),
    searches=st.integers(0, 3),
    minutes=st.integers(0, 14 * 24 * 60),
    lasted=st.integers(0, 600),
    tier=st.sampled_from([None, "flex", "auto"]),
    batch=st.booleans(),
    geo=st.sampled_from([None, "us", "eu"]),
    theirs=st.one_of(st.none(), st.decimals(min_value=0, max_value=1000, places=15)),
)
def test_every_cost_equals_an_exact_computation(
    sheet: dict[str, Any],
    counts: list[int],
    searches: int,
    minutes: int,
    lasted: int,
    tier: str | None,
    batch: bool,
    geo: str | None,
    theirs: Decimal | None,
) -> None:
    usage = Usage(
        **dict(zip(BUCKETS, counts, strict=True)), tools={"web_search": searches} if searches else {}
    )
    at = MONDAY_NOON + timedelta(minutes=minutes)
    until = at + timedelta(minutes=lasted)
    priced = cost(
        usage,
        sheet,
        reading={"inference_geo": geo, "provider_cost_usd": theirs},
        at=at,
        until=until,
        tier=tier,
        batch=batch,
    )
    exact, rate_set = expected_cost(sheet, usage, at=at, until=until, tier=tier, batch=batch, geo=geo)
    assert priced.rate_set == rate_set
    if theirs is not None:
        assert ("cost_mismatch" in priced.flags) == (abs(Fraction(theirs) - exact) > Fraction(1, 10**7))
        if sheet.get("provider_cost") == "prefer":
            exact = Fraction(theirs)
            assert "provider_cost" in priced.flags
    assert priced.total == round(exact * 10**12)  # a Fraction is rounded half to even
    assert ("rounded" in priced.flags) == ((exact * 10**12).denominator != 1)
    assert parts_of(priced) == priced.total
    assert all(getattr(priced, part) >= 0 for part in PARTS)


@given(a=st.lists(COUNTS, min_size=11, max_size=11), b=st.lists(COUNTS, min_size=11, max_size=11))
def test_a_cost_is_additive(a: list[int], b: list[int]) -> None:
    def of(counts: list[int]) -> int:
        total = cost(Usage(**dict(zip(BUCKETS, counts, strict=True)))).total
        assert total is not None
        return total

    assert of(a) + of(b) == of([x + y for x, y in zip(a, b, strict=True)])


SIMPLE_COUNTS = st.fixed_dictionaries({bucket: st.integers(0, 3) for bucket in BUCKETS[:2] + BUCKETS[7:9]})
STEPPED: dict[str, Any] = {
    "rates": {"input": "1", "input_cached": "0.1", "output": "4", "output_reasoning": "6"},
    "long_context": {"threshold": 4, "rates": {"input": "2"}},
    "service_tiers": {"flex": {"rates": {"output": "3"}}},
}


@settings(deadline=None)
@given(counts=SIMPLE_COUNTS, tier=st.sampled_from([None, "flex", "other"]))
def test_a_simple_answer_costs_what_the_long_way_round_says(counts: dict[str, int], tier: str | None) -> None:
    # A fee of nothing changes no amount, but such a sheet is not a simple one.
    long_way = {**STEPPED, "per_request_by": {"search_context_size": {"low": "0"}}}
    assert cost(of(counts), STEPPED, tier=tier) == cost(of(counts), long_way, tier=tier)


@settings(deadline=None)
@given(counts=SIMPLE_COUNTS, written=st.integers(0, 1), searches=st.integers(0, 1))
@pytest.mark.parametrize("sheet", [STEPPED, {**STEPPED, "per_request": "0.01"}, {"rates": {"output": "1"}}])
def test_tokens_alone_cost_what_an_answer_with_them_does(
    sheet: dict[str, Any], counts: dict[str, int], written: int, searches: int
) -> None:
    usage = of({**counts, "cache_write_5m": written})
    with_tools = of({**counts, "cache_write_5m": written, "tools": {"web_search": searches}})
    book = PriceBook.from_tables({"m": sheet}, origin="test")
    found = cost_of_tokens(with_tools, book, model="m", at=MONDAY_NOON)
    priced = cost(usage, sheet)
    assert (found.total, found.price_id) == (priced.total, priced.price_id)


# ── moments in milliseconds ──

NOON_MS = 1_793_620_800_000


def test_an_answer_of_the_usual_kind_has_the_cost_that_its_tokens_have() -> None:
    book = PriceBook.from_tables({"m": STEPPED}, origin="test")
    usage = Usage(input_uncached=1, input_cached=2, output_text=3, output_reasoning=4)
    priced = cost_at_ms(
        Reading(usage=usage, source="provider", model="m-2026-08-06", is_plain=True),
        book,
        requested_model="m",
        started_ms=NOON_MS,
        completed_ms=NOON_MS + 1,
    )
    assert priced == Cost(
        total=PicoUsd(1_000_000 + 200_000 + 12_000_000 + 24_000_000),
        input_uncached=PicoUsd(1_000_000),
        input_cached=PicoUsd(200_000),
        output=PicoUsd(36_000_000),
        priced_as="m",
        rate_set="base",
        price_id="test:m@always",
    )
    assert cost_of_input_at_ms(4, book, model="m", at_ms=NOON_MS) == TokensCost(
        total=PicoUsd(4_000_000), price_id="test:m@always"
    )
    assert cost_of_input_at_ms(5, book, model="m", at_ms=NOON_MS).total == 10_000_000


@st.composite
def dated_sheets(draw: st.DrawFn) -> list[tuple[datetime | None, dict[str, Any]]]:
    """The rows of a sheet: since when, and its table. A second one may begin in the middle of a millisecond."""
    first = (draw(st.sampled_from([None, MONDAY_NOON])), draw(sheets()))
    later = draw(st.sampled_from([None, 500, 1000, 3000]))
    if later is None:
        return [first]
    return [first, (MONDAY_NOON + timedelta(microseconds=later), draw(sheets()))]


def dated_book(tables: Mapping[str, list[tuple[datetime | None, dict[str, Any]]]]) -> PriceBook:
    def row(from_: datetime | None, table: dict[str, Any]) -> Row:
        only = Sheet.from_table(table).rows[0]
        return replace(only, from_=from_, version=str(from_), price_id=str(from_))

    return PriceBook({name: Sheet(name, [row(*each) for each in rows]) for name, rows in tables.items()})


SMALL = st.one_of(st.just(0), st.integers(0, 3_000_000))


@settings(max_examples=200, deadline=None)
@given(
    tables=st.fixed_dictionaries({"m": dated_sheets()}, optional={"n": dated_sheets()}),
    counts=st.lists(SMALL, min_size=11, max_size=11),
    is_simple=st.integers(0, 3),
    source=st.sampled_from(["provider", "provider", "provider", "none"]),
    answered=st.sampled_from([None, "m", "n", "n-2026-01-01", "other"]),
    moments=st.lists(st.integers(-1, 4), min_size=1, max_size=4),
    lasted=st.integers(0, 600_000),
    tiers=st.tuples(*[st.sampled_from([None, None, "flex", "default", "auto"])] * 2),
    geo=st.sampled_from([None, None, "us", "eu"]),
    theirs=st.one_of(st.none(), st.none(), st.decimals(min_value=0, max_value=1000, places=15)),
)
def test_a_moment_in_milliseconds_changes_no_cost(
    tables: dict[str, list[tuple[datetime | None, dict[str, Any]]]],
    counts: list[int],
    is_simple: int,
    source: Any,
    answered: str | None,
    moments: list[int],
    lasted: int,
    tiers: tuple[str | None, str | None],
    geo: str | None,
    theirs: Decimal | None,
) -> None:
    book, fresh = dated_book(tables), dated_book(tables)
    used = zip(BUCKETS, counts, strict=True)
    usage = of({name: count for name, count in used if name in SIMPLE_BUCKETS or not is_simple})
    reading = Reading(
        usage=usage,
        source=source,
        model=answered,
        service_tier=tiers[0],
        inference_geo=geo,
        provider_cost_usd=theirs,
        is_plain=usage.is_simple and source == "provider" and geo is None and theirs is None,
    )
    for moment in moments:  # what a book keeps at hand of one moment must not hold for another
        at_ms = NOON_MS + moment
        at = MONDAY_NOON + timedelta(milliseconds=moment)
        assert moment_of(at_ms) == at
        assert cost_at_ms(
            reading,
            book,
            requested_model="m",
            started_ms=at_ms,
            completed_ms=at_ms + lasted,
            requested_service_tier=tiers[1],
        ) == cost_of(
            reading,
            fresh,
            requested_model="m",
            started_at=at,
            completed_at=at + timedelta(milliseconds=lasted),
            requested_service_tier=tiers[1],
        )
        for model in ("m", "n"):
            elsewhere = same_tokens_at_ms(reading, book, model=model, at_ms=at_ms)
            assert elsewhere == same_tokens(usage, fresh, model=model, at=at)
            given_tokens = cost_of_input_at_ms(counts[0], book, model=model, at_ms=at_ms)
            assert given_tokens == cost_of_tokens(Usage(input_uncached=counts[0]), fresh, model=model, at=at)


@pytest.mark.parametrize(("cached", "flags"), [(0, set[str]()), (1, {"rate_fallback:input_cached"})])
def test_a_fallback_is_flagged_in_a_plain_answer_too(cached: int, flags: set[str]) -> None:
    reading = Reading(
        usage=Usage(input_uncached=1, input_cached=cached, output_text=1), source="provider", is_plain=True
    )
    book = PriceBook.from_tables({"m": {"rates": {"input": "1", "output": "2"}}})
    priced = cost_at_ms(reading, book, requested_model="m", started_ms=NOON_MS, completed_ms=NOON_MS)
    assert (priced.total, priced.flags) == ((3 + cached) * 1_000_000, flags)
    assert same_tokens_at_ms(reading, book, model="m", at_ms=NOON_MS) == (3 + cached) * 1_000_000


@settings(deadline=None)
@given(counts=SIMPLE_COUNTS, tier=st.sampled_from([None, "flex", "other"]))
def test_at_every_threshold_a_plain_answer_costs_what_any_other_does(
    counts: dict[str, int], tier: str | None
) -> None:
    for applies in ("above", "at_or_above"):
        book = PriceBook.from_tables(
            {"m": {**STEPPED, "long_context": {**STEPPED["long_context"], "applies": applies}}}
        )
        plain, other = (
            cost_at_ms(
                Reading(usage=of(counts), source="provider", service_tier=tier, is_plain=is_plain),
                book,
                requested_model="m",
                started_ms=NOON_MS,
                completed_ms=NOON_MS,
            )
            for is_plain in (True, False)
        )
        assert plain == other
