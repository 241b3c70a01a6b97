import pytest
from hypothesis import given
from hypothesis import strategies as st

from routers.session import (
    MAX_ID,
    PREFIX_BYTES,
    clean_id,
    session_from_opening,
    session_from_prefix,
    session_in_user_id,
)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("s-1", "s-1"),
        ("  s 1 ", "s 1"),
        ("a\r\nb\x00c\x1b", "abc"),
        ("é漢", "é漢"),
        ("x" * 500, "x" * MAX_ID),
        ("", None),
        ("\n\t", None),
        ("   ", None),
        (5, None),
        (None, None),
        (["s"], None),
    ],
)
def test_an_id_is_kept_printable_and_short(text: object, cleaned: str | None):
    assert clean_id(text) == cleaned


@pytest.mark.parametrize(
    ("user_id", "session"),
    [
        ("user_0a_account__session_8f-1", "8f-1"),
        ("user_0a_account_1b_session_8f-1", "8f-1"),
        ('{"device_id":"d","session_id":"8f-1"}', "8f-1"),
        ('{"session_id": "8f-1", "device_id":"d"}', "8f-1"),
        ("user_0a_account__session_", None),
        ("jane", None),
        ('{"device_id":"d"}', None),
        (None, None),
        (7, None),
    ],
)
def test_a_user_id_may_hold_a_session(user_id: object, session: str | None):
    assert session_in_user_id(user_id) == session


def test_the_same_beginning_is_the_same_session_and_only_for_one_key():
    prefix = (b"[tools]", b'"system"', b'"first"')
    assert session_from_prefix("k1", prefix) == session_from_prefix("k1", iter(prefix))
    assert session_from_prefix("k1", prefix) != session_from_prefix("k2", prefix)
    assert session_from_prefix("k1", prefix).isprintable()
    assert len(session_from_prefix("k1", prefix)) <= MAX_ID


@pytest.mark.parametrize(
    "other",
    [
        (b"[tools]", b'"system"', b'"First"'),
        (b"[tools]", b'"system"'),
        (b"[tools]", b'"system""first"'),
        (b"[tools]", b"", b'"system"', b'"first"'),
        (b'[tools]"system"', b'"first"'),
    ],
)
def test_another_beginning_is_another_session(other: tuple[bytes, ...]):
    assert session_from_prefix("k", other) != session_from_prefix("k", (b"[tools]", b'"system"', b'"first"'))


def test_only_the_first_64_kib_count():
    long = b"a" * PREFIX_BYTES
    assert session_from_prefix("k", [b"x", memoryview(long + b"1")]) == session_from_prefix(
        "k", [b"x", long + b"2"]
    )
    assert session_from_prefix("k", [long[:-1] + b"1"]) != session_from_prefix("k", [long[:-1] + b"2"])


def test_a_part_that_changes_with_every_request_is_left_out():
    def system(noise: str) -> bytes:
        header = f"x-anthropic-billing-header: a; cch={noise};"
        return f'[{{"type":"text","text":"{header}"}},{{"text":"be kind"}}]'.encode()

    assert session_from_prefix("k", [system("00001")]) == session_from_prefix("k", [system("fffff")])


_NOISE = b"x-anthropic-billing-header: a; cch=1;"


def _begun(before: int, behind: bytes) -> bytes:
    return b'"' + b"a" * before + _NOISE + behind


_part = st.one_of(
    st.binary(max_size=40),
    st.builds(_begun, st.integers(0, 300), st.sampled_from([b"", b'","text":"x"', b'"'])),
)


@given(st.text(max_size=5), _part, st.none() | _part, _part)
def test_the_usual_opening_has_the_name_that_its_parts_have(
    key_id: str, tools: bytes, system: bytes | None, user: bytes
):
    parts = [tools, user] if system is None else [tools, system, user]
    assert session_from_opening(key_id, tools, system, user) == session_from_prefix(key_id, parts)
