"""A file of prices of your own joins the program's book and changes nothing of it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pricing.price_tables import PriceProblem
from pricing.published import load_book, price_file_of
from pricing.sheet import PriceBook

HEAD = 'currency = "USD"\n'


def row(provider: str, model: str, from_: str, rate: str = "2", more: str = "") -> str:
    return (
        f'[[prices]]\nprovider = "{provider}"\nmodel = "{model}"\nfrom = {from_}\n'
        f'rates = {{ input = "{rate}", input_cached = "0.1", output = "10" }}\n{more}\n'
        'source = "a list"\nchecked_on = 2026-11-30\n'
    )


def book_with(tmp_path: Path, *rows: str) -> PriceBook:
    path = tmp_path / "own.toml"
    path.write_text(HEAD + "".join(rows))
    return load_book(own=path)


def price_ids(book: PriceBook, provider: str, name: str) -> list[str | None]:
    found = book.for_provider(provider).find(None, name)
    assert found is not None
    return [row.price_id for row in found[1].rows]


def test_rows_of_your_own_stand_beside_those_of_the_book(tmp_path: Path) -> None:
    book = book_with(tmp_path, row("openai", "gpt-5.6-luna", "2026-12-01"))
    assert price_ids(book, "openai", "gpt-5.6-luna") == [
        "book:openai/gpt-5.6-luna@2026-07-09",
        "book:openai/gpt-5.6-luna@2026-07-30",
        "own:openai/gpt-5.6-luna@2026-12-01",
    ]
    assert price_ids(book, "anthropic", "claude-opus-5") == price_ids(
        load_book(), "anthropic", "claude-opus-5"
    )


def test_where_two_begin_at_the_same_moment_yours_holds(tmp_path: Path) -> None:
    book = book_with(tmp_path, row("openai", "gpt-5.6-luna", "2026-07-30"))
    assert price_ids(book, "openai", "gpt-5.6-luna")[1:] == ["own:openai/gpt-5.6-luna@2026-07-30"]


def test_a_model_or_a_provider_may_be_new(tmp_path: Path) -> None:
    book = book_with(
        tmp_path,
        row("openai", "gpt-house", "2026-12-01", more='aliases = ["house"]'),
        row("nobody", "m", "2026-12-01"),
    )
    assert price_ids(book, "openai", "house") == ["own:openai/gpt-house@2026-12-01"]
    assert price_ids(book, "nobody", "m") == ["own:nobody/m@2026-12-01"]
    assert price_ids(book, "openai", "gpt-5.6-luna")


def test_a_row_under_an_alias_is_one_of_the_model(tmp_path: Path) -> None:
    book = book_with(tmp_path, row("openai", "gpt-5.6", "2026-12-01"))
    assert price_ids(book, "openai", "gpt-5.6-sol")[-1] == "own:openai/gpt-5.6@2026-12-01"
    assert price_ids(book, "openai", "gpt-5.6") == price_ids(book, "openai", "gpt-5.6-sol")


def test_the_program_s_book_itself_is_not_touched(tmp_path: Path) -> None:
    before = load_book()
    book_with(tmp_path, row("openai", "gpt-5.6-luna", "2026-12-01"))
    assert price_ids(before, "openai", "gpt-5.6-luna") == price_ids(load_book(), "openai", "gpt-5.6-luna")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            row("openai", "m", "2026-12-01").replace('provider = "openai"\n', ""),
            "provider is missing: whose model",
        ),
        (
            row("openai", "m", "2026-12-01", more='aliases = ["gpt-5"]'),
            'prices[0] "m": aliases "gpt-5" is "gpt-5" in the book',
        ),
        (row("openai", "m", "2026-12-01") * 2, "from is that of another row of this model"),
        ('[[price]]\nmodel = "m"\n', "price is unknown; did you mean prices?"),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_name(tmp_path: Path, rows: str, problem: str) -> None:
    with pytest.raises(PriceProblem) as wrong:
        book_with(tmp_path, rows)
    assert len(wrong.value.problems) == 1
    assert wrong.value.problems[0].startswith("own.toml: ")
    assert problem in wrong.value.problems[0]


def test_a_file_of_the_program_names_its_provider_and_no_other() -> None:
    text = 'provider = "a"\n' + HEAD + row("b", "m", "2026-12-01")
    assert price_file_of(text, origin="book").problems == ('prices[0] "m": provider is "b" in a file of "a"',)
    assert price_file_of(HEAD + row("b", "m", "2026-12-01"), origin="book").problems == (
        "provider must name the provider",
    )


def test_an_empty_file_of_your_own_is_one(tmp_path: Path) -> None:
    assert price_file_of(HEAD, origin="own").problems == ()
    assert book_with(tmp_path).providers.keys() == load_book().providers.keys()


def test_a_row_of_your_own_prices_what_begins_after_it(tmp_path: Path) -> None:
    book = book_with(tmp_path, row("openai", "gpt-5.6-luna", "2026-12-01", "0.18"))
    found = book.for_provider("openai").find("gpt-5.6-luna-2026-07-09", "x")
    assert found is not None
    at = found[1].row_at(datetime(2026, 12, 1, tzinfo=UTC))
    before = found[1].row_at(datetime(2026, 11, 30, 23, 59, tzinfo=UTC))
    assert at is not None
    assert before is not None
    assert (at.base.rates["input"], before.base.rates["input"]) == (180_000, 200_000)
