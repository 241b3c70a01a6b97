"""Prices of the file's own, and published ones of your own, beside the book that comes with the program."""

# ruff: noqa: E501 - tables of whole messages

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.config import Config, ConfigProblems, parse

ENVIRON = {"KEY": "k" * 32, "ADMIN": "a" * 32}

BASE = """schema = 1
[gateway]
key_secret = { env = "KEY" }
admin_secret = { env = "ADMIN" }
default = "standard"
[providers.openai]
dialect = "openai"
base_url = "https://api.openai.com/v1"
[providers.house]
dialect = "vllm"
base_url = "http://127.0.0.1:8000/v1"
[deployments.luna]
provider = "openai"
model = "gpt-5.6-luna"
[deployments.house-8b]
provider = "house"
model = "llama"
[tiers.standard]
deployments = ["luna", "house-8b"]
"""


def row(
    text: str, *, deployment: str = "house-8b", from_: str = "2026-01-01", source: str = "contract"
) -> str:
    return f'[[prices]]\ndeployment = "{deployment}"\nfrom = {from_}\nsource = "{source}"\n{text}\n'


def good(*rows: str) -> Config:
    return parse("faregate.toml", (BASE + "".join(rows)).encode(), ENVIRON)


def problems(*rows: str) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        good(*rows)
    return [problem.message for problem in caught.value.problems]


def warnings(*rows: str) -> list[str]:
    return [warning.message for warning in good(*rows).warnings]


def price_id(config: Config, deployment: str, model: str, when: datetime) -> str | None:
    found = config.books[deployment].find(None, model)
    assert found is not None
    held = found[1].row_at(when)
    return None if held is None else held.price_id


NOW = datetime(2026, 11, 29, tzinfo=UTC)
CHEAP = 'rates = { input = "0.10", input_cached = 0.01, output = 1 }'


def test_without_prices_of_its_own_a_deployment_has_those_of_its_providers_book() -> None:
    found = price_id(good(), "luna", "gpt-5.6-luna", NOW)
    assert found is not None
    assert found.startswith("book:")


def test_its_own_price_wins_over_every_later_one_of_the_book() -> None:
    config = good(row(CHEAP, deployment="luna"))
    assert price_id(config, "luna", "gpt-5.6-luna", NOW) == "file:luna@2026-01-01"
    found = config.books["luna"].find("gpt-5.6-luna-2026-07-01", "gpt-5.6-luna")
    assert found is not None
    assert found[0] == "gpt-5.6-luna"


def test_until_its_own_price_begins_the_books_price_holds() -> None:
    config = good(row(CHEAP, deployment="luna", from_="2027-01-01"))
    before = price_id(config, "luna", "gpt-5.6-luna", NOW)
    assert before is not None
    assert before.startswith("book:")
    after = datetime(2027, 1, 1, tzinfo=UTC)
    assert price_id(config, "luna", "gpt-5.6-luna", after) == "file:luna@2027-01-01"


def test_a_later_row_holds_from_its_day_on() -> None:
    config = good(row(CHEAP), row(CHEAP.replace("0.10", "0.20"), from_="2026-06-01"))
    assert (
        price_id(config, "house-8b", "llama", datetime(2026, 5, 31, 23, 59, tzinfo=UTC))
        == "file:house-8b@2026-01-01"
    )
    assert (
        price_id(config, "house-8b", "llama", datetime(2026, 6, 1, tzinfo=UTC)) == "file:house-8b@2026-06-01"
    )


def test_a_deployment_without_a_price_is_said_to_be() -> None:
    assert warnings() == [
        'deployments.house-8b has no price for "llama": its answers are flagged unpriced; under a budget it is '
        "refused until it has ceiling_usd_per_mtok"
    ]
    assert warnings(row("free = true")) == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("")], 'prices[0] "house-8b": rates is missing'),
        ([row('rates = { input = "1" }')], 'prices[0] "house-8b": rates lack output'),
        (
            [row('rates = { input = "-1", output = 1 }')],
            'prices[0] "house-8b": rates.input is -1; a price is never less than nothing',
        ),
        (
            [row('rates = { input = 0, output = "1" }')],
            'prices[0] "house-8b": rates.input is 0; add free = true if such tokens cost nothing',
        ),
        (
            [row('rates = { input = "cheap", output = 1 }')],
            'prices[0] "house-8b": rates.input is "cheap"; it must be a number or a decimal text like "0.25"',
        ),
        (
            [row("rates = { input = 1, output = 1, input_cache = 1 }")],
            'prices[0] "house-8b": rates.input_cache is unknown; did you mean input_cached?',
        ),
        (
            [row("rates = { input = 1, output = 0.0000001 }")],
            'prices[0] "house-8b": rates.output cannot be kept exactly: 1E-7 dollars per million tokens has more '
            "than six decimals",
        ),
        ([row('free = true\ncurrency = "EUR"')], 'prices[0] "house-8b": currency is "EUR"; prices in this file are US dollars'),
        (
            [row("free = true"), row("free = true")],
            'prices[1] "house-8b": from is 2026-01-01, as is that of another price of it; a change is a later row',
        ),
        (
            [row(CHEAP), row(CHEAP.replace("0.10", "100"), from_="2026-06-01")],
            'prices[1] "house-8b": rates.input is 100 after 0.10; add confirmed = true if that is meant',
        ),
        (
            [row('rates = { input = "0.00001", output = "1" }', deployment="luna", from_="2026-11-01")],
            'prices[0] "luna": rates.input is 0.00001 where the book has',
        ),
        (
            [row("discount = 0.12", deployment="luna")],
            'prices[0] "luna": discount is not enforced yet: discounts off the book come with a later version; take it out',
        ),
        ([row("free = true", deployment="lunna")], 'prices[0] "lunna": deployment is "lunna", which is unknown; did you mean luna?'),
    ],
)  # fmt: skip
def test_a_price_that_cannot_be_right_is_refused(rows: list[str], message: str) -> None:
    found = problems(*rows)
    assert any(problem.startswith(message) for problem in found), found


