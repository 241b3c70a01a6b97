"""Turns the key of a request into the caller it stands for.

Keys are kept as keyed hashes (HMAC-SHA256 of the whole key under the gateway's secret) and looked up by them:
a stolen table opens nothing, and two keys that begin alike are two. A key that is unknown, revoked or expired
gets the same answer. An address that tries too many wrong keys is told to wait, without a hash each.

The credential is in `Authorization: Bearer ...` or in `x-api-key`; both may be there if they are equal.
If they differ, or one stands twice, the request is refused: which one counts must not be a guess.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from gateway.errors import GatewayError, conflicting_credentials, invalid_api_key, rate_limit_exceeded

PREFIX = "fg-"
WRONG_KEYS_PER_MINUTE = 20  # from one address
_ADDRESSES_KEPT = 10_000
_LONGEST_CREDENTIAL = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks."""

    key_id: str
    team: str
    application: str | None = None
    tiers: frozenset[str] | None = None  # None: any
    regions: frozenset[str] | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    until: float = inf  # wall time in seconds (UTC) from which on the key is good no more


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One key as the ledger keeps it."""

    key_id: str  # short and public
    key_hash: str  # of `key_hash`
    team: str
    application: str | None = None
    tiers: frozenset[str] | None = None
    regions: frozenset[str] | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    revoked_at: float | None = None  # wall time in seconds (UTC)
    expires_at: float | None = None


def new_key() -> str:
    """A fresh key: 256 random bits, shown once and kept nowhere."""
    return PREFIX + secrets.token_urlsafe(32)


def new_key_id() -> str:
    """A fresh public id: it stands in logs and rows for the key, and says nothing about it."""
    return "key_" + secrets.token_hex(6)


def key_hash(secret: str, key: str) -> str:
    """The form in which a key is kept and looked up."""
    return hmac.digest(secret.encode(), key.encode("utf-8", "surrogateescape"), hashlib.sha256).hex()


def credential(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The key that a request carries; names of headers in lower case.

    Raises GatewayError: 401 where there is none, 400 where there are two.
    """
    bearer: bytes | None = None
    plain: bytes | None = None
    for name, value in headers:
        if name == b"authorization":
            if bearer is not None:
                raise conflicting_credentials("there are two Authorization headers; send one")
            bearer = value
        elif name == b"x-api-key":
            if plain is not None:
                raise conflicting_credentials("there are two x-api-key headers; send one")
            plain = value
    if bearer is None:
        if plain is None:
            raise invalid_api_key()
        return plain.strip()
    if bearer[:7].lower() != b"bearer ":
        raise invalid_api_key()
    key = bearer[7:].strip()
    if plain is not None and plain.strip() != key:
        raise conflicting_credentials("Authorization and x-api-key hold different keys; send one of them")
    return key


class KeyRing:
    """All keys, in memory. `replace` it whole whenever the ledger's keys may have changed."""

    def __init__(self, secret: str, rows: Iterable[KeyRow] = ()) -> None:
        self._keyed = hmac.new(secret.encode(), digestmod="sha256")  # copied for each key: begun once
        self._callers: dict[bytes, Caller] = {}
        self.generation = 0  # one more whenever the keys were replaced
        self._wrong = _WrongKeys()
        self.replace(rows)

    def __repr__(self) -> str:
        return f"KeyRing({len(self._callers)} keys)"

    def __len__(self) -> int:
        return len(self._callers)

    def replace(self, rows: Iterable[KeyRow]) -> None:
        """Take these keys and forget all others."""
        self.generation += 1
        self._callers = {
            bytes.fromhex(row.key_hash): Caller(
                key_id=row.key_id,
                team=row.team,
                application=row.application,
                tiers=row.tiers,
                regions=row.regions,
                requests_per_minute=row.requests_per_minute,
                tokens_per_minute=row.tokens_per_minute,
                until=min(
                    inf if row.revoked_at is None else row.revoked_at,
                    inf if row.expires_at is None else row.expires_at,
                ),
            )
            for row in rows
        }

    def caller_of(self, headers: Iterable[tuple[bytes, bytes]], *, address: str, now: float) -> Caller:
        """Who sent these headers (names in lower case) from this peer address.

        `now` is wall time in seconds. Raises GatewayError: `invalid_api_key`, or `rate_limit_exceeded` for an
        address with too many wrong keys.
        """
        key = credential(headers)
        if key and len(key) <= _LONGEST_CREDENTIAL:
            keyed = self._keyed.copy()
            keyed.update(key)
            caller = self._callers.get(keyed.digest())
            if caller is not None and now < caller.until:
                return caller
        raise self._wrong.note(address, now)


class _WrongKeys:
    """Wrong keys by address, over whole minutes. The table forgets all when it is full or a minute ends."""

    def __init__(self) -> None:
        self._minute = 0
        self._counts: dict[str, int] = {}

    def note(self, address: str, now: float) -> GatewayError:
        """Count one; what to answer."""
        minute = int(now // 60)
        if minute != self._minute or len(self._counts) >= _ADDRESSES_KEPT:
            self._minute = minute
            self._counts.clear()
        count = self._counts.get(address, 0) + 1
        self._counts[address] = count
        if count > WRONG_KEYS_PER_MINUTE:
            return rate_limit_exceeded(
                "too many wrong keys from this address", retry_after_seconds=60 - now % 60
            )
        return invalid_api_key()
