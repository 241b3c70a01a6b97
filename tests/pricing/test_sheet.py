import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pricing.price_row import Row
from pricing.price_tables import PriceProblem
from pricing.published import load_book
from pricing.sheet import PriceBook, Sheet, undated

RATES = {"input": "1", "output": "2"}
START = datetime(2026, 6, 1, tzinfo=UTC)


def sheet(**parts: Any) -> Sheet:
    return Sheet.from_table({"rates": RATES, **parts}, name="m", origin="book")


def dated(*days: str) -> Sheet:
    versions = [
        {"from": day, "rates": {"input": str(number), "output": "1"}} for number, day in enumerate(days, 1)
    ]
    return Sheet.from_table({"versions": versions}, name="m", origin="book")


def version_at(prices: Sheet, moment: datetime) -> str | None:
    row = prices.row_at(moment)
    return None if row is None else row.version


def test_the_latest_row_that_is_not_after_the_start_holds() -> None:
    prices = dated("2026-07-30T00:00:00Z", "2026-06-01")
    assert version_at(prices, START - timedelta(microseconds=1)) is None
    assert version_at(prices, START) == "2026-06-01"
    assert version_at(prices, datetime(2026, 7, 29, 23, 59, 59, tzinfo=UTC)) == "2026-06-01"
    assert (
        version_at(prices, datetime(2026, 7, 30, 2, tzinfo=timezone(timedelta(hours=2))))
        == "2026-07-30T00:00:00Z"
    )
    assert [row.price_id for row in prices.rows] == ["book:m@2026-06-01", "book:m@2026-07-30T00:00:00Z"]


def test_a_later_sheet_supersedes_rows_and_keeps_the_others() -> None:
    joined = dated("2026-06-01", "2026-07-01").superseded_by(
        Sheet.from_table({"versions": [{"from": date(2026, 7, 1), "rates": RATES}]}, name="m", origin="file")
    )
    assert [row.price_id for row in joined.rows] == ["book:m@2026-06-01", "file:m@2026-07-01"]


@pytest.mark.parametrize(
    ("from_", "to", "clock", "inside"),
    [
        ("01:00", "04:00", "00:59:59", False),
        ("01:00", "04:00", "01:00:00", True),
        ("01:00", "04:00", "03:59:59", True),
        ("01:00", "04:00", "04:00:00", False),
        ("16:30", "00:30", "00:29:59", True),
        ("16:30", "00:30", "00:30:00", False),
        ("16:30", "00:30", "16:30:00", True),
        ("16:30", "24:00", "23:59:59", True),
        ("16:30", "24:00", "00:00:00", False),
    ],
)
def test_a_window_has_its_start_and_not_its_end(from_: str, to: str, clock: str, inside: bool) -> None:
    window = {"name": "w", "from": from_, "to": to, "rates": {"input": "9"}}
    row = sheet(windows=[window]).rows[0]
    assert row.windows[0].holds_at(datetime.fromisoformat(f"2026-11-02T{clock}+00:00")) is inside


def test_the_day_of_a_window_is_that_of_the_moment_in_utc() -> None:
    window = {"name": "w", "days": [1], "from": "22:00", "to": "02:00", "rates": {"input": "9"}}
    row = sheet(windows=[window]).rows[0]

    def rate_set(moment: str) -> str:
        at = datetime.fromisoformat(moment)
        return row.rates_for(
            started_at=at, completed_at=at, batch=False, service_tier=None, input_tokens=0
        ).rate_set

    assert rate_set("2026-11-02T23:00:00+00:00") == "w"  # a Monday
    assert rate_set("2026-11-03T01:00:00+00:00") == "base"  # Tuesday, though the window began on Monday
    assert rate_set("2026-11-03T01:00:00+02:00") == "w"  # still Monday in UTC


