"""`faregate prices check` refuses what cannot be meant, and asks about what is hardly meant."""

import json
from pathlib import Path

import pytest

from faregate.cli import main

GOOD = """provider = "house"
currency = "USD"
[[prices]]
model = "m"
from = 2026-06-01
rates = { input = "2", output = "10" }
source = "a list"
checked_on = 2026-11-30
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(text: str, *words: str) -> int:
    Path("prices.toml").write_text(text)
    return main(["prices", "check", "prices.toml", *words])


def test_the_programs_own_book_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "check"]) == 0
    assert " 0 refused, 0 asked" in capsys.readouterr().out


def test_a_good_file_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(GOOD) == 0
    assert capsys.readouterr().out == "1 rows: 0 refused, 0 asked, 0 noted\n"


def test_what_is_asked_can_be_answered_in_the_row_or_on_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    strange = GOOD.replace('output = "10"', 'output = "1"')
    assert check(strange) == 1
    said = capsys.readouterr().out
    assert (
        'asked    prices.toml: prices[0] "m" from 2026-06-01: rates.output is less than rates.input' in said
    )
    assert "confirmed = true" in said
    assert check(strange, "--yes") == 0
    assert check(strange + "confirmed = true\n") == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('input = "2"', 'input = "0.000002"', "is that per token (2 per million)?"),
        ('input = "2"', 'input = "-2"', "rates.input must be a number of at least 0"),
        ('source = "a list"\n', "", "source is missing: where does this price stand?"),
        ("checked_on = 2026-11-30\n", "", "checked_on must be the day on which the source was read"),
        ('"USD"', '"EUR"', 'currency must be "USD"'),
        ("[[prices]]", "[[price]]", "price is unknown; did you mean prices?"),
        ('"10" }', '"10"', "cannot be read"),
    ],
)
def test_what_cannot_be_right_is_refused_whatever_is_answered(
    old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(GOOD.replace(old, new), "--yes") == 1
    out = capsys.readouterr().out
    assert out.startswith("refused  prices.toml: ")
    assert said in out


def test_a_day_that_is_there_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    row = GOOD[GOOD.index("[[prices]]") :]
    assert check(GOOD + row) == 1
    assert "from is that of another row of this model" in capsys.readouterr().out


def test_a_thousandfold_price_is_refused_also_against_the_programs_book(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = GOOD.replace('provider = "house"\n', "").replace(
        'model = "m"', 'provider = "openai"\nmodel = "gpt-5-mini"'
    )
    assert check(text.replace('"2"', '"250"').replace('"10"', '"999"'), "--json") == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"] == 1
    assert facts["problems"] == []
    assert {
        "file": "prices.toml",
        "level": "refused",
        "provider": "openai",
        "model": "gpt-5-mini",
        "from": "2026-06-01",
        "field": "rates.input",
        "message": "is 250 after 0.25: is the unit right?",
    } in facts["findings"]


def test_problems_are_facts_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(GOOD.replace("USD", "EUR"), "--json") == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["problems"] == [{"file": "prices.toml", "message": 'currency must be "USD"'}]


def test_a_file_that_is_not_there_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "check", "none.toml"]) == 2
    assert "none.toml is no file" in capsys.readouterr().err
