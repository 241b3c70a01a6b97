"""Frames of an AWS event stream (`application/vnd.amazon.eventstream`) from bytes, however the network cut them.

A frame is its own length, the length of its headers, a checksum of these two, the headers, the payload, and a checksum
of all before it; numbers are big-endian. A header is a name's length, the name, the kind of the value, and the value:
7 is a text behind its length of two bytes
(https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html, read 2026-12-01).

Frames are given out as the bytes they came in, so that what is passed on is what came.
"""

import struct
from typing import Final, Literal, NamedTuple
from zlib import crc32

from gateway.wire.sse import MAX_EVENT_BYTES

_PRELUDE: Final = struct.Struct(">III")
_CHECKSUM: Final = struct.Struct(">I")
_LEAST: Final = _PRELUDE.size + _CHECKSUM.size
_TEXT: Final = 7
_FIXED: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # kind of a value -> its length
_MOST_KNOWN = 32

MessageType = Literal["event", "exception", "error"]


class Headers(NamedTuple):
    """What the headers of a frame say of its payload."""

    message_type: MessageType
    name: str  # of the event, of the exception, or of the error
    message: str | None = None  # of an error, whose payload is empty


class Frame(NamedTuple):
    """One frame as it came, and what is in it."""

    data: bytes
    headers: Headers
    payload: bytes


class FrameProblem(Exception):
    """A frame cannot be read, or is longer than MAX_EVENT_BYTES. `frames` are those before it."""

    def __init__(self, frames: list[Frame], *, is_too_long: bool) -> None:
        super().__init__(
            f"a frame is longer than {MAX_EVENT_BYTES} bytes" if is_too_long else "a frame cannot be read"
        )
        self.frames = frames
        self.is_too_long = is_too_long


class FrameSplitter:
    """Give it bytes, get back the frames that are complete so far. Holds at most one frame."""

    __slots__ = ("_held", "_known", "_needed")

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed = _PRELUDE.size  # how much must be held before there is more to be read
        self._known: dict[bytes, Headers] = {}  # frames of one kind have the same headers

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete. Raises FrameProblem; after that the splitter is of no more use."""
        frames: list[Frame] = []
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return frames
            data = bytes(self._held)
            self._held.clear()
        at, size = 0, len(data)
        self._needed = _PRELUDE.size
        while size - at >= _PRELUDE.size:
            length, headers_length, checksum = _PRELUDE.unpack_from(data, at)
            if crc32(data[at : at + 8]) != checksum or headers_length > length - _LEAST:
                raise FrameProblem(frames, is_too_long=False)
            if length > MAX_EVENT_BYTES:
                raise FrameProblem(frames, is_too_long=True)
            if size - at < length:
                self._needed = length
                break
            frame = data[at : at + length]
            headers = None
            if _CHECKSUM.unpack_from(frame, length - 4)[0] == crc32(frame[:-4]):
                headers = self._headers(frame[12 : 12 + headers_length])
            if headers is None:
                raise FrameProblem(frames, is_too_long=False)
            frames.append(Frame(frame, headers, frame[12 + headers_length : -4]))
            at += length
        if at < size:
            self._held += data[at:]
        return frames

    def _headers(self, data: bytes) -> Headers | None:
        known = self._known.get(data)
        if known is None:
            known = _read(data)
            if known is not None and len(self._known) < _MOST_KNOWN:
                self._known[data] = known
        return known


def _read(data: bytes) -> Headers | None:
    """None: these are no headers."""
    texts: dict[bytes, str] = {}
    at, size = 0, len(data)
    while at < size:
        start = at + 1
        kind_at = start + data[at]
        if kind_at >= size:
            return None
        name, kind = data[start:kind_at], data[kind_at]
        at = kind_at + 1
        if kind in (6, _TEXT):
            end = at + 2 + int.from_bytes(data[at : at + 2], "big")
            if kind == _TEXT:
                texts[name] = data[at + 2 : end].decode("utf-8", "replace")
        elif kind in _FIXED:
            end = at + _FIXED[kind]
        else:
            return None
        if end > size:
            return None
        at = end
    if texts.get(b":message-type") == "exception":
        return Headers("exception", texts.get(b":exception-type", ""))
    if texts.get(b":message-type") == "error":
        return Headers("error", texts.get(b":error-code", ""), texts.get(b":error-message"))
    return Headers("event", texts.get(b":event-type", ""))
