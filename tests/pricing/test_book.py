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
