"""`faregate keys`, as a person runs it on one machine."""

import json
from pathlib import Path

import pytest

from faregate.cli import main
from faregate.secrets_file import SIMULATED_LEDGER
from ledger.store import Ledger, open_ledger

EXAMPLE = Path(__file__).parents[2] / "faregate.example.toml"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LEDGER_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FAREGATE_KEY_SECRET", "k" * 32)
    monkeypatch.setenv("FAREGATE_ADMIN_SECRET", "a" * 32)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faregate.toml").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["keys", "list", "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def in_ledger(path: Path) -> list[tuple[str, str, bool]]:
    ledger: Ledger = open_ledger(f"sqlite:///{path}")
    try:
        return [(row.key_id, row.key_hash, row.revoked_at_ms is not None) for row in ledger.list_keys()]
    finally:
        ledger.close()


def test_a_key_is_alone_on_standard_output_and_in_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "create", "--team", "default"]) == 0

    said = capsys.readouterr()
    key = said.out.removesuffix("\n")
    assert key.startswith("fg-")
    assert "\n" not in key
    assert said.err.endswith("a key of team default; it is shown only now\n")
    for path in folder.rglob("*"):
        assert path.is_dir() or key.encode() not in path.read_bytes()


def test_a_list_tells_what_each_key_may_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "list"]) == 0
    assert capsys.readouterr().out.startswith("no keys yet")
    words = (
        "create --team search --application receipts --tiers small fast --regions eu --tokens-per-minute 5"
    )
    assert main(["keys", *words.split()]) == 0
    assert "note: faregate.toml has no [teams.search]" in capsys.readouterr().err

    (row,) = listed(capsys)

    row.pop("key_id")
    row.pop("created_at")
    assert row == {
        "team": "search",
        "application": "receipts",
        "tiers": ["fast", "small"],
        "regions": ["eu"],
        "requests_per_minute": None,
        "tokens_per_minute": 5,
        "revoked": False,
    }


def test_a_tier_that_is_not_in_the_file_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "create", "--team", "search", "--tiers", "smal"]) == 2
    assert "no tier smal in faregate.toml; it has standard, fast, small" in capsys.readouterr().err


def test_a_revoked_key_stays_in_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "create", "--team", "search"])
    key_id = str(listed(capsys)[0]["key_id"])

    assert main(["keys", "revoke", key_id]) == 0

    assert listed(capsys)[0]["revoked"] is True
    assert main(["keys", "revoke", key_id]) == 1
    assert f"no open key {key_id}" in capsys.readouterr().err


def test_a_key_holds_in_the_simulated_ledger_too_and_is_revoked_in_both(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder / ".faregate"
    data.mkdir(mode=0o700)
    assert in_ledger(data / SIMULATED_LEDGER) == []

    main(["keys", "create", "--team", "search"])

    own = in_ledger(data / "ledger.db")
    assert own == in_ledger(data / SIMULATED_LEDGER)
    assert [row["key_id"] for row in listed(capsys)] == [own[0][0]]
    main(["keys", "revoke", own[0][0]])
    assert [revoked for _, _, revoked in in_ledger(data / "ledger.db")] == [True]
    assert [revoked for _, _, revoked in in_ledger(data / SIMULATED_LEDGER)] == [True]


def test_a_key_that_one_ledger_knows_is_revoked_in_all(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["keys", "create", "--team", "search"])
    data = folder / ".faregate"
    key_id = str(listed(capsys)[0]["key_id"])
    in_ledger(data / SIMULATED_LEDGER)  # makes it, without any key

    main(["keys", "revoke", key_id])

    assert [(known, revoked) for known, _, revoked in in_ledger(data / SIMULATED_LEDGER)] == [(key_id, True)]


def test_a_file_that_is_not_good_is_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "faregate.toml").write_text("schema = 2\n")

    assert main(["keys", "list"]) == 1
    assert "faregate.toml" in capsys.readouterr().err
