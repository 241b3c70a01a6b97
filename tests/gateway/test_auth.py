import re

import pytest

from gateway.auth import Caller, KeyRing, KeyRow, key_hash, new_key, new_key_id
from gateway.errors import GatewayError

SECRET = "a secret of the gateway"
KEY = "fg-" + "A" * 43
NOW = 1_796_000_040.0


def row(key: str = KEY, **changes: object) -> KeyRow:
    fields: dict[str, object] = {"key_id": "key_1", "key_hash": key_hash(SECRET, key), "team": "search"}
    return KeyRow(**(fields | changes))  # pyright: ignore[reportArgumentType] - a builder


def bearer(key: str | bytes) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + (key if isinstance(key, bytes) else key.encode()))]


def refusal(
    ring: KeyRing, headers: list[tuple[bytes, bytes]], *, address: str = "10.0.0.1", now: float = NOW
) -> tuple[int, str, str]:
    with pytest.raises(GatewayError) as raised:
        ring.caller_of(headers, address=address, now=now)
    return raised.value.status, raised.value.code, raised.value.message


def test_a_new_key_is_256_random_bits():
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(re.fullmatch(r"fg-[A-Za-z0-9_-]{43}", key) for key in keys)
    assert len({new_key_id() for _ in range(100)}) == 100


def test_a_keys_hash_depends_on_the_secret_and_the_whole_key():
    assert key_hash(SECRET, KEY) == key_hash(SECRET, KEY)
    assert key_hash(SECRET, KEY) != key_hash("another secret", KEY)
    assert key_hash(SECRET, KEY) != key_hash(SECRET, KEY[:-1] + "B")
    assert len(key_hash(SECRET, KEY)) == 64


def test_a_key_stands_for_its_caller_in_either_header():
    ring = KeyRing(
        SECRET,
        [
            row(
                application="tickets",
                tiers=frozenset({"fast"}),
                regions=frozenset({"eu"}),
                requests_per_minute=5,
            )
        ],
    )
    caller = Caller(
        key_id="key_1", team="search", application="tickets", tiers=frozenset({"fast"}),
        regions=frozenset({"eu"}), requests_per_minute=5,
    )  # fmt: skip
    both = [*bearer(KEY), (b"x-api-key", KEY.encode())]
    for headers in (
        bearer(KEY),
        [(b"x-api-key", KEY.encode())],
        both,
        [(b"authorization", b"bearer  " + KEY.encode())],
    ):
        assert ring.caller_of(headers, address="a", now=NOW) == caller


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Basic " + KEY.encode())],
        [(b"authorization", KEY.encode())],
        [(b"x-api-key", b"")],
        bearer("fg-wrong"),
        bearer(b"\xff\xfe"),
        bearer("x" * 100_000),
        bearer(KEY + "A"),
        bearer(KEY[:-1]),
        bearer(key_hash(SECRET, KEY)),
        [(b"cookie", KEY.encode())],
    ],
)
def test_without_a_right_key_the_answer_is_401(headers: list[tuple[bytes, bytes]]):
    assert refusal(KeyRing(SECRET, [row()]), headers)[:2] == (401, "invalid_api_key")


def test_unknown_revoked_and_expired_keys_get_the_same_answer():
    unknown = refusal(KeyRing(SECRET), bearer(KEY))
    revoked = refusal(KeyRing(SECRET, [row(revoked_at=NOW)]), bearer(KEY))
    expired = refusal(KeyRing(SECRET, [row(expires_at=NOW)]), bearer(KEY))
    assert unknown == revoked == expired
    later = KeyRing(SECRET, [row(expires_at=NOW + 1, revoked_at=NOW + 1)])
    assert later.caller_of(bearer(KEY), address="a", now=NOW).key_id == "key_1"


@pytest.mark.parametrize(
    "headers",
    [
        [*bearer(KEY), *bearer(KEY)],
        [*bearer(KEY), (b"x-api-key", b"fg-other")],
        [(b"x-api-key", KEY.encode()), (b"x-api-key", KEY.encode())],
    ],
)
def test_two_credentials_are_refused(headers: list[tuple[bytes, bytes]]):
    assert refusal(KeyRing(SECRET, [row()]), headers)[0] == 400


@pytest.mark.parametrize("length", [8, 20, 40])
def test_keys_that_begin_alike_are_two(length: int):
    other = KEY[:length] + "B" * (46 - length)
    ring = KeyRing(SECRET, [row(), row(other, key_id="key_2", team="sales")])
    assert ring.caller_of(bearer(KEY), address="a", now=NOW).team == "search"
    assert ring.caller_of(bearer(other), address="a", now=NOW).team == "sales"


def test_replacing_the_keys_forgets_those_before():
    ring = KeyRing(SECRET, [row()])
    ring.caller_of(bearer(KEY), address="a", now=NOW)
    ring.replace([row(key_id="key_9", tiers=frozenset[str]())])
    assert ring.caller_of(bearer(KEY), address="a", now=NOW).tiers == frozenset[str]()
    ring.replace([])
    assert refusal(ring, bearer(KEY))[0] == 401
    assert len(ring) == 0


def test_an_address_with_too_many_wrong_keys_must_wait_and_others_need_not():
    ring = KeyRing(SECRET, [row()])
    codes = [refusal(ring, bearer(f"fg-{n}"), now=NOW + n / 10)[0] for n in range(25)]
    assert codes == [401] * 20 + [429] * 5
    assert refusal(ring, bearer("fg-x"), address="10.0.0.2")[0] == 401
    assert ring.caller_of(bearer(KEY), address="10.0.0.2", now=NOW).key_id == "key_1"
    assert refusal(ring, bearer("fg-x"), now=NOW + 60)[0] == 401


def test_the_wait_ends_with_the_minute():
    ring = KeyRing(SECRET)
    for _ in range(20):
        refusal(ring, bearer("fg-x"), now=1_200_000_015)
    with pytest.raises(GatewayError) as raised:
        ring.caller_of(bearer("fg-x"), address="10.0.0.1", now=1_200_000_015)
    assert raised.value.retry_after_seconds == 45


def test_the_table_of_addresses_is_bounded():
    ring = KeyRing(SECRET)
    for n in range(10_001):
        refusal(ring, bearer("fg-x"), address=f"a{n}")
    assert len(ring._wrong._counts) <= 10_000  # pyright: ignore[reportPrivateUsage] - the bound is the point


def test_no_key_and_no_secret_is_in_what_a_key_ring_prints():
    ring = KeyRing(SECRET, [row()])
    assert repr(ring) == "KeyRing(1 keys)"
    assert KEY not in refusal(KeyRing(SECRET), bearer(KEY))[2]
