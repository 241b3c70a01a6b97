"""Keys between the ledger and the key ring: made, read, and kept fresh in a running process."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from gateway.auth import KeyRing, KeyRow, key_hash, new_key, new_key_id
from ledger.store import Ledger, StoredKey

LOOK_SECONDS = 1.0  # a revoked key is refused within two of these
READ_AGAIN_SECONDS = 60.0  # the keys are read in any case, for a ledger that was restored or mended by hand


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A key that was just made. `key` is known here and nowhere else."""

    key: str
    key_id: str


def create_key(
    ledger: Ledger,
    secret: str,
    *,
    team: str,
    application: str | None = None,
    tiers: Iterable[str] | None = None,
    regions: Iterable[str] | None = None,
    requests_per_minute: int | None = None,
    tokens_per_minute: int | None = None,
    expires_at_ms: int | None = None,
) -> Created:
    """Make a key and write down its keyed hash."""
    key = new_key()
    key_id = keep_key(
        ledger,
        secret,
        key,
        team=team,
        application=application,
        tiers=tiers,
        regions=regions,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        expires_at_ms=expires_at_ms,
    )
    return Created(key=key, key_id=key_id)


def keep_key(
    ledger: Ledger,
    secret: str,
    key: str,
    *,
    team: str,
    application: str | None = None,
    tiers: Iterable[str] | None = None,
    regions: Iterable[str] | None = None,
    requests_per_minute: int | None = None,
    tokens_per_minute: int | None = None,
    expires_at_ms: int | None = None,
) -> str:
    """Write down the keyed hash of a key that exists; gives its public id."""
    key_id = new_key_id()
    ledger.add_key(
        StoredKey(
            key_id=key_id,
            key_hash=key_hash(secret, key),
            team=team,
            application=application,
            tiers=None if tiers is None else frozenset(tiers),
            regions=None if regions is None else frozenset(regions),
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            created_at_ms=time.time_ns() // 1_000_000,
            expires_at_ms=expires_at_ms,
        )
    )
    return key_id


def is_known(ledger: Ledger, secret: str, key: str) -> bool:
    """True if the ledger has this key, open or revoked."""
    hashed = key_hash(secret, key)
    return any(row.key_hash == hashed for row in ledger.list_keys())


def is_revoked(ledger: Ledger, secret: str, key: str) -> bool:
    """True if the ledger has this key and it opens nothing any more."""
    hashed = key_hash(secret, key)
    return any(row.key_hash == hashed and row.revoked_at_ms is not None for row in ledger.list_keys())


def key_row(row: StoredKey) -> KeyRow:
    """A ledger's row as the key ring takes it."""
    return KeyRow(
        key_id=row.key_id,
        key_hash=row.key_hash,
        team=row.team,
        application=row.application,
        tiers=row.tiers,
        regions=row.regions,
        requests_per_minute=row.requests_per_minute,
        tokens_per_minute=row.tokens_per_minute,
        revoked_at=None if row.revoked_at_ms is None else row.revoked_at_ms / 1000,
        expires_at=None if row.expires_at_ms is None else row.expires_at_ms / 1000,
    )


class KeyWatch:
    """Keeps a key ring as the ledger has it; without the ledger the known keys stay valid for a while, then none."""

    def __init__(
        self,
        ledger: Ledger,
        ring: KeyRing,
        *,
        cache_seconds: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._ring = ring
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._rows: list[StoredKey] = []
        self._version: str | None = None  # of these rows
        self._read_again_at = -inf
        self._known_at: float | None = None
        self._is_closed = False

    @property
    def knows_keys(self) -> bool:
        """Whether the ledger's keys were read, and not so long ago that none is valid any more."""
        return self._known_at is not None and not self._is_closed

    def look(self) -> None:
        """Read the keys if they changed. Raises what the ledger raises when it is away."""
        now = self._clock()
        version = self._ledger.keys_version()  # first: what changes after it is seen by the next look
        if version != self._version or self._is_closed or now >= self._read_again_at:
            rows = self._ledger.key_rows()
            if rows != self._rows or self._is_closed:
                self._ring.replace(key_row(row) for row in rows)
                self._rows = rows
                self._is_closed = False
            self._version = version
            self._read_again_at = now + READ_AGAIN_SECONDS
        self._known_at = now

    def away(self) -> None:
        """The ledger could not be read: after `cache_seconds` no key is valid any more."""
        known_at = self._known_at
        if known_at is None or self._clock() - known_at > self._cache_seconds():
            self._ring.replace(())
            self._is_closed = True
