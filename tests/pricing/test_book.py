"""The shipped book of prices: every row is exact, told apart by date, and traced to where it was read."""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from pricing.money import rate_from_usd_per_mtok
from pricing.price_row import Row
from pricing.published import load_book
from pricing.rates import Rates
from pricing.sheet import PriceBook

BOOK = Path(__file__).parents[2] / "pricing" / "book"
FILES = sorted(BOOK.glob("*.toml"))
RATES = {
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
    "extra",
}
ROW_KEYS = {
    "model",
    "aliases",
    "from",
    "rates",
    "clock",
    "windows",
    "batch",
    "service_tiers",
    "long_context",
    "multipliers",
    "per_request",
    "per_request_by",
    "tools",
    "provider_cost",
    "free",
    "confirmed",
    "source",
    "checked_on",
}
Table = Mapping[str, Any]

each_file = pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])


def table_of(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(), parse_float=Decimal)


def rows_of(file: Path) -> list[Table]:
    return cast("list[Table]", table_of(file)["prices"])


def label(row: Table) -> str:
    return f"{row['model']}@{row['from']}"


def blocks(row: Table) -> Iterator[tuple[str, Table]]:
    """Every table of rates in a row, with the name of the block it belongs to."""
    yield "base", row["rates"]
    for window in row.get("windows", []):
        yield f"window {window['name']}", window["rates"]
    if "batch" in row:
        yield "batch", row["batch"]["rates"]
    if "long_context" in row:
        yield "long_context", row["long_context"]["rates"]
    for name, tier in row.get("service_tiers", {}).items():
        yield f"tier {name}", tier["rates"]
        if "long_context" in tier:
            yield f"tier {name}, long_context", tier["long_context"]["rates"]


def amounts(table: Table) -> Iterator[tuple[str, str]]:
    """Each rate of one block, those of `extra` too."""
    for name, price in table.items():
        if name == "extra":
            yield from cast("Table", price).items()
        else:
            yield name, price


def fees(row: Table) -> Iterator[str]:
    if "per_request" in row:
        yield row["per_request"]
    for by_value in row.get("per_request_by", {}).values():
        yield from by_value.values()
    yield from row.get("tools", {}).values()
    for by_value in row.get("multipliers", {}).values():
        yield from by_value.values()


def moment(value: date | datetime) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)


def test_the_book_covers_the_providers_it_promises() -> None:
    assert {file.stem for file in FILES} == {
        "anthropic",
        "deepseek",
        "fireworks",
        "gemini",
        "groq",
        "mistral",
        "moonshot",
        "openai",
        "openrouter",
        "perplexity",
        "qwen",
        "together",
        "xai",
    }


@each_file
def test_a_file_is_one_provider_in_dollars(file: Path) -> None:
    table = table_of(file)

    assert table.keys() == {"provider", "currency", "prices"}
    assert table["provider"] == file.stem
    assert table["currency"] == "USD"


@each_file
def test_a_row_has_known_keys_only(file: Path) -> None:
    unknown = [(label(row), key) for row in rows_of(file) for key in row.keys() - ROW_KEYS]
    unknown += [
        (label(row), key) for row in rows_of(file) for _, table in blocks(row) for key in table.keys() - RATES
    ]

    assert unknown == []


@each_file
def test_a_row_tells_where_and_when_it_was_read(file: Path) -> None:
    today = datetime.now(UTC).date()
    for row in rows_of(file):
        assert str(row["source"]).startswith("https://"), label(row)
        assert type(row["checked_on"]) is date, label(row)
        assert row["checked_on"] <= today, label(row)


@each_file
def test_a_row_begins_at_a_day_or_an_instant_with_a_zone(file: Path) -> None:
    for row in rows_of(file):
        assert isinstance(row["from"], date), label(row)
        assert moment(row["from"]).tzinfo is not None, label(row)


@each_file
def test_a_price_is_decimal_text_that_is_exact_in_pico_dollars(file: Path) -> None:
    for row in rows_of(file):
        for block, table in blocks(row):
            for name, price in amounts(table):
                where = f"{label(row)}, {block}, {name}"
                assert isinstance(price, str), where
                assert rate_from_usd_per_mtok(Decimal(price)) >= 0, where
        for fee in fees(row):
            assert isinstance(fee, str), label(row)
            assert Decimal(fee) > 0, label(row)


@each_file
def test_a_chat_price_has_input_and_output(file: Path) -> None:
    lacking = [label(row) for row in rows_of(file) if not {"input", "output"} <= row["rates"].keys()]

    assert lacking == []


