"""`faregate prices show` prints what holds at a moment, with its source, and never a neighbour's price."""

import json
from pathlib import Path
from typing import Any

import pytest

from faregate.cli import main

CONFIG = """schema = 1
[gateway]
key_secret = { env = "FAREGATE_KEY_SECRET" }
admin_secret = { env = "FAREGATE_ADMIN_SECRET" }
default = "standard"
[providers.one]
dialect = "openai"
base_url = "https://api.openai.com/v1"
[deployments.luna]
provider = "one"
model = "gpt-5.6-luna"
[deployments.terra]
provider = "one"
model = "gpt-5.6-terra"
[tiers.standard]
deployments = ["luna", "terra"]
[[prices]]
deployment = "luna"
from = 2026-08-01
rates = { input = "0.15", input_cached = "0.01", output = "1.00" }
source = "contract 7"
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def configured(here: Path) -> Path:
    (here / "faregate.toml").write_text(CONFIG)
    return here


def facts(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["prices", "show", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_set_of_rates_is_shown_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "show", "gpt-5.6-luna", "--at", "2026-08-01"]) == 0
    said = capsys.readouterr().out
    for words in ("plain ", "plain, input above 272,000", "flex", "source     https://", "checked on 2026-"):
        assert words in said
    assert "price      book:openai/gpt-5.6-luna@2026-07-30" in said
    assert "* from 2026-07-30: rates.input 1 -> 0.2" in said


@pytest.mark.parametrize(
    ("at", "price_id", "until"),
    [
        ("2026-07-29", "book:openai/gpt-5.6-luna@2026-07-09", "2026-07-30"),
        ("2026-07-30T02:00+02:00", "book:openai/gpt-5.6-luna@2026-07-30", None),
    ],
)
def test_the_row_of_the_moment_is_shown(
    at: str, price_id: str, until: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    (shown,) = facts(capsys, "gpt-5.6-luna", "--at", at)
    assert (shown["price_id"], shown["until"]) == (price_id, until)
    assert [one["from"] for one in shown["history"]] == ["2026-07-09", "2026-07-30"]
    cut = {change["what"]: (change["before"], change["after"]) for change in shown["history"][1]["changes"]}
    assert cut["rates.input"] == ("1", "0.2")


def test_facts_have_every_set_of_rates_as_exact_texts(capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = facts(capsys, "gpt-5.6-sol", "--at", "2026-09-01")
    assert shown["rate_sets"]["plain"]["input"] == "4"
    assert shown["rate_sets"]["flex, input above 272,000"]["input_cached"] == "0.4"
    assert shown["aliases"] == ["gpt-5.6"]
    assert shown["row"]["long_context"]["threshold"] == 272000


def test_a_window_is_named_once_and_told_when_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "show", "deepseek-v4-pro", "--at", "2026-11-27T06:30"]) == 0
    said = capsys.readouterr().out
    assert said.count("\npeak  ") == 1
    assert "peak: Monday to Friday 06:00-10:00 UTC, by the start of the request, at this moment" in said
    assert "peak: Monday to Friday 01:00-04:00 UTC, by the start of the request\n" in said
    (shown,) = facts(capsys, "deepseek-v4-pro", "--at", "2026-11-28T06:30")
    assert shown["window"] is None


def test_a_name_with_a_date_at_its_end_is_found_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = facts(capsys, "claude-sonnet-5-20260701")
    assert (shown["model"], shown["found_as"]) == ("claude-sonnet-5", "claude-sonnet-5")
    main(["prices", "show", "claude-sonnet-5-20260701"])
    assert (
        "found as claude-sonnet-5: claude-sonnet-5-20260701 has no price of its own"
        in capsys.readouterr().out
    )


def test_an_unknown_name_is_told_with_those_like_it_and_gets_no_price(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["prices", "show", "gpt-5.6-lunar"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "no price for gpt-5.6-lunar: its answers would be unpriced" in said.err
    assert "  gpt-5.6-luna (openai)" in said.err


def test_before_its_first_row_a_model_has_no_price(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "show", "gpt-5.6-luna", "--at", "2026-07-08"]) == 1
    assert "no price on 2026-07-08 00:00 UTC: the earliest is from 2026-07-09" in capsys.readouterr().out


def test_a_provider_narrows_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = facts(capsys, "openai/gpt-oss-120b")
    assert {"groq", "together"} <= {one["provider"] for one in shown}
    (only,) = facts(capsys, "openai/gpt-oss-120b", "--provider", "groq")
    assert only["provider"] == "groq"
    assert main(["prices", "show", "openai/gpt-oss-120b", "--provider", "grok"]) == 2
    assert "no provider grok in the price book; did you mean groq?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["luna", "gpt-5.6-luna", "gpt-5.6-luna-2026-07-09"])
def test_the_files_own_price_comes_first_and_is_said_to_win(
    name: str, configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = facts(capsys, name)
    own = shown[0]
    assert own["deployment"] == "luna"
    assert own["price_id"] == "file:luna@2026-08-01"
    assert own["source"] == "contract 7"
    assert own["rate_sets"] == {"plain": {"input": "0.15", "input_cached": "0.01", "output": "1"}}
    if name != "luna":
        assert shown[1]["provider"] == "openai"
        assert shown[1]["own_price_wins_for"] == ["luna"]


def test_before_the_contract_the_book_holds_for_it(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own,) = facts(capsys, "luna", "--at", "2026-07-31")
    assert own["price_id"] == "book:openai/gpt-5.6-luna@2026-07-30"


def test_a_deployment_without_a_price_of_its_own_has_the_books(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shown,) = facts(capsys, "terra")
    assert (shown["model"], shown["deployment"]) == ("gpt-5.6-terra", None)


def test_a_broken_file_is_not_passed_over(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "faregate.toml").write_text("schema = 2")
    assert main(["prices", "show", "gpt-5.6-luna"]) == 2
    assert "schema must be 1" in capsys.readouterr().err
    assert main(["prices", "show", "gpt-5.6-luna", "--config", "other.toml"]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_moment_that_is_none_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["prices", "show", "gpt-5.6-luna", "--at", "soon"])
    assert ended.value.code == 2
    assert "'soon' is no day or moment" in capsys.readouterr().err
