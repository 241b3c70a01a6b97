"""Keys between the ledger and the key ring."""

from collections.abc import Generator
from pathlib import Path

import pytest

from gateway.auth import KeyRing, key_hash
from gateway.errors import GatewayError
from gateway.keys import READ_AGAIN_SECONDS, KeyWatch, create_key, is_known, keep_key
from ledger.store import Ledger, LedgerAway, StoredKey, open_ledger

SECRET = "s" * 32
NOW = 1_800_000_000.0


class Ring:
    """A ring, its watch over a ledger, and a clock that can be set."""

    def __init__(self, ledger: Ledger) -> None:
        self.now = 0.0
        self.ring = KeyRing(SECRET)
        self.watch = KeyWatch(ledger, self.ring, cache_seconds=lambda: 300.0, clock=lambda: self.now)

    def is_let_in(self, key: str, now: float = NOW) -> bool:
        """Whether this key opens anything."""
        try:
            self.ring.caller_of([(b"authorization", f"Bearer {key}".encode())], address="peer", now=now)
        except GatewayError:
            return False
        return True


@pytest.fixture(scope="module")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An empty ledger's file; making one takes longer than a test here."""
    path = tmp_path_factory.mktemp("empty") / "ledger.db"
    open_ledger(f"sqlite:///{path}").close()
    return path.read_bytes()


@pytest.fixture
def ledger(tmp_path: Path, empty_ledger: bytes) -> Generator[Ledger]:
    (tmp_path / "ledger.db").write_bytes(empty_ledger)
    found = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield found
    found.close()


def test_a_key_is_kept_by_its_keyed_hash_alone(ledger: Ledger) -> None:
    made = create_key(ledger, SECRET, team="search")
    (row,) = ledger.list_keys()
    assert row.key_hash == key_hash(SECRET, made.key)
    assert made.key not in repr(row)
    assert made.key[3:] not in repr(row)
    assert made.key_id == row.key_id
    assert not Ring(ledger).is_let_in(row.key_hash)


def test_a_key_brings_its_team_and_its_limits(ledger: Ledger) -> None:
    made = create_key(
        ledger,
        SECRET,
        team="search",
        application="web",
        tiers=["small"],
        regions=["eu"],
        requests_per_minute=5,
        tokens_per_minute=6,
    )
    ring = Ring(ledger)
    ring.watch.look()
    caller = ring.ring.caller_of([(b"x-api-key", made.key.encode())], address="peer", now=NOW)
    assert (caller.key_id, caller.team, caller.application) == (made.key_id, "search", "web")
    assert (caller.tiers, caller.regions) == (frozenset({"small"}), frozenset({"eu"}))
    assert (caller.requests_per_minute, caller.tokens_per_minute) == (5, 6)


def test_no_tiers_is_not_every_tier(ledger: Ledger) -> None:
    made = create_key(ledger, SECRET, team="search", tiers=[])
    ring = Ring(ledger)
    ring.watch.look()
    caller = ring.ring.caller_of([(b"x-api-key", made.key.encode())], address="peer", now=NOW)
    assert caller.tiers == frozenset()


def test_a_key_of_ones_own_is_known_afterwards(ledger: Ledger) -> None:
    assert not is_known(ledger, SECRET, "fg-mine")
    keep_key(ledger, SECRET, "fg-mine", team="search")
    assert is_known(ledger, SECRET, "fg-mine")
    assert not is_known(ledger, "t" * 32, "fg-mine")


def test_a_look_takes_new_keys_in_and_revoked_ones_out(ledger: Ledger) -> None:
    ring = Ring(ledger)
    ring.watch.look()
    made = create_key(ledger, SECRET, team="search")
    assert not ring.is_let_in(made.key)
    ring.watch.look()
    assert ring.is_let_in(made.key)
    ledger.revoke_key(made.key_id, at_ms=int(NOW * 1000))
    ring.watch.look()
    assert not ring.is_let_in(made.key)


def test_a_key_ends_at_its_instant_without_a_look(ledger: Ledger) -> None:
    made = create_key(ledger, SECRET, team="search", expires_at_ms=int(NOW * 1000))
    ring = Ring(ledger)
    ring.watch.look()
    assert ring.is_let_in(made.key, now=NOW - 0.001)
    assert not ring.is_let_in(made.key, now=NOW)


def test_keys_are_read_when_one_was_made_or_revoked_and_once_a_minute(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    def key_rows() -> list[StoredKey]:
        rows = read()
        reads.append(len(rows))
        return rows

    def looked() -> list[int]:
        reads.clear()
        ring.watch.look()
        return reads.copy()

    read = ledger.key_rows
    monkeypatch.setattr(ledger, "key_rows", key_rows)
    ring = Ring(ledger)
    assert looked() == [0]
    assert looked() == []
    made = create_key(ledger, SECRET, team="search")
    assert looked() == [1]
    assert looked() == []
    ledger.revoke_key(made.key_id, at_ms=int(NOW * 1000))
    assert looked() == [0]
    ledger.revoke_key(made.key_id, at_ms=int(NOW * 1000))  # it was revoked already
    assert looked() == []
    ring.now += READ_AGAIN_SECONDS
    assert looked() == [0]


def test_without_the_ledger_known_keys_hold_for_a_while_and_then_none(ledger: Ledger) -> None:
    made = create_key(ledger, SECRET, team="search")
    ring = Ring(ledger)
    ring.watch.look()
    ring.now = 300.0
    ring.watch.away()
    assert ring.is_let_in(made.key)
    ring.now = 300.1
    ring.watch.away()
    assert not ring.is_let_in(made.key)
    ring.watch.look()  # it is back, with the same rows
    assert ring.is_let_in(made.key)


def test_a_ring_that_never_saw_the_ledger_lets_nobody_in(ledger: Ledger) -> None:
    made = create_key(ledger, SECRET, team="search")
    ring = Ring(ledger)
    ring.watch.away()
    assert not ring.is_let_in(made.key)


class AwayLedger(Ledger):
    """A ledger that cannot be read."""

    def __init__(self) -> None:
        """Nothing is opened."""

    def keys_version(self) -> str | None:
        raise LedgerAway("away")


def test_a_look_says_that_the_ledger_is_away() -> None:
    with pytest.raises(LedgerAway):
        Ring(AwayLedger()).watch.look()


def test_keys_are_known_once_they_were_read_and_until_the_ledger_was_away_too_long(ledger: Ledger) -> None:
    made = Ring(ledger)
    assert not made.watch.knows_keys
    made.watch.away()
    assert not made.watch.knows_keys
    made.watch.look()
    assert made.watch.knows_keys
    made.now = 300.0
    made.watch.away()
    assert made.watch.knows_keys
    made.now = 300.1
    made.watch.away()
    assert not made.watch.knows_keys
    made.watch.look()
    assert made.watch.knows_keys
