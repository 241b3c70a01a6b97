import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.sse import MAX_EVENT_BYTES, EventSplitter, SseTooLong, payload_of, without_byte_order_mark

STREAM = 'data: {"a": "Zoë"}\r\n\r\n: a comment\n\ndata:x\rdata:  y\r\revent: e\nid: 1\n\n\n\ndata: last\n\n'.encode()


def pieces(data: bytes, *cuts: int) -> list[bytes]:
    borders = [0, *sorted(cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(borders)]


def feed_all(data: bytes, size: int, events: list[bytes]) -> None:
    splitter = EventSplitter()
    for at in range(0, len(data), size):
        events += splitter.feed(data[at : at + size])


def split(chunks: list[bytes]) -> tuple[list[bytes], bytes]:
    """The events, each with the LF that came late, and what is held at the end."""
    splitter = EventSplitter()
    events: list[bytes] = []
    for chunk in chunks:
        found = splitter.feed(chunk)
        if splitter.continued:
            events[-1] += found.pop(0)
        events += found
    return events, splitter.held


def test_events_are_given_out_as_the_bytes_they_came_in() -> None:
    events, held = split([STREAM])
    assert b"".join(events) == STREAM
    assert held == b""
    assert [payload_of(event) for event in events] == [
        '{"a": "Zoë"}'.encode(),
        None,
        b"x\n y",
        None,
        None,
        None,
        b"last",
    ]


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_the_splitter_does_not_care_where_the_network_cuts(cut: int) -> None:
    assert split(pieces(STREAM, cut)) == split([STREAM])


def test_the_splitter_takes_single_bytes() -> None:
    assert split([STREAM[at : at + 1] for at in range(len(STREAM))]) == split([STREAM])


@given(
    data=st.text(alphabet="data: x\r\n{}", max_size=60).map(str.encode),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_any_bytes_are_split_the_same_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    events, held = split(pieces(data, *(min(cut, len(data)) for cut in cuts)))
    assert (events, held) == split([data])
    assert b"".join(events) + held == data


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\n\n", b"a"),
        (b"data:  a\n\n", b" a"),
        (b"data\n\n", None),
        (b"data:\n\n", None),
        (b"data: a\ndata\ndata: b\n\n", b"a\n\nb"),
        (b"data: a\r\ndata: b\r\n\r\n", b"a\nb"),
        (b"data: a\rdata: b\r\r", b"a\nb"),
        (b": data: a\n\n", None),
        (b"database: a\n\n", None),
        (b" data: a\n\n", None),
        (b"event: e\nid: 7\nretry: 1\ndata: a\n\n", b"a"),
        (b"Data: a\n\n", None),
        (b"data: a", b"a"),
        (b"", None),
    ],
)
def test_a_payload_is_read_as_the_standard_says(event: bytes, payload: bytes | None) -> None:
    assert payload_of(event) == payload


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert payload_of(without_byte_order_mark(b"\xef\xbb\xbfdata: a\n\n")) == b"a"
    assert without_byte_order_mark(b"data: a\n\n") == b"data: a\n\n"


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("size", [997, 65_536, MAX_EVENT_BYTES * 2])
def test_an_event_of_the_longest_length_passes_and_a_longer_one_does_not(end: bytes, size: int) -> None:
    counted = len(end.rstrip(b"\n")) if b"\r" in end else len(end)  # an LF behind a CR does not count
    longest = b"data: " + b"x" * (MAX_EVENT_BYTES - 6 - counted) + end
    body = b"data: before\n\n" + longest + b"data: after\n\n"
    events, _ = split([body[at : at + size] for at in range(0, len(body), size)])
    assert [len(event) for event in events] == [14, len(longest), 13]
    longer = b"data: before\n\n" + b"y" + longest
    events = list[bytes]()
    with pytest.raises(SseTooLong) as wrong:
        feed_all(longer, size, events)
    assert events + wrong.value.events == [b"data: before\n\n"]


def test_a_line_without_an_end_is_refused_at_the_limit() -> None:
    with pytest.raises(SseTooLong):
        feed_all(b"x" * (MAX_EVENT_BYTES + 1), 16_384, list[bytes]())
    feed_all(b"x" * MAX_EVENT_BYTES, 16_384, list[bytes]())


def test_a_long_event_in_single_bytes_is_not_searched_again_and_again() -> None:
    splitter = EventSplitter()
    for _ in range(200_000):
        splitter.feed(b"x")
    assert splitter.feed(b"\n\n") == [b"x" * 200_000 + b"\n\n"]
    assert splitter.is_empty
