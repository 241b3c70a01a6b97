"""`faregate ledger` lists what was written down, and says whether it adds up."""

import argparse
import json
from pathlib import Path

import pytest

from faregate.ledger_commands import register
from faregate.secrets_file import SIMULATED_LEDGER
from ledger.store import open_ledger
from tests.ledger.builders import NOON_MS, attempt, books, unpriced


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    args = parser.parse_args(["ledger", *arguments])
    return args.run(args)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/ledger.db"
    ledger = open_ledger(url)
    ledger.append(
        [
            books("req_1", attempt(input_cached=1000)),
            books("req_2", unpriced(1), attempt(2, state="estimated", started_at_ms=NOON_MS + 60_000)),
        ]
    )
    ledger.close()
    return url


def test_each_attempt_is_a_line_of_json(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--since", "2026-11-30", "--json", "--ledger", url) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["request_id"], row["n"], row["cost_pico_usd"]) for row in rows] == [
        ("req_1", 1, 45_000_000),
        ("req_2", 1, None),
        ("req_2", 2, 45_000_000),
    ]
    assert rows[1]["flags"] == ["unpriced"]


def test_a_time_and_a_number_bound_the_list(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("list", "--since", "2026-11-30T12:00:30", "--json", "--ledger", url)
    run(
        "list",
        "--since",
        "2026-11-30",
        "--until",
        "2026-11-30T13:00:30+01:00",
        "--limit",
        "1",
        "--json",
        "--ledger",
        url,
    )
    run("list", "--since", "2026-12-01", "--json", "--ledger", url)
    assert [json.loads(line)["request_id"] for line in capsys.readouterr().out.splitlines()] == [
        "req_2",
        "req_1",
    ]


def test_a_person_gets_a_table(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--since", "2026-11-30", "--ledger", url) == 0
    head, first, second, third = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["input", "cached", "output", "USD"]
    assert first.split()[-4:] == ["1,100", "1,000", "10", "0.000045"]
    assert second.split()[-1] == "unpriced"
    assert third.split()[-1] == "~0.000045"


def test_a_ledger_that_adds_up_is_clean(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", "--ledger", url) == 0
    assert capsys.readouterr().out == "the ledger adds up\n"


def test_what_does_not_add_up_is_listed_and_can_be_built_again(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = open_ledger(url)
    with ledger.writing() as connection:
        connection.exec_driver_sql("UPDATE day_total SET output_text = 0")
    ledger.close()
    assert run("verify", "--json", "--ledger", url) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["findings"][0].endswith("output_text is 0, the rows make 30")
    assert run("verify", "--rebuild", "--ledger", url) == 0


def test_who_finds_nothing_is_told_of_the_simulated_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "faregate.example.toml"
    (tmp_path / "faregate.toml").write_text(example.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.delenv("LEDGER_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".faregate").mkdir()
    other = f"sqlite:///.faregate/{SIMULATED_LEDGER}"
    open_ledger(other).close()

    assert run("list", "--since", "2026-11-01") == 2
    assert capsys.readouterr().err.endswith(f"another ledger is here: --ledger {other}\n")

    open_ledger("sqlite:///.faregate/ledger.db").close()
    assert run("list", "--since", "2026-11-01") == 0
    assert capsys.readouterr().err == f"another ledger is here: --ledger {other}\n"
    assert run("list", "--since", "2026-11-01", "--ledger", other) == 0
    assert capsys.readouterr().err == ""


def test_a_missing_ledger_or_file_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", "--ledger", f"sqlite:///{tmp_path}/none.db") == 2
    assert not (tmp_path / "none.db").exists()
    assert run("list", "--since", "2026-01-01", "--config", f"{tmp_path}/none.toml") == 2
    assert "cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit) as wrong:
        run("list", "--since", "yesterday")
    assert wrong.value.code == 2
