import itertools
import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.event_stream import Frame, FrameProblem, FrameSplitter, Headers
from gateway.wire.sse import MAX_EVENT_BYTES


def header(name: str, value: str | bytes, kind: int = 7) -> bytes:
    """A header whose value is a text, or is given as the bytes behind the kind."""
    raw = value if isinstance(value, bytes) else struct.pack(">H", len(value.encode())) + value.encode()
    return bytes([len(name)]) + name.encode() + bytes([kind]) + raw


def framed(payload: bytes, headers: bytes = b"", *, headers_length: int | None = None) -> bytes:
    told = len(headers) if headers_length is None else headers_length
    start = struct.pack(">II", 16 + len(headers) + len(payload), told)
    start += struct.pack(">I", crc32(start))
    frame = start + headers + payload
    return frame + struct.pack(">I", crc32(frame))


def event(name: str, payload: bytes = b"{}") -> bytes:
    return framed(payload, header(":message-type", "event") + header(":event-type", name))


STREAM = event("messageStart") + event("contentBlockDelta", b'{"delta":{"text":"Zo\xc3\xab"}}') + framed(b"")


def split(data: bytes, *cuts: int) -> list[Frame]:
    splitter = FrameSplitter()
    return [
        frame
        for start, end in itertools.pairwise([0, *sorted(cuts), len(data)])
        for frame in splitter.feed(data[start:end])
    ]


def test_frames_are_found_however_they_are_cut() -> None:
    whole = split(STREAM)
    assert [(frame.headers.name, frame.payload) for frame in whole] == [
        ("messageStart", b"{}"),
        ("contentBlockDelta", '{"delta":{"text":"Zoë"}}'.encode()),
        ("", b""),
    ]
    assert b"".join(frame.data for frame in whole) == STREAM
    for cut in range(len(STREAM)):
        assert split(STREAM, cut) == whole
    assert split(STREAM, *range(len(STREAM))) == whole


@given(
    st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=40)), max_size=5),
    st.lists(st.integers(0, 500), max_size=6),
)
def test_any_frames_are_given_out_as_they_came(frames: list[tuple[str, bytes]], cuts: list[int]) -> None:
    data = b"".join(event(name, payload) for name, payload in frames)
    found = split(data, *(min(cut, len(data)) for cut in cuts))
    assert [(frame.headers.name, frame.payload) for frame in found] == frames
    assert b"".join(frame.data for frame in found) == data


def test_a_frame_that_is_not_whole_is_not_given() -> None:
    assert split(STREAM[:-1]) == split(STREAM)[:-1]


@pytest.mark.parametrize(
    ("headers", "read"),
    [
        (b"", Headers("event", "")),
        (header(":event-type", "metadata"), Headers("event", "metadata")),
        (
            header(":message-type", "exception") + header(":exception-type", "throttlingException"),
            Headers("exception", "throttlingException"),
        ),
        (
            header(":message-type", "error")
            + header(":error-code", "InternalError")
            + header(":error-message", "gone"),
            Headers("error", "InternalError", "gone"),
        ),
        # Every other kind of value is passed over: true, false, 1, 2, 4 and 8 bytes, bytes, a time, an id.
        (
            header("a", b"", 0)
            + header("b", b"", 1)
            + header("c", b"1", 2)
            + header("d", b"12", 3)
            + header("e", b"1234", 4)
            + header("f", b"12345678", 5)
            + header("g", b"\x00\x03xyz", 6)
            + header("h", b"12345678", 8)
            + header("i", b"1234567890123456", 9)
            + header(":event-type", "metadata"),
            Headers("event", "metadata"),
        ),
    ],
)
def test_headers_say_what_the_payload_is(headers: bytes, read: Headers) -> None:
    assert split(framed(b"{}", headers))[0].headers == read


@pytest.mark.parametrize(
    "bad",
    [
        b"\x00" * 16,
        framed(b"", b"\x01a\x00", headers_length=7),
        STREAM[:9] + b"?" + STREAM[10:],
        STREAM[:20] + b"?" + STREAM[21:],
        framed(b"{}", header(":event-type", "x", 10)),
        framed(b"{}", header(":event-type", "x")[:-1]),
        framed(b"{}", b"\x05abc"),
        framed(b"{}", b"\x01a\x07\x00"),
        struct.pack(">III", 15, 0, crc32(struct.pack(">II", 15, 0))) + b"....",
        struct.pack(">III", 40, 25, crc32(struct.pack(">II", 40, 25))) + b"." * 28,
    ],
)
@pytest.mark.parametrize("size", [1, 13, 10_000])
def test_what_is_no_frame_is_refused_and_those_before_it_are_given(bad: bytes, size: int) -> None:
    data = event("first") + bad + event("last")
    frames: list[Frame] = []
    with pytest.raises(FrameProblem) as caught:
        feed_all(data, size, frames)
    frames += caught.value.frames
    assert [frame.headers.name for frame in frames] == ["first"]
    assert not caught.value.is_too_long


def feed_all(data: bytes, size: int, frames: list[Frame]) -> None:
    splitter = FrameSplitter()
    for start in range(0, len(data), size):
        frames += splitter.feed(data[start : start + size])


@pytest.mark.parametrize("size", [1000, 5_000_000])
def test_a_frame_over_the_limit_is_refused_as_soon_as_it_says_so(size: int) -> None:
    frames: list[Frame] = []
    with pytest.raises(FrameProblem) as caught:
        feed_all(event("first") + framed(b"x" * MAX_EVENT_BYTES)[:5000], size, frames)
    assert caught.value.is_too_long
    assert [frame.headers.name for frame in frames + caught.value.frames] == ["first"]
    at_the_limit = framed(b"x" * (MAX_EVENT_BYTES - 16))
    assert [len(frame.data) for frame in split(at_the_limit, 7)] == [MAX_EVENT_BYTES]


def test_headers_that_are_ever_new_are_not_all_kept() -> None:
    splitter = FrameSplitter()
    for number in range(1000):
        assert splitter.feed(event(f"e{number}"))[0].headers.name == f"e{number}"
    assert len(splitter._known) == 32  # pyright: ignore[reportPrivateUsage] - memory is what it is about
