import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.json_elements import ElementSplitter, ElementTooLong, Piece
from gateway.wire.sse import MAX_EVENT_BYTES


def split(data: bytes, *cuts: int) -> tuple[list[bytes], bytes]:
    """The objects, and all that was given out."""
    splitter = ElementSplitter()
    pieces: list[Piece] = []
    for start, end in itertools.pairwise([0, *sorted(cuts), len(data)]):
        pieces += splitter.feed(data[start:end])
    return [piece.data for piece in pieces if piece.is_object], b"".join(piece.data for piece in pieces)


def feed_all(data: bytes, size: int, pieces: list[Piece]) -> None:
    splitter = ElementSplitter()
    for start in range(0, len(data), size):
        pieces += splitter.feed(data[start : start + size])


@pytest.mark.parametrize(
    ("data", "objects"),
    [
        (b'[{"a":1},\r\n{"b":[{}]}]', [b'{"a":1}', b'{"b":[{}]}']),
        (b'[ { "a" : "]},{" } ]\n', [b'{ "a" : "]},{" }']),
        (b'{"a":1}', [b'{"a":1}']),
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'[{"a":"\\"}"},[1,{}],2]', [b'{"a":"\\"}"}', b"[1,{}]"]),
        (b'["{", {"a":"\\\\"}]', [b'{"a":"\\\\"}']),
        (b"[]", []),
        (b"", []),
        (b"words", []),
        (b'[{"a":', []),
    ],
)
def test_objects_are_found_however_they_are_cut(data: bytes, objects: list[bytes]) -> None:
    found, out = split(data)
    assert found == objects
    assert data.startswith(out)
    for cut in range(len(data)):
        assert split(data, cut) == (found, out)
    assert split(data, *range(len(data))) == (found, out)


JSON = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(st.sampled_from('{}[]",\\é\n'), max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=3), max_size=4),
    st.sampled_from([None, 1]),
    st.lists(st.integers(0, 300), max_size=6),
)
def test_any_array_is_split_into_its_objects(
    values: list[dict[str, object]], indent: int | None, cuts: list[int]
) -> None:
    data = json.dumps(values, indent=indent, ensure_ascii=False).encode()
    found, out = split(data, *(min(cut, len(data)) for cut in cuts))
    assert [json.loads(one) for one in found] == values
    assert out == data


@given(st.lists(st.binary(max_size=12).map(lambda data: data + b'"{[}]\\'), max_size=6))
def test_any_bytes_are_given_out_in_order(chunks: list[bytes]) -> None:
    splitter = ElementSplitter()
    out = b"".join(piece.data for chunk in chunks for piece in splitter.feed(chunk))
    assert b"".join(chunks).startswith(out)


@pytest.mark.parametrize("size", [1000, 65_536, 5_000_000])
def test_an_object_over_the_limit_is_refused_and_those_before_it_are_given(size: int) -> None:
    data = b'[{"a":1},{"b":"' + b"x" * MAX_EVENT_BYTES + b'"}]'
    pieces: list[Piece] = []
    with pytest.raises(ElementTooLong) as caught:
        feed_all(data, size, pieces)
    pieces += caught.value.pieces
    assert [piece.data for piece in pieces if piece.is_object] == [b'{"a":1}']


def test_an_object_at_the_limit_passes() -> None:
    data = b'{"b":"' + b"x" * (MAX_EVENT_BYTES - 8) + b'"}'
    assert len(data) == MAX_EVENT_BYTES
    assert split(b"[" + data + b"]", 9)[0] == [data]