def rates_at(
    prices: Sheet, input_tokens: int, *, batch: bool = False, tier: str | None = None
) -> tuple[str, int]:
    """Which blocks apply to an input of this size, and what its tokens cost in whole dollars a million."""
    rates = prices.rows[0].rates_for(
        started_at=START, completed_at=START, batch=batch, service_tier=tier, input_tokens=input_tokens
    )
    return rates.rate_set, rates.named["input"] // 1_000_000


STEPS = [
    {"threshold": 100, "applies": "at_or_above", "rates": {"input": "10", "output": "20"}},
    {"threshold": 200, "rates": {"input": "30"}},
    {"threshold": 300, "rates": {"input": "40"}},
]


@pytest.mark.parametrize(
    ("input_tokens", "rate_set", "fresh"),
    [
        (99, "base", 1),
        (100, "long_context", 10),
        (200, "long_context", 10),
        (201, "long_context", 30),
        (300, "long_context", 30),
        (301, "long_context", 40),
    ],
)
def test_of_several_long_context_steps_the_longest_that_is_reached_counts(
    input_tokens: int, rate_set: str, fresh: int
) -> None:
    assert rates_at(sheet(long_context=STEPS), input_tokens) == (rate_set, fresh)


def test_a_step_leaves_the_rates_it_does_not_name_to_the_step_before() -> None:
    row = sheet(long_context=STEPS).rows[0]
    rates = row.rates_for(
        started_at=START, completed_at=START, batch=False, service_tier=None, input_tokens=999
    )
    assert rates.named["output"] == 20_000_000


def test_a_batch_may_have_long_context_rates_of_its_own() -> None:
    prices = sheet(
        batch={"rates": {"input": "5"}, "long_context": {"rates": {"input": "7"}}},
        long_context={"threshold": 100, "rates": {"input": "10"}},
        service_tiers={
            "flex": {"rates": {"input": "6"}},
            "fast": {"long_context": {"rates": {"input": "9"}}},
        },
    )
    assert rates_at(prices, 100, batch=True) == ("batch", 5)
    assert rates_at(prices, 101, batch=True) == ("batch+long_context", 7)
    assert rates_at(prices, 101) == ("long_context", 10)
    assert rates_at(prices, 101, batch=True, tier="flex") == ("batch+flex+long_context", 7)
    assert rates_at(prices, 101, batch=True, tier="fast") == ("batch+fast+long_context", 9)


def test_steps_of_a_service_may_leave_their_thresholds_to_those_of_the_row() -> None:
    prices = sheet(
        long_context=STEPS[:2],
        batch={"long_context": [{"rates": {"input": "5"}}, {"rates": {"input": "6"}}]},
    )
    assert rates_at(prices, 100, batch=True) == ("batch+long_context", 5)
    assert rates_at(prices, 201, batch=True) == ("batch+long_context", 6)


def test_amounts_may_be_texts_decimals_and_whole_numbers() -> None:
    for amount in ("2.5", Decimal("2.5"), "2.50"):
        assert sheet(rates={**RATES, "input": amount}).rows[0].base.rates["input"] == 2_500_000
    assert sheet(rates={**RATES, "input": 2}).rows[0].base.rates["input"] == 2_000_000


