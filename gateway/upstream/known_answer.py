"""The head of a provider's whole answers, known again by its bytes.

A provider writes the same head again and again: a few values differ (date, request id, what is left of a limit),
the rest is the same to the byte. Where an answer came whole in one read, and all that may not differ is as the
parser has taken it before, there is nothing to parse. Anything else is the parser's: another head or order, a
length that does not say how much has come, a value with an unusual byte.

Which values differ is learned by comparing one answer with the next. What the framing hangs on never differs,
but for the one `content-length`.
"""

LONGEST_HEAD = 4_096  # bytes; longer ones are parsed each time
LONGEST_VALUE = 256  # bytes of a value that differs
MOST_VARYING = 16  # values that differ

_LEARNING = 32  # answers that may each teach something; after so many only every 64th is looked at
_STATUS = b"HTTP/1.1 200 "
_LENGTH = b"content-length"
_FRAMING = frozenset(
    {
        b"connection",
        b"content-encoding",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_LINE = b"\r\n"
_END = b"\r\n\r\n"
_PLAIN = bytes(range(0x20, 0x7F))

Headers = list[tuple[bytes, bytes]]


class KnownAnswers:
    """What is known of one provider's answers with status 200."""

    __slots__ = ("_gaps", "_headers", "_learned", "_length_at", "_start", "_varying")

    def __init__(self) -> None:
        self._start = b"\0"  # up to the first value that differs; at first nothing an answer begins with
        self._gaps: list[tuple[int, bytes, bytes, int]] = []
        """Per value that differs: which header it is of, its name, what follows the value, how long that is."""
        self._length_at = 0  # which header is the length
        self._headers: Headers = []
        self._varying: set[bytes] = set()  # names whose values differ
        self._learned = 0

    def find(self, data: bytes) -> tuple[Headers, bytes] | None:
        """Headers and body, if `data` is one whole answer with a head that is known; None: ask the parser."""
        start = self._start
        if not data.startswith(start):
            return None
        at = len(start)
        length = 0
        headers = self._headers.copy()
        length_at = self._length_at
        for place, name, after, size in self._gaps:
            end = data.find(_LINE, at, at + LONGEST_VALUE)
            if not data.startswith(after, end):  # nor if there is no end: -1 is where the last byte stands
                return None
            value = data[at:end]
            if place == length_at:
                if not value.isdigit():
                    return None
                length = int(value)
            elif not value or value.translate(None, _PLAIN) or value.strip() != value:
                return None
            headers[place] = (name, value)
            at = end + size
        if not length or len(data) - at != length:
            return None
        return headers, data[at:]

    def learn(self, data: bytes, headers: Headers) -> None:
        """The parser has taken `data` as one whole answer with status 200, on a connection that stays open."""
        self._learned += 1
        if self._learned > _LEARNING and self._learned % 64:
            return
        end = data.find(_END, 0, LONGEST_HEAD)
        status, *lines = data[: max(end, 0)].split(_LINE)
        written = [_written(line, header) for line, header in zip(lines, headers, strict=False)]
        names = [name for name, _ in headers]
        if not status.startswith(_STATUS) or len(lines) != len(headers) or not all(written):
            return  # an informational answer came before it, or it is written in an unusual way
        if names.count(_LENGTH) != 1 or b"transfer-encoding" in names:
            return
        if names == [name for name, _ in self._headers]:
            self._varying.update(
                new[0] for new, old in zip(headers, self._headers, strict=True) if new[1] != old[1]
            )
        else:
            self._varying = {_LENGTH}
        if len(self._varying) > MOST_VARYING:
            return
        varying = self._varying = (self._varying - _FRAMING) | {_LENGTH}
        pieces = [status + _LINE]
        places: list[int] = []
        for place, (start, (name, value)) in enumerate(zip(written, headers, strict=True)):
            pieces[-1] += start
            if name in varying:
                places.append(place)
                pieces.append(_LINE)
            else:
                pieces[-1] += value + _LINE
        pieces[-1] += _LINE
        self._start = pieces[0]
        self._gaps = [
            (place, names[place], after, len(after)) for place, after in zip(places, pieces[1:], strict=True)
        ]
        self._length_at = names.index(_LENGTH)
        self._headers = headers.copy()


def _written(line: bytes, header: tuple[bytes, bytes]) -> bytes:
    """How a header's line begins, up to its value; nothing if it is not written in the usual way."""
    name, value = header
    start = line[: len(name) + 2]
    return start if value and start.lower() == name + b": " and line[len(start) :] == value else b""
