"""`faregate keys`, as a person runs it on one machine."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from faregate.cli import main
from faregate.run import ensure_key
from faregate.secrets_file import SIMULATED_LEDGER
from gateway.keys import create_key, keep_key
from ledger.store import Ledger, open_ledger

EXAMPLE = Path(__file__).parents[2] / "faregate.example.toml"
SECRET = "k" * 32


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LEDGER_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FAREGATE_KEY_SECRET", SECRET)
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


def test_a_key_with_an_id_in_each_ledger_is_one_key_and_is_revoked_in_all(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder / ".faregate"
    data.mkdir(mode=0o700)
    with (
        closing(open_ledger(f"sqlite:///{data / 'ledger.db'}")) as own,
        closing(open_ledger(f"sqlite:///{data / SIMULATED_LEDGER}")) as simulated,
    ):
        created = create_key(own, SECRET, team="local")
        other_id = keep_key(simulated, SECRET, created.key, team="local")
    assert [row["key_id"] for row in listed(capsys)] == [created.key_id]

    assert main(["keys", "revoke", other_id]) == 0

    assert [revoked for _, _, revoked in in_ledger(data / "ledger.db")] == [True]
    assert [revoked for _, _, revoked in in_ledger(data / SIMULATED_LEDGER)] == [True]
    assert main(["keys", "revoke", other_id]) == 1


def test_the_machines_own_key_is_made_anew_after_it_was_revoked(folder: Path) -> None:
    path = folder / "key"
    with closing(open_ledger(f"sqlite:///{folder / 'ledger.db'}")) as ledger:
        ensure_key(ledger, SECRET, path)
        first = path.read_text()
        ensure_key(ledger, SECRET, path)
        assert path.read_text() == first

        ledger.revoke_key(ledger.list_keys()[0].key_id, 1)
        ensure_key(ledger, SECRET, path)

        assert path.read_text() != first
        assert len(ledger.list_keys()) == 2


@pytest.mark.parametrize("words", ["list", "create --team search", "revoke key_1"])
def test_a_ledger_that_is_away_is_said_without_its_address(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEDGER_URL", "postgresql://faregate:password@127.0.0.1:1/ledger")

    assert main(["keys", *words.split()]) == 2

    said = capsys.readouterr()
    assert said.err.startswith("faregate keys: the ledger cannot be used: ")
    assert "password" not in said.err
    assert said.out == ""


@pytest.mark.parametrize("number", ["0", "-1", "many", "1.5"])
def test_a_limit_that_is_no_number_is_said_so(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["keys", "create", "--team", "search", f"--requests-per-minute={number}"])

    assert ended.value.code == 2
    assert f"'{number}' is no whole number of at least 1" in capsys.readouterr().err


def test_a_file_that_is_not_good_is_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "faregate.toml").write_text("schema = 2\n")

    assert main(["keys", "list"]) == 1
    assert "faregate.toml" in capsys.readouterr().err