@each_file
def test_cached_input_never_costs_more_than_fresh_input(file: Path) -> None:
    for row in rows_of(file):
        for block, table in blocks(row):
            fresh = table.get("input", row["rates"]["input"])
            if "input_cached" in table:
                assert Decimal(table["input_cached"]) <= Decimal(fresh), f"{label(row)}, {block}"
            if "input_audio_cached" in table:
                assert Decimal(table["input_audio_cached"]) <= Decimal(table["input_audio"]), (
                    f"{label(row)}, {block}"
                )


@each_file
def test_a_long_request_never_costs_less_per_token(file: Path) -> None:
    for row in rows_of(file):
        for name, price in amounts(row.get("long_context", {}).get("rates", {})):
            assert Decimal(price) >= Decimal(row["rates"][name]), f"{label(row)}, {name}"


@each_file
def test_a_model_has_one_row_per_beginning(file: Path) -> None:
    beginnings = Counter((row["model"], moment(row["from"])) for row in rows_of(file))

    assert [key for key, count in beginnings.items() if count > 1] == []


@each_file
def test_rows_of_a_model_stand_together_in_order(file: Path) -> None:
    rows = rows_of(file)
    models = [row["model"] for row in rows]
    for model in dict.fromkeys(models):
        places = [place for place, other in enumerate(models) if other == model]
        since = [moment(rows[place]["from"]) for place in places]
        assert places == list(range(places[0], places[0] + len(places))), model
        assert since == sorted(since), model


@each_file
def test_a_name_means_one_model_of_a_provider(file: Path) -> None:
    means: dict[str, set[str]] = {}
    for row in rows_of(file):
        for name in (row["model"], *row.get("aliases", [])):
            means.setdefault(name, set()).add(row["model"])

    assert {name: models for name, models in means.items() if len(models) > 1} == {}


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return load_book()


def row_for(book: PriceBook, provider: str, name: str, at: str) -> Row:
    found = book.for_provider(provider).find(name, name)
    assert found is not None, f"{provider}/{name}"
    row = found[1].row_at(datetime.fromisoformat(at))
    assert row is not None, f"{provider}/{name} at {at}"
    return row


def rates_for(
    book: PriceBook, provider: str, name: str, at: str, *, tier: str | None = None, input_tokens: int = 1_000
) -> Rates:
    moment = datetime.fromisoformat(at)
    return row_for(book, provider, name, at).rates_for(
        started_at=moment, completed_at=moment, batch=False, service_tier=tier, input_tokens=input_tokens
    )


def dollars(rates: Rates, name: str) -> Decimal:
    """A rate of whole pico-dollars, back in dollars per million tokens."""
    assert rates.scale == 1
    return Decimal(rates.named[name]) / 1_000_000


def test_the_program_loads_every_file_without_a_problem(book: PriceBook) -> None:
    assert set(book.providers) == {file.stem for file in FILES}
    for file in FILES:
        names = {name for row in rows_of(file) for name in (row["model"], *row.get("aliases", []))}
        assert book.for_provider(file.stem).names == names


@pytest.mark.parametrize(
    ("provider", "name", "at", "version", "fresh", "output"),
    [
        ("anthropic", "claude-haiku-4-5-20251001", "2026-11-29T00:00:00Z", "2025-10-01", "1", "5"),
        ("deepseek", "deepseek-chat", "2026-03-03T12:00:00Z", "2025-12-09", "0.28", "0.42"),
        (
            "fireworks",
            "accounts/fireworks/models/kimi-k2p6",
            "2026-11-29T00:00:00Z",
            "2026-07-30",
            "0.95",
            "4",
        ),
        ("gemini", "gemini-4-argon", "2026-11-30T23:59:59Z", "2026-10-13", "2", "10"),
        ("gemini", "gemini-4-argon", "2026-12-01T00:00:00Z", "2026-12-01", "4", "20"),
        ("groq", "openai/gpt-oss-120b", "2026-11-29T00:00:00Z", "2026-08-05", "0.15", "0.6"),
        ("mistral", "mistral-large-4", "2026-10-19T23:59:59Z", "2026-10-06", "0.68", "2.09"),
        ("mistral", "mistral-large-4", "2026-10-20T00:00:00Z", "2026-10-20", "1.36", "4.18"),
        ("moonshot", "kimi-k3", "2026-11-29T00:00:00Z", "2026-07-18", "3", "15"),
        ("openai", "gpt-5.6-luna", "2026-07-29T23:59:59Z", "2026-07-09", "1", "6"),
        ("openai", "gpt-5.6-luna", "2026-07-30T00:00:00Z", "2026-07-30", "0.2", "1.2"),
        ("openai", "gpt-5.6", "2026-08-21T00:00:00Z", "2026-08-21", "4", "20"),
        ("openai", "gpt-5-mini-2025-08-07", "2026-11-29T00:00:00Z", "2025-08-07", "0.25", "2"),
        ("openai", "gpt-4o-2024-05-13", "2026-01-01T00:00:00Z", "2024-05-13", "5", "15"),
        ("openai", "gpt-4o-2024-11-20", "2026-01-01T00:00:00Z", "2025-07-04", "2.5", "10"),
        ("openrouter", "anthropic/claude-sonnet-5", "2026-11-29T00:00:00Z", "2026-08-05", "2", "10"),
        ("perplexity", "sonar-pro", "2026-11-29T00:00:00Z", "2025-04-18", "3", "15"),
        ("qwen", "qwen3.7-plus", "2026-11-29T00:00:00Z", "2026-06-04", "0.4", "1.6"),
        ("together", "openai/gpt-oss-20b", "2026-11-29T00:00:00Z", "2026-08-05", "0.05", "0.2"),
        ("xai", "grok-4.7", "2026-11-29T00:00:00Z", "2026-09-21", "2", "6"),
    ],
)
def test_a_price_is_found_by_name_and_date(
    book: PriceBook, provider: str, name: str, at: str, version: str, fresh: str, output: str
) -> None:
    row = row_for(book, provider, name, at)
    rates = rates_for(book, provider, name, at)

    assert row.version == version
    assert dollars(rates, "input") == Decimal(fresh)
    assert dollars(rates, "output") == Decimal(output)


