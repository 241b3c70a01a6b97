"""Server-sent events from bytes, however the network cut them, by the rules of the WHATWG standard.

Lines end in LF, CRLF or CR; a blank line ends an event; `data:` lines of one event are joined by a newline; one
space after the colon is not part of the value; lines that begin with a colon are comments; a byte order mark at
the start of a stream is not part of its first line (https://html.spec.whatwg.org/multipage/server-sent-events.html,
read 2026-11-29).

Events are given out as the bytes they came in, their blank line included, so that what is passed on is what came.
"""

MAX_EVENT_BYTES = 1 << 20

_LF, _CR = b"\n", b"\r"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseTooLong(Exception):
    """A line or an event is longer than MAX_EVENT_BYTES. `events` are those that were complete before it."""

    def __init__(self, events: list[bytes]) -> None:
        super().__init__(f"an event is longer than {MAX_EVENT_BYTES} bytes")
        self.events = events


class EventSplitter:
    """Give it bytes, get back the events that are complete so far. Holds at most one event."""

    __slots__ = ("_after_cr", "_held", "_line", "_seen", "continued")

    def __init__(self) -> None:
        self._held = bytearray()
        self._line = 0  # where the line that is not complete yet begins, in what is held
        self._seen = 0  # up to where no line ends, in what is held
        self._after_cr = False  # the last event ended in a CR, and its LF may still come
        self.continued = False
        """The first piece of the last `feed` is the LF of a CRLF whose CR ended the event before."""

    @property
    def is_empty(self) -> bool:
        """True if nothing is held and the next byte begins an event."""
        return not self._held and not self._after_cr

    @property
    def held(self) -> bytes:
        """The event that is not complete yet."""
        return bytes(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """The events that these bytes complete. Raises SseTooLong; after that the splitter is of no more use."""
        events: list[bytes] = []
        self.continued = False
        if not data:
            return events
        if self._after_cr:
            self._after_cr = False
            if data[:1] == _LF:
                self.continued = True
                events.append(_LF)
                data = data[1:]
        held = self._held
        held += data
        size, start, line, seen = len(held), 0, self._line, self._seen
        lf, cr = held.find(_LF, seen), held.find(_CR, seen)
        seen = size
        while lf >= 0 or cr >= 0:
            if cr >= 0 and (lf < 0 or cr < lf):
                end, after = cr, cr + 1
                if after == size:
                    if end != line:
                        seen = end  # not a blank line: wait for what follows, it may be the LF of a CRLF
                        break
                    self._after_cr = True
                elif held[after] == 10:
                    after += 1
            else:
                end, after = lf, lf + 1
            if end == line:
                if end + 1 - start > MAX_EVENT_BYTES:
                    raise SseTooLong(events)
                events.append(bytes(held[start:after]))
                start = after
            line = after
            if 0 <= lf < after:
                lf = held.find(_LF, after)
            if 0 <= cr < after:
                cr = held.find(_CR, after)
        if start:
            del held[:start]
        self._line, self._seen = line - start, seen - start
        if len(held) > MAX_EVENT_BYTES:
            raise SseTooLong(events)
        return events


def payload_of(event: bytes) -> bytes | None:
    """The joined `data:` values of an event; None: it has none, so there is nothing to dispatch."""
    if _CR in event:
        event = event.replace(b"\r\n", _LF).replace(_CR, _LF)
    values: list[bytes] = []
    for line in event.split(_LF):
        if line[:5] == b"data:":
            values.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            values.append(b"")
    return _LF.join(values) or None


def without_byte_order_mark(start: bytes) -> bytes:
    """The first event of a stream without the mark that may stand before it."""
    return start[3:] if start[:3] == _BYTE_ORDER_MARK else start
