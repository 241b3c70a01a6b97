"""Which prices of a configuration are written into the ledger, and as what."""

import json

from gateway.config import Config, parse
from gateway.prices_kept import prices_of
from ledger.store import StoredPrice

ENVIRON = {"KEY": "k" * 32, "ADMIN": "a" * 32}

BASE = """schema = 1
[gateway]
key_secret = { env = "KEY" }
admin_secret = { env = "ADMIN" }
default = "standard"
[providers.house]
dialect = "vllm"
base_url = "http://127.0.0.1:8000/v1"
[deployments.house-8b]
provider = "house"
model = "llama"
[tiers.standard]
deployments = ["house-8b"]
"""
LUNA = """[providers.one]
dialect = "openai"
base_url = "https://api.openai.com/v1"
[deployments.luna]
provider = "one"
model = "gpt-5.6-luna"
"""
TERRA = """[deployments.terra]
provider = "one"
model = "gpt-5.6-terra"
"""


def own(deployment: str, from_: str, *, more: str = "") -> str:
    rates = '{ input = "0.10", input_cached = 0.010, output = 1 }'
    return f'[[prices]]\ndeployment = "{deployment}"\nfrom = {from_}\nsource = "contract 7"\nrates = {rates}\n{more}\n'


def config(*parts: str) -> Config:
    return parse("faregate.toml", (BASE + "".join(parts)).encode(), ENVIRON)


def kept(*parts: str) -> dict[str, StoredPrice]:
    prices = prices_of(config(*parts))
    by_id = {price.id: price for price in prices}
    assert len(by_id) == len(prices)
    return by_id


def test_a_deployment_without_a_price_keeps_none() -> None:
    assert kept() == {}


def test_a_price_of_the_file_is_kept_with_its_deployment_and_source() -> None:
    found = kept(own("house-8b", "2026-01-01"), own("house-8b", "2026-02-01"))
    assert list(found) == ["file:house-8b@2026-01-01", "file:house-8b@2026-02-01"]
    assert found["file:house-8b@2026-01-01"] == StoredPrice(
        id="file:house-8b@2026-01-01",
        provider="house",
        deployment="house-8b",
        model="llama",
        from_date="2026-01-01",
        sheet='{"from": "2026-01-01", "rates": {"input": "0.1", "input_cached": "0.01", "output": "1"}}',
        source="contract 7",
        checked_on=None,
    )


def test_of_a_providers_book_every_row_is_kept_since_an_answer_may_name_another_model() -> None:
    loaded = config(LUNA)
    ids = {row.price_id for _, row in loaded.books["luna"].rows()}
    found = kept(LUNA)
    assert set(found) == ids
    assert {price.provider for price in found.values()} == {"openai"}
    assert {price.deployment for price in found.values()} == {None}
    luna = [price for price in found.values() if price.model == "gpt-5.6-luna"]
    assert luna
    for price in luna:
        assert price.id == f"book:openai/gpt-5.6-luna@{price.from_date}"
        assert price.source is not None
        assert price.source.startswith("https://")
        assert price.checked_on is not None
        assert json.loads(price.sheet)["from"] == price.from_date


def test_two_deployments_at_one_provider_keep_its_book_once() -> None:
    assert kept(LUNA, TERRA) == kept(LUNA)


def test_what_was_published_before_a_price_of_ones_own_is_kept_as_the_books() -> None:
    found = kept(LUNA, own("luna", "2030-01-01", more="confirmed = true"))
    published = kept(LUNA)
    before = [price for price in published.values() if price.model == "gpt-5.6-luna"]
    assert list(found) == [*(price.id for price in before), "file:luna@2030-01-01"]
    assert [found[price.id] for price in before] == before


def test_a_second_look_at_the_same_file_gives_the_same_texts() -> None:
    assert prices_of(config(LUNA, own("house-8b", "2026-01-01"))) == prices_of(
        config(LUNA, own("house-8b", "2026-01-01"))
    )
