"""The objects of a JSON array that comes in pieces, however the network cut them.

Gemini streams so where nobody asks for events: `[{...},` first, the next objects as they are made, and `]` at the end.
What stands around the objects is given out as it comes; an object is held until it is whole.
"""

import re
from typing import Final, NamedTuple

from gateway.wire.sse import MAX_EVENT_BYTES

# A text is one token, and so is one that does not end.
_TOKENS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+("|\\?\Z)|[{}\[\]]', re.DOTALL)
_REST_OF_TEXT: Final = re.compile(rb'(?:[^"\\]++|\\.)*+("|\\?\Z)', re.DOTALL)
_QUOTE, _OPEN_OBJECT, _OPEN_ARRAY = b'"{['


class Piece(NamedTuple):
    """Bytes as they came: an object, or what stands between two."""

    data: bytes
    is_object: bool


class ElementTooLong(Exception):
    """An object is longer than MAX_EVENT_BYTES. `pieces` are those before it."""

    def __init__(self, pieces: list[Piece]) -> None:
        super().__init__(f"an object is longer than {MAX_EVENT_BYTES} bytes")
        self.pieces = pieces


class ElementSplitter:
    """Give it bytes, get back the pieces that are complete so far. Holds at most one object."""

    __slots__ = ("_after_backslash", "_base", "_depth", "_held", "_in_text")

    def __init__(self) -> None:
        self._held = bytearray()  # the object that is not whole yet
        self._base = 0  # how many brackets stand around an object: 1 in an array
        self._depth = 0
        self._in_text = False
        self._after_backslash = False

    @property
    def is_between(self) -> bool:
        """True if the next bytes stand between the objects of an array, or begin one."""
        return self._depth == 1 == self._base and not self._in_text

    def feed(self, data: bytes) -> list[Piece]:
        """What these bytes complete. Raises ElementTooLong; after that the splitter is of no more use."""
        pieces: list[Piece] = []
        start = 0  # where the piece begins that is not complete yet
        at = self._end_of_text(data) if self._in_text and data else 0
        base, depth = self._base, self._depth
        for token in _TOKENS.finditer(data, at):
            kind = data[token.start()]
            if kind == _QUOTE:
                if token[1] != b'"':
                    self._text_goes_on(token[1])
            elif kind == _OPEN_OBJECT or (kind == _OPEN_ARRAY and depth):
                if depth == base:
                    if start < token.start():
                        pieces.append(Piece(data[start : token.start()], is_object=False))
                    start = token.start()
                depth += 1
            elif kind == _OPEN_ARRAY:
                base = depth = 1
            elif depth > base:
                depth -= 1
                if depth == base:
                    self._held += data[start : token.end()]
                    start = token.end()
                    if len(self._held) > MAX_EVENT_BYTES:
                        raise ElementTooLong(pieces)
                    pieces.append(Piece(bytes(self._held), is_object=True))
                    self._held.clear()
            else:
                base = depth = 0
        self._base, self._depth = base, depth
        if start < len(data):
            if depth > base:
                self._held += data[start:]
                if len(self._held) > MAX_EVENT_BYTES:
                    raise ElementTooLong(pieces)
            else:
                pieces.append(Piece(data[start:], is_object=False))
        return pieces

    def _end_of_text(self, data: bytes) -> int:
        """Where the text ends in which the data begins, or the end of the data."""
        rest = _REST_OF_TEXT.match(data, 1 if self._after_backslash else 0)
        assert rest is not None  # it matches nothing, too
        self._text_goes_on(rest[1])
        return rest.end()

    def _text_goes_on(self, end: bytes) -> None:
        self._in_text = end != b'"'
        self._after_backslash = end == b"\\"