def test_a_rate_with_many_decimals_is_kept_exactly_by_a_scale() -> None:
    row = sheet(rates={**RATES, "input": "0.12345678"}).rows[0]
    assert (row.scale, row.base.rates["input"], row.base.rates["output"]) == (100, 12_345_678, 200_000_000)


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"rates": {"imput": "1"}}, "rates.imput is unknown; did you mean input?"),
        ({"rates": {"input": 0.1}}, 'rates.input must be a decimal text like "0.25"'),
        ({"rates": {"input": "-1"}}, "rates.input must be a number of at least 0"),
        ({"rates": {"input": "NaN"}}, "rates.input must be a number of at least 0"),
        ({"rates": {"input": "1e400"}}, "rates.input is not a price"),
        ({"rates": {"input": "1e-400"}}, "rates.input is not a price"),
        ({"rates": {"input": "x"}}, 'rates.input is "x"'),
        ({"rates": {"input": True}}, "rates.input must be a decimal text"),
        ({"rates": []}, "rates must be a table"),
        ({"bach": {}}, "bach is unknown; did you mean batch?"),
        ({"versions": [{"from": "soon", "rates": RATES}]}, 'versions[0].from is "soon"'),
        ({"versions": [{"from": "2026-01-01T00:00:00", "rates": RATES}]}, "must say its offset"),
        ({"versions": [{"rates": RATES}]}, "versions[0] lacks from"),
        ({"versions": {}}, "versions must be a list"),
        (
            {"windows": [{"name": "w", "from": "25:00", "to": "01:00"}]},
            "windows[0].from must be a time of day",
        ),
        (
            {"windows": [{"name": "w", "days": [8], "from": "01:00", "to": "02:00"}]},
            "windows[0].days must be",
        ),
        ({"windows": [{"from": "01:00", "to": "02:00"}]}, "windows[0].name is missing"),
        ({"clock": "noon"}, "clock must be"),
        ({"provider_cost": "maybe"}, "provider_cost must be"),
        ({"long_context": {"rates": RATES}}, "long_context.threshold must be"),
        ({"long_context": {"threshold": 1, "applies": "below"}}, "long_context.applies must be"),
        ({"service_tiers": {"flex": {"rate": {}}}}, "service_tiers.flex.rate is unknown"),
        (
            {"service_tiers": {"flex": {"long_context": {}}}},
            "service_tiers.flex.long_context.threshold must be",
        ),
        ({"multipliers": {"speed": {}}}, "multipliers.speed is unknown"),
        ({"long_context": [{"threshold": 2}, {"threshold": 2}]}, "long_context must begin with the smallest"),
        (
            {"long_context": [{"threshold": 1}, {"threshold": 0, "applies": "at_or_above"}]},
            "long_context must begin with the smallest",
        ),
        ({"long_context": [{"rates": RATES}]}, "long_context[0].threshold must be"),
        ({"batch": {"long_context": {"rates": RATES}}}, "batch.long_context.threshold must be"),
        ({"multipliers": {"inference_geo": {"us": "fast"}}}, 'multipliers.inference_geo.us is "fast"'),
        ({"per_request_by": {"size": "0.1"}}, "per_request_by.size must be a table"),
        ({"tools": {"search": None}}, "tools.search must be a decimal text"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(parts: dict[str, Any], problem: str) -> None:
    with pytest.raises(PriceProblem) as wrong:
        sheet(**parts)
    assert len(wrong.value.problems) == 1
    assert problem in wrong.value.problems[0]
    assert wrong.value.problems[0].startswith('"m": ')


def test_all_problems_are_told_at_once() -> None:
    tables = {"a": {"rates": {"input": "x", "output": "y"}, "clock": 1}, "b": {}, "c": {"rates": RATES}}
    with pytest.raises(PriceProblem) as wrong:
        PriceBook.from_tables(tables)
    assert len(wrong.value.problems) == 4


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("gpt-4o-mini", "gpt-4o-mini"),
        ("kimi-k2-0905", "kimi-k2-0905"),
        ("model-12345678", "model-12345678"),
        ("model@2024-08-06", "model@2024-08-06"),
        ("2024-08-06", "2024-08-06"),
        ("gpt-4o-2024-08-06-preview", "gpt-4o-2024-08-06-preview"),
        ("", ""),
    ],
)
def test_only_a_date_is_taken_off_a_name(name: str, family: str) -> None:
    assert undated(name) == family


