import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.mending import mended


def any_value(value: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"text":"one tw', {"text": "one tw"}),
        (b'{"text":"one\\', {"text": "one"}),
        (b'{"text":"one\\u00e', {"text": "one"}),
        (b'{"text":"a","n":[1,{"b":"c"', {"text": "a", "n": [1, {"b": "c"}]}),
        (b'{"text":"a","other', {"text": "a"}),
        (b'{"text":"a","done":tru', {"text": "a"}),
        (b'[{"text":"a"},\n{"text":"b', [{"text": "a"}, {"text": "b"}]),
        (b'  {"text":"a"', {"text": "a"}),
        (b'{"text":"a"}', {"text": "a"}),
    ],
)
def test_a_body_is_closed_where_it_broke(body: bytes, value: object) -> None:
    assert mended(body, any_value) == value


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":7,"count":12', {"a": 7}),  # it may be the beginning of 1,200
        (b'{"a":7,"count":12,', {"a": 7, "count": 12}),
        (b'{"a":7,"count":12 ', {"a": 7, "count": 12}),
        (b'{"a":7,"count":1.5e', {"a": 7}),
        (b'{"a":7,"model":"gpt-5', {"a": 7}),  # it may be that of gpt-5-mini
        (b'{"a":7,"modelVersion" : "gemini-2.5-flash', {"a": 7}),
        (b'{"a":7,"model":"gpt-5"', {"a": 7, "model": "gpt-5"}),
        (b'{"a":7,"serviceTier":"p', {"a": 7}),
    ],
)
def test_half_of_a_number_or_a_name_is_no_number_and_no_name(body: bytes, value: object) -> None:
    assert mended(body, any_value) == value


@pytest.mark.parametrize("body", [b"", b"<html>", b"words", b'"text', b"12", b"}", b"{]}", b"[" * 40])
def test_what_cannot_be_closed_is_nothing(body: bytes) -> None:
    assert mended(body, any_value) is None


def test_only_what_is_an_answer_is_given() -> None:
    assert mended(b'{"a":"b', lambda value: isinstance(value, dict) and "c" in value) is None
    assert mended(b'{"c":"b","a":"d', lambda value: value == {"c": "b"}) == {"c": "b"}


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=6)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    st.integers(0, 200),
    st.booleans(),
)
def test_any_cut_of_any_json_is_mended_or_given_up(value: object, cut: int, is_ascii: bool) -> None:
    body = json.dumps({"a": value}, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    found = mended(body[:cut], any_value)
    assert found is None or isinstance(found, dict)


def test_a_huge_body_is_looked_at_in_bounded_time() -> None:
    for body in (b'{"a":"' + b"x" * 5_000_000, b"[0," * 300_000, b'{"a":"' + b'\\"' * 400_000):
        mended(body, any_value)
