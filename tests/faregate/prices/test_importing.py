"""`faregate prices import` shows what another list says, and appends rows only when told to."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from genai_prices import types

from faregate.cli import main
from faregate.prices.genai import NotInstalled, Offer, offers, offers_in, package_version
from faregate.prices.importing import compare
from pricing.published import load_book, read_price_file
from pricing.sheet import PriceBook, Sheet

TODAY = date(2026, 12, 1)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def model(name: str, prices: Any, *, match: Any = None, variants: Any = None) -> types.ModelInfo:
    return types.ModelInfo(
        id=name, match=match or types.ClauseEquals(equals=name), prices=prices, price_variants=variants
    )


def provider(*models: types.ModelInfo, name: str = "openai") -> types.Provider:
    return types.Provider(
        id=name, name=name, api_pattern="x", pricing_urls=["https://page"], models=list(models)
    )


def price(**rates: Any) -> types.ModelPrice:
    return types.ModelPrice(**{f"{key}_mtok": Decimal(value) for key, value in rates.items()})


def tiered(base: str, *tiers: tuple[int, str]) -> types.TieredPrices:
    return types.TieredPrices(
        base=Decimal(base), tiers=[types.Tier(start=start, price=Decimal(rate)) for start, rate in tiers]
    )


def offer(one: types.ModelInfo) -> Offer:
    (found,) = offers_in([provider(one)], TODAY)
    return found


# ── what the list says ──


def test_every_kind_of_rate_and_fee_has_its_name_here() -> None:
    prices = price(
        input="2",
        cache_read="0.2",
        cache_write="2.5",
        cache_write_1h="4",
        input_audio="5",
        cache_audio_read="0.5",
        input_image="3",
        output="10",
        output_audio="20",
        output_image="30",
    )
    prices.web_searches_kcount = Decimal(10)  # pyright: ignore[reportAttributeAccessIssue] - it takes any unit
    prices.requests_kcount = Decimal(5)  # pyright: ignore[reportAttributeAccessIssue]
    prices.audio_hours = Decimal(1)  # pyright: ignore[reportAttributeAccessIssue]
    found = offer(model("m", prices))
    assert found.table == {
        "rates": {
            "input": "2",
            "input_cached": "0.2",
            "cache_write_5m": "2.5",
            "cache_write_1h": "4",
            "input_audio": "5",
            "input_audio_cached": "0.5",
            "input_image": "3",
            "output": "10",
            "output_audio": "20",
            "output_image": "30",
        },
        "tools": {"web_search": "0.01"},
        "per_request": "0.005",
    }
    assert found.left_out == ("audio_hours",)


def test_tiers_by_length_become_steps() -> None:
    prices = types.ModelPrice(
        input_mtok=tiered("1", (128_000, "2"), (256_000, "3")), output_mtok=tiered("5", (256_000, "9"))
    )
    assert offer(model("m", prices)).table == {
        "rates": {"input": "1", "output": "5"},
        "long_context": [
            {"threshold": 128_000, "applies": "above", "rates": {"input": "2"}},
            {"threshold": 256_000, "applies": "above", "rates": {"input": "3", "output": "9"}},
        ],
    }


def test_a_dated_price_is_that_of_the_day_and_what_is_announced_comes_after() -> None:
    def since(day: date | None, rate: str) -> types.ConditionalPrice:
        constraint = None if day is None else types.StartDateConstraint(start_date=day)
        return types.ConditionalPrice(constraint=constraint, prices=price(input=rate, output="9"))

    prices = [since(None, "3"), since(date(2026, 8, 1), "2"), since(date(2027, 1, 1), "1")]
    found = list(offers_in([provider(model("m", prices))], TODAY))
    assert [(one.since, one.table["rates"]["input"]) for one in found] == [
        (date(2026, 8, 1), "2"),
        (date(2027, 1, 1), "1"),
    ]


def test_windows_are_told_in_utc() -> None:
    window = types.TimeOfDateConstraint(start_time=time(1, tzinfo=UTC), end_time=time(4, tzinfo=UTC))
    prices = [
        types.ConditionalPrice(prices=price(input="1", output="2")),
        types.ConditionalPrice(constraint=window, prices=price(input="2", output="4")),
    ]
    assert offer(model("m", prices)).table["windows"] == [
        {
            "name": "window",
            "days": [1, 2, 3, 4, 5, 6, 7],
            "from": "01:00",
            "to": "04:00",
            "rates": {"input": "2", "output": "4"},
        }
    ]


def test_variants_are_batches_and_tiers_once_they_hold() -> None:
    def variant(when: dict[str, str], rate: str, start: date | None = None) -> types.PriceVariant:
        constraint = None if start is None else types.StartDateConstraint(start_date=start)
        return types.PriceVariant(when=when, prices=price(input=rate), constraint=constraint)

    variants = [
        variant({"processing": "batch"}, "1"),
        variant({"processing": "batch"}, "99"),  # of two that hold the first counts
        variant({"service_tier": "flex"}, "1.5", date(2026, 10, 1)),
        variant({"service_tier": "later"}, "9", date(2026, 12, 2)),
        types.PriceVariant(when={"service_tier": "default"}, prices=types.ModelPrice()),
        variant({"speed": "fast"}, "4"),
        variant({"route": "eu"}, "8"),
    ]
    found = list(offers_in([provider(model("m", price(input="2", output="9"), variants=variants))], TODAY))
    assert found[0].table["batch"] == {"rates": {"input": "1"}}
    assert found[0].table["service_tiers"] == {
        "flex": {"rates": {"input": "1.5"}},
        "fast": {"rates": {"input": "4"}},
    }
    assert found[0].left_out == ("route eu",)
    assert "later" in found[1].table["service_tiers"]


def test_only_exact_names_are_taken() -> None:
    match = types.ClauseOr(
        or_=[
            types.ClauseEquals(equals="m-1"),
            types.ClauseStartsWith(starts_with="m-2"),
            types.ClauseContains(contains="x"),
            types.ClauseOr(or_=[types.ClauseEquals(equals="m-3")]),
        ]
    )
    assert offer(model("m", price(input="1", output="2"), match=match)).names == ("m", "m-1", "m-3")
    prefix = types.ClauseStartsWith(starts_with="ft:m-")
    made_up = types.ClauseContains(contains="us.m")
    prices = price(input="1", output="2")
    assert list(offers_in([provider(model("ft:m-", prices, match=prefix))], TODAY)) == []
    assert list(offers_in([provider(model("regional.m", prices, match=made_up))], TODAY)) == []


def test_a_provider_that_is_unknown_here_and_a_model_without_rates_are_left_out() -> None:
    assert list(offers_in([provider(model("m", price(input="1")), name="elsewhere")], TODAY)) == []
    assert list(offers_in([provider(model("m", types.ModelPrice()))], TODAY)) == []


def test_the_installed_list_can_be_read() -> None:
    found = list(offers(TODAY))
    assert {"openai", "anthropic", "gemini", "bedrock", "xai"} <= {one.provider for one in found}
    assert package_version()[0].isdigit()
    with pytest.raises(StopIteration):
        next(iter(offers_in([], TODAY)))


# ── beside what we have ──


def sheet(**table: Any) -> Sheet:
    rates = {"input": "2", "output": "10"}
    version = {"from": "2026-06-01", "rates": table.pop("rates", rates)}
    return Sheet.from_table({"versions": [version], **table}, name="m", origin="book")


def kinds(
    listed: types.ModelInfo, ours: Sheet | None
) -> tuple[str, str, dict[str, tuple[str | None, str | None]]]:
    books = {} if ours is None else {"openai": PriceBook({"m": ours}, aliases={"alias": "m"})}
    (one,) = compare(
        offers_in([provider(listed)], TODAY), PriceBook({}, providers=books), TODAY, source="a list 1"
    ).news
    return one.kind, one.since, {change.what: (change.before, change.after) for change in one.changes}


def test_a_model_we_lack_is_new_from_the_day_of_the_import() -> None:
    assert kinds(model("m", price(input="2", output="10")), None) == (
        "new",
        "2026-12-01",
        {"rates.input": (None, "2"), "rates.output": (None, "10")},
    )


def test_a_price_that_differs_is_a_change_from_the_day_of_the_import() -> None:
    assert kinds(model("m", price(input="1", output="10")), sheet()) == (
        "changed",
        "2026-12-01",
        {"rates.input": ("2", "1")},
    )


@pytest.mark.parametrize("name", ["m", "alias", "m-2026-01-02"])
def test_the_same_price_under_any_of_our_names_is_no_news(name: str) -> None:
    assert kinds(model(name, price(input="2.00", output="10")), sheet())[0] == "same"


@pytest.mark.parametrize(
    ("start", "since"), [(date(2026, 6, 2), "2026-06-02"), (date(2026, 5, 1), "2026-12-01")]
)
def test_the_lists_own_day_counts_where_it_is_later_than_every_row_of_ours(start: date, since: str) -> None:
    prices = [
        types.ConditionalPrice(prices=price(input="9", output="10")),
        types.ConditionalPrice(
            constraint=types.StartDateConstraint(start_date=start), prices=price(input="1", output="10")
        ),
    ]
    assert kinds(model("m", prices), sheet())[1] == since


def test_what_the_list_has_no_word_for_stays() -> None:
    ours = sheet(
        multipliers={"inference_geo": {"us": "1.1"}},
        service_tiers={"flex": {"rates": {"input": "1"}}},
        batch={"rates": {"input": "1"}},
        tools={"file_search": "0.0025"},
        provider_cost="record",
        windows=[{"name": "night", "from": "00:00", "to": "06:00", "rates": {"input": "1"}}],
    )
    assert kinds(model("m", price(input="2", output="10")), ours)[0] == "same"


def test_a_step_that_the_list_no_longer_has_is_a_change() -> None:
    ours = sheet(long_context={"threshold": 9, "rates": {"input": "3"}})
    assert kinds(model("m", price(input="2", output="10")), ours)[2] == {
        "long_context.above 9.rates.input": ("3", None)
    }


# ── the command ──


def run(*words: str) -> int:
    return main(["prices", "import", "genai-prices", *words])


def facts(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


NEW = next(
    one.model
    for one in compare(
        offers(TODAY), load_book(), TODAY, source="a list", only={"providers": frozenset({"openrouter"})}
    ).news
    if one.kind == "new"
)
"""A model of which the installed list has a price and the book has none."""

LISTED = ("--provider", "openrouter", "--model", NEW)


def test_without_apply_nothing_is_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*LISTED) == 1
    said = capsys.readouterr().out
    assert f"+ openrouter {NEW} from " in said
    assert "nothing was written; --apply appends the rows to faregate.prices.toml" in said
    assert list(here.iterdir()) == []


def test_with_apply_rows_are_appended_and_then_they_are_no_news(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = here / "faregate.prices.toml"
    own.write_text('# mine\ncurrency = "USD"\n')
    assert run(*LISTED, "--apply") == 0
    said = capsys.readouterr().out
    assert "1 rows appended to faregate.prices.toml" in said
    assert 'price_file = "faregate.prices.toml" under [gateway]' in said
    text = own.read_text()
    assert text.startswith('# mine\ncurrency = "USD"\n\n[[prices]]\n')
    (row,) = read_price_file(own, origin="own").rows
    assert (row.provider, row.model) == ("openrouter", NEW)
    assert (row.row.source or "").startswith(f"genai-prices {package_version()} (https://openrouter.ai/")
    assert row.row.checked_on == datetime.now(UTC).date().isoformat()
    assert run(*LISTED, "--apply", "--json") == 0
    assert facts(capsys)["appended"] == 0
    assert own.read_text() == text
    assert main(["prices", "check", "faregate.prices.toml"]) == 0


def test_the_file_that_the_configuration_names_is_appended_to(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine.toml").write_text('currency = "USD"\n')
    (here / "faregate.toml").write_text(
        'schema = 1\n[gateway]\nkey_secret = { env = "K" }\nadmin_secret = { env = "A" }\ndefault = "t"\n'
        'price_file = "mine.toml"\n[providers.p]\ndialect = "openrouter"\nbase_url = "https://x.example/v1"\n'
        f'[deployments.d]\nprovider = "p"\nmodel = "{NEW}"\n'
        '[tiers.t]\ndeployments = ["d"]\n'
    )
    assert run(*LISTED, "--apply") == 0
    assert "under [gateway]" not in capsys.readouterr().out
    assert main(["prices", "show", "d", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["price_id"].startswith(f"own:openrouter/{NEW}@")


def test_what_the_checks_stop_is_not_appended(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--provider", "anthropic", "--model", "claude-v1")  # its list has no cached price
    assert run(*words, "--apply") == 1
    said = capsys.readouterr().out
    assert "NOT TAKEN" in said
    assert "rates.input_cached is missing; models of anthropic cache" in said
    assert not (here / "faregate.prices.toml").exists()
    assert run(*words, "--apply", "--yes", "--json") == 0
    assert facts(capsys)["appended"] == 1


def test_an_own_file_that_is_broken_is_told_and_left(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = here / "faregate.prices.toml"
    own.write_text("broken")
    assert run(*LISTED, "--apply") == 2
    assert "faregate.prices.toml: cannot be read" in capsys.readouterr().err
    assert own.read_text() == "broken"


def test_without_the_package_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.metadata as metadata

    def none(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("faregate.prices.genai.version", none)
    assert run() == 2
    assert "it comes with the extra `prices`: pip install 'faregate[prices]'" in capsys.readouterr().err
    with pytest.raises(NotInstalled):
        package_version()


def test_the_book_has_what_the_list_says_of_models_that_coding_agents_use() -> None:
    only = {"providers": frozenset({"anthropic"})}
    found = compare(offers(TODAY), load_book(), TODAY, source="a list", only=only)
    kept = {one.model: one.kind for one in found.news}
    for name in (
        "claude-opus-4-5",
        "claude-opus-4-6",
        "claude-sonnet-4-5",
        "claude-haiku-4-5",
        "claude-opus-5-5",
    ):
        assert kept[name] == "same", name