def test_a_model_is_unpriced_before_its_first_row(book: PriceBook) -> None:
    found = book.for_provider("openai").find("gpt-6.2-sol", "gpt-6.2-sol")

    assert found is not None
    assert found[1].row_at(datetime(2026, 11, 16, 23, 59, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("at", "rate_set", "fresh"),
    [
        ("2026-08-16T15:59:59Z", "base", "0.435"),
        ("2026-08-16T16:00:00Z", "base", "0.66"),
        ("2026-08-17T01:00:00Z", "peak", "1.32"),
        ("2026-08-22T09:59:59Z", "peak", "1.32"),  # the last Saturday with a peak
        ("2026-08-23T09:00:00Z", "base", "0.66"),
        ("2026-11-27T04:00:00Z", "base", "0.66"),
        ("2026-11-27T06:00:00Z", "peak", "1.32"),
        ("2026-11-28T06:00:00Z", "base", "0.66"),
    ],
)
def test_deepseek_costs_twice_as_much_at_its_peak(
    book: PriceBook, at: str, rate_set: str, fresh: str
) -> None:
    rates = rates_for(book, "deepseek", "deepseek-v4-pro", at)

    assert rates.rate_set == rate_set
    assert dollars(rates, "input") == Decimal(fresh)


@pytest.mark.parametrize(
    ("provider", "name", "tier", "input_tokens", "rate_set", "fresh"),
    [
        ("openai", "gpt-5-nano", "flex", 1_000, "flex", "0.025"),
        ("openai", "gpt-5.6-sol", "priority", 1_000, "priority", "8"),
        ("openai", "gpt-5.6-sol", "fast", 272_001, "fast+long_context", "16"),
        ("openai", "gpt-5.6-sol", "default", 272_000, "base", "4"),
        ("openai", "gpt-5.6-sol", None, 272_001, "long_context", "8"),
        ("anthropic", "claude-haiku-5-5", None, 100_001, "long_context", "0.5"),
        ("xai", "grok-4.6", None, 199_999, "base", "2"),
        ("xai", "grok-4.6", None, 200_000, "long_context", "4"),
        ("gemini", "gemini-2.5-pro", None, 200_000, "base", "1.25"),
    ],
)
def test_a_service_tier_and_a_long_input_have_their_published_price(
    book: PriceBook, provider: str, name: str, tier: str | None, input_tokens: int, rate_set: str, fresh: str
) -> None:
    rates = rates_for(book, provider, name, "2026-11-29T00:00:00Z", tier=tier, input_tokens=input_tokens)

    assert rates.rate_set == rate_set
    assert dollars(rates, "input") == Decimal(fresh)


@pytest.mark.parametrize(
    ("provider", "kind"), [("openrouter", "prefer"), ("xai", "record"), ("perplexity", "record")]
)
def test_a_provider_that_reports_its_cost_has_that_booked_or_kept(
    book: PriceBook, provider: str, kind: str
) -> None:
    rows = [row for sheet in book.for_provider(provider).sheets.values() for row in sheet.rows]

    assert {row.provider_cost for row in rows} == {kind}