@pytest.mark.parametrize(
    ("answered", "requested", "found"),
    [
        ("a-2026-01-02", "b", "a-2026-01-02"),
        ("a-2026-01-03", "b", "a"),
        ("unknown", "b", "b"),
        ("unknown", "b-20260101", "b"),
        (None, "b", "b"),
        ("", "b", "b"),
        ("a-mini", "c", None),
        ("other", "c", "a"),
    ],
)
def test_a_sheet_is_found_by_name_and_never_by_prefix(
    answered: str | None, requested: str, found: str | None
) -> None:
    sheets = {name: Sheet(name, ()) for name in ("a", "a-2026-01-02", "b")}
    book = PriceBook(sheets, aliases={"other": "a"})
    result = book.find(answered, requested)
    assert (None if result is None else result[0]) == found


ROW = """
[[prices]]
model = "{model}"
aliases = {aliases}
from = 2026-06-01
rates = {{ input = "1", output = "2" }}
source = "https://example.com"
checked_on = 2026-11-29
"""


def file(provider: str, *rows: str) -> str:
    return f'provider = "{provider}"\ncurrency = "USD"\n' + "".join(rows)


def row(model: str, aliases: str = "[]") -> str:
    return ROW.format(model=model, aliases=aliases)


def test_a_book_is_read_from_one_file_a_provider(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(file("a", row("shared"), row("mine", '["my"]')))
    (tmp_path / "b.toml").write_text(file("b", row("shared")))
    book = load_book(tmp_path)
    found = book.for_provider("b").find(None, "shared")
    assert found is not None
    assert found[1].rows[0].price_id == "book:b/shared@2026-06-01"
    assert book.find(None, "shared") is None  # whose?
    alias = book.find(None, "my")
    assert alias is not None
    assert alias[0] == "mine"
    assert book.for_provider("nobody").find(None, "mine") is None


def test_every_problem_of_every_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(file("a", row("x"), row("x"), row("y", '["x"]')))
    (tmp_path / "b.toml").write_text("provider = 'b'\ncurrency = 'EUR'\nprices = [{model = 'm', color = 1}]")
    (tmp_path / "c.toml").write_text("not toml")
    (tmp_path / "d.toml").write_text(file("a", row("z")))
    with pytest.raises(PriceProblem) as wrong:
        load_book(tmp_path)
    told = "\n".join(wrong.value.problems)
    for words in (
        'a.toml: prices[1] "x": from is that of another row',
        'a.toml: aliases "x", an alias of "y", is a model of its own',
        'b.toml: currency must be "USD"',
        'b.toml: prices[0] "m": color is unknown',
        'b.toml: prices[0] "m": from is missing',
        'b.toml: prices[0] "m": source is missing',
        'b.toml: prices[0] "m": checked_on must be',
        'b.toml: prices[0] "m": rates are missing',
        "c.toml: cannot be read",
        'd.toml: provider "a" has a file already',
    ):
        assert words in told


def test_an_empty_folder_is_no_book(tmp_path: Path) -> None:
    with pytest.raises(PriceProblem, match="holds no price files"):
        load_book(tmp_path)


def test_the_book_that_comes_with_the_program_is_good() -> None:
    assert load_book().for_provider("openai").sheets


# ── a row as it is written down ──


def only_row(table: dict[str, Any]) -> Row:
    (row,) = Sheet.from_table(table, name="m", origin="book").rows
    return row


def read_back(text: str) -> Row:
    table: dict[str, Any] = json.loads(text)
    version = {"from": table.pop("from"), "rates": table.pop("rates")}
    return only_row({**table, "versions": [version]})


FULL: dict[str, Any] = {
    "versions": [
        {
            "from": "2026-06-01",
            "rates": {"input": "0.0000375", "output": 2, "extra": {"citation": "2"}},
            "source": "a contract",
        }
    ],
    "clock": "response_end",
    "windows": [
        {"name": "night", "days": [7, 1], "from": "16:30", "to": "24:00", "rates": {"input": "0.5"}},
        {"name": "noon", "from": "12:00:30", "to": "13:00", "rates": {"input": "0.25"}},
    ],
    "batch": {
        "rates": {"output": "1"},
        "long_context": {"threshold": 200_000, "applies": "at_or_above", "rates": {"input": "3"}},
    },
    "long_context": {"threshold": 200_000, "applies": "at_or_above", "rates": {"input": "4"}},
    "service_tiers": {
        "priority": {"rates": {"input": "8"}, "long_context": {"threshold": 9, "rates": {"input": "16"}}},
        "flex": {"rates": {"input": "0.1"}},
    },
    "multipliers": {"inference_geo": {"us": "1.1", "eu": 3}},
    "per_request": "0.000000000001",
    "per_request_by": {"search_context_size": {"low": "0.005", "high": "0.012"}},
    "tools": {"web_search": "0.01"},
    "provider_cost": "prefer",
}


def test_a_row_as_text_is_all_that_it_prices_by_with_decimals_as_texts() -> None:
    assert json.loads(only_row(FULL).as_text()) == {
        "from": "2026-06-01",
        "rates": {"input": "0.0000375", "output": "2", "extra": {"citation": "2"}},
        "clock": "response_end",
        "windows": [
            {"name": "night", "days": [1, 7], "from": "16:30", "to": "24:00", "rates": {"input": "0.5"}},
            {
                "name": "noon",
                "days": [1, 2, 3, 4, 5, 6, 7],
                "from": "12:00:30",
                "to": "13:00",
                "rates": {"input": "0.25"},
            },
        ],
        "batch": {
            "rates": {"output": "1"},
            "long_context": {"threshold": 200_000, "applies": "at_or_above", "rates": {"input": "3"}},
        },
        "long_context": {"threshold": 200_000, "applies": "at_or_above", "rates": {"input": "4"}},
        "service_tiers": {
            "priority": {
                "rates": {"input": "8"},
                "long_context": {"threshold": 9, "applies": "at_or_above", "rates": {"input": "16"}},
            },
            "flex": {"rates": {"input": "0.1"}},
        },
        "multipliers": {"inference_geo": {"us": "1.1", "eu": "3"}},
        "per_request": "0.000000000001",
        "per_request_by": {"search_context_size": {"low": "0.005", "high": "0.012"}},
        "tools": {"web_search": "0.01"},
        "provider_cost": "prefer",
    }


def test_a_plain_row_as_text_is_short() -> None:
    assert only_row({"rates": RATES}).as_text() == '{"from": null, "rates": {"input": "1", "output": "2"}}'


def test_rows_that_price_alike_have_one_text_however_they_were_written() -> None:
    one = only_row({"rates": {"input": "0.2500000000", "output": 2}, "tools": {"a": "1", "b": "2.0"}})
    other = only_row({"tools": {"b": 2, "a": Decimal("1.0")}, "rates": {"output": "2.0", "input": "0.25"}})
    assert one.scale != other.scale
    assert one.as_text() == other.as_text()
    assert one.as_text() != only_row({"rates": {"input": "0.2500000001", "output": 2}}).as_text()


@pytest.mark.parametrize("part", [key for key in FULL if key != "versions"])
def test_a_row_without_one_of_its_parts_has_another_text(part: str) -> None:
    less = {key: value for key, value in FULL.items() if key != part}
    assert only_row(less).as_text() != only_row(FULL).as_text()


def test_what_a_row_was_checked_by_is_beside_its_text_not_in_it() -> None:
    row = only_row(FULL)
    assert (row.source, row.checked_on) == ("a contract", None)
    assert "contract" not in row.as_text()
    assert only_row({"rates": RATES}).source is None


def test_a_source_is_a_text() -> None:
    with pytest.raises(PriceProblem, match=r"versions\[0\].source must be a text"):
        Sheet.from_table({"versions": [{"from": "2026-06-01", "rates": RATES, "source": 1}]})


def test_every_row_of_the_published_book_can_be_read_back_from_its_text() -> None:
    count = 0
    for provider, book in load_book().providers.items():
        for name, row in book.rows():
            count += 1
            text = row.as_text()
            again = read_back(text)
            assert again.as_text() == text
            assert (again.from_, again.base, again.tiers, again.steps) == (
                row.from_,
                row.base,
                row.tiers,
                row.steps,
            )
            assert (again.windows, again.batch, again.multipliers, again.fees) == (
                row.windows,
                row.batch,
                row.multipliers,
                row.fees,
            )
            assert row.source, (provider, name)
            assert row.checked_on is not None
            assert date.fromisoformat(row.checked_on)
    assert count > 100


def test_a_books_rows_come_with_their_models_oldest_first() -> None:
    book = PriceBook({"a": dated("2026-07-01", "2026-06-01"), "b": sheet()}, aliases={"other": "a"})
    assert [(name, row.version) for name, row in book.rows()] == [
        ("a", "2026-06-01"),
        ("a", "2026-07-01"),
        ("b", None),
    ]


def test_a_plain_price_holds_until_the_next_row_begins() -> None:
    book = PriceBook({"m": dated("2026-06-01", "2026-07-01")})
    june_ms, july_ms = (int(datetime(2026, month, 1, tzinfo=UTC).timestamp()) * 1000 for month in (6, 7))
    assert book.plain_price(None, "m", june_ms - 1) is None
    first = book.plain_price(None, "m", june_ms)
    assert first is not None
    assert (first.from_ms, first.until_ms, first.version) == (june_ms, july_ms, "2026-06-01")
    assert book.plain_price(None, "m", july_ms - 1) is first
    second = book.plain_price(None, "m", july_ms)
    assert second is not None
    assert (second.from_ms, second.version) == (july_ms, "2026-07-01")
    assert book.plain_price(None, "m", june_ms) == first
    assert book.plain_price("m-2026-01-01", "other", june_ms) == first
    assert book.plain_price("other", "m", june_ms) == first


@pytest.mark.parametrize(
    "parts",
    [
        {"windows": [{"name": "night", "from": "01:00", "to": "02:00", "rates": {"input": "1"}}]},
        {"per_request": "1"},
        {"rates": {"input": "1"}},
        {"rates": {"input": "0.0000001", "output": "1"}},
        {"long_context": {"threshold": 0, "applies": "at_or_above", "rates": {"input": "1"}}},
    ],
)
def test_where_more_than_tokens_matters_there_is_no_plain_case(parts: dict[str, Any]) -> None:
    rates = {**RATES, "input_cached": "0.1"}
    usual, other = (
        PriceBook({"m": sheet(**{"rates": rates, **more})}).plain_price(None, "m", 0) for more in ({}, parts)
    )
    assert usual is not None
    assert other is not None
    assert usual.most_input > 10**15
    assert other.most_input == -1


def test_names_that_answers_make_up_are_kept_only_up_to_a_bound() -> None:
    book = PriceBook({"m": sheet()})
    for number in range(1000):
        assert book.plain_price(f"made-up-{number}", "m", 0) == book.plain_price(None, "m", 0)
    kept = book._plain  # pyright: ignore[reportPrivateUsage] - what is kept is what the test is about
    assert 0 < len(kept) <= 256
    book.plain_price("x" * 10_000, "m", 0)
    assert all(answered is None or len(answered) < 300 for answered, _ in kept)


def test_where_a_cached_token_raises_a_flag_none_is_plain() -> None:
    flagged = PriceBook({"m": sheet()}).plain_price(None, "m", 0)
    named = PriceBook({"m": sheet(rates={**RATES, "input_cached": "0.1"})}).plain_price(None, "m", 0)
    assert flagged is not None
    assert named is not None
    assert (flagged.most_cached, flagged.input_uncached, flagged.output_reasoning) == (
        0,
        1_000_000,
        2_000_000,
    )
    assert (named.most_cached > 10**15, named.input_cached) == (True, 100_000)