def test_a_leap_that_is_confirmed_is_taken() -> None:
    good(row(CHEAP), row(CHEAP.replace("0.10", "100") + "\nconfirmed = true", from_="2026-06-01"))


def test_a_missing_cached_price_is_a_warning() -> None:
    assert warnings(row("rates = { input = 1, output = 2 }")) == [
        'prices[0] "house-8b": rates lack input_cached: cached tokens are priced as input, flagged rate_fallback'
    ]


# ── published prices of your own ──

OWN_ROW = """[[prices]]
provider = "openai"
model = "gpt-5.6-luna"
from = 2026-12-01
rates = { input = "0.18", input_cached = "0.018", cache_write_5m = "0.225", output = "1.08" }
source = "a list"
checked_on = 2026-11-30
"""

OWN = 'currency = "USD"\n' + OWN_ROW


def with_own(tmp_path: Path, text: str | None = OWN, *rows: str) -> Config:
    if text is not None:
        (tmp_path / "own.toml").write_text(text)
    file = BASE.replace("default =", 'price_file = "own.toml"\ndefault =') + "".join(rows)
    return parse(str(tmp_path / "faregate.toml"), file.encode(), ENVIRON)


LATER = datetime(2026, 12, 1, tzinfo=UTC)


def test_published_prices_of_your_own_join_the_programs(tmp_path: Path) -> None:
    config = with_own(tmp_path)
    assert config.gateway.price_file == str(tmp_path / "own.toml")
    assert price_id(config, "luna", "gpt-5.6-luna", LATER) == "own:openai/gpt-5.6-luna@2026-12-01"
    assert price_id(config, "luna", "gpt-5.6-luna", NOW) == price_id(good(), "luna", "gpt-5.6-luna", NOW)
    assert price_id(good(), "luna", "gpt-5.6-luna", LATER) != "own:openai/gpt-5.6-luna@2026-12-01"


def test_a_contracts_price_wins_over_published_ones_of_your_own(tmp_path: Path) -> None:
    config = with_own(tmp_path, OWN, row(CHEAP, deployment="luna"))
    assert price_id(config, "luna", "gpt-5.6-luna", LATER) == "file:luna@2026-01-01"


def test_another_file_of_prices_is_another_version(tmp_path: Path) -> None:
    first = with_own(tmp_path).digest
    assert with_own(tmp_path).digest == first
    assert with_own(tmp_path, OWN.replace("0.18", "0.19")).digest != first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "gateway.price_file cannot be read: "),
        ("", 'gateway.price_file own.toml: currency must be "USD"'),
        (OWN.replace("input =", "imput ="), 'gateway.price_file own.toml: prices[0] "gpt-5.6-luna": rates.imput is unknown; did you mean input?'),
        (OWN.replace('"0.18"', '"250"'), 'gateway.price_file own.toml: prices[0] "gpt-5.6-luna" from 2026-12-01: rates.input is 250 after 0.2'),
        (OWN.replace("model =", 'aliases = ["gpt-5"]\nmodel ='), 'gateway.price_file own.toml: prices[0] "gpt-5.6-luna": aliases "gpt-5" is "gpt-5" in the book'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_them_is_a_problem_of_the_file(
    tmp_path: Path, text: str | None, message: str
) -> None:
    with pytest.raises(ConfigProblems) as caught:
        with_own(tmp_path, text)
    assert caught.value.problems[0].message.startswith(message)
    assert caught.value.problems[0].field == "gateway.price_file"


def test_what_is_strange_about_them_is_a_warning(tmp_path: Path) -> None:
    config = with_own(tmp_path, OWN.replace('"1.08"', '"0.10"'))
    assert [warning.message for warning in config.warnings if "price_file" in warning.message] == [
        'gateway.price_file own.toml: prices[0] "gpt-5.6-luna" from 2026-12-01: rates.output is less than rates.input'
    ]
