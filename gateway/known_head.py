"""A request's head that was parsed before, known again by its bytes.

A client sends the same head with every request on its connection; only the length of the body differs. Where the
bytes before and after that number are the same as of a head that the parser has taken, there is nothing to parse,
and whatever follows from the head alone (who asks, which headers go on) may be kept beside it.
"""

from typing import Any

from gateway.sink import Scope

LONGEST_KEPT = 4 * 1024
"""Bytes of a head. Longer ones are parsed each time: every connection may keep one."""

_LONGEST_NUMBER = 9  # digits of a length
_LENGTH = b"content-length"
_LINE = b"\r\n" + _LENGTH + b":"
_END = b"\r\n\r\n"


class KnownHead:
    """The bytes around the length, the scope that the parser made of them, and what the application adds."""

    __slots__ = ("_after", "_at", "_before", "_headers", "_scope", "_start", "notes")

    def __init__(self, before: bytes, after: bytes, scope: Scope) -> None:
        """`before` ends where the number begins; `after` begins with the end of its line."""
        self._before = before
        self._after = after
        self._start = len(before)
        self._headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self._at = [name for name, _ in self._headers].index(_LENGTH)
        self._scope = {**scope, "head": self}
        self.notes: Any = None  # the application's: what it worked out from this head

    def scope_of(self, length: int) -> dict[str, Any]:
        """A scope of its own for a request with a body this long."""
        scope = self._scope.copy()
        headers = scope["headers"] = self._headers.copy()
        headers[self._at] = (_LENGTH, b"%d" % length)
        return scope

    def find(self, data: bytes) -> tuple[int, int] | None:
        """The body's length and where it begins in `data`; None: this is another head, or not whole."""
        if not data.startswith(self._before):
            return None
        start = self._start
        end = data.find(b"\r", start, start + _LONGEST_NUMBER + 1)
        if end < 0:
            return None
        number = data[start:end]
        if not number.isdigit() or not data.startswith(self._after, end):
            return None
        return int(number), end + len(self._after)


def head_around_length(data: bytes) -> tuple[bytes, bytes] | None:
    """What stands before and after the length in the head that `data` begins with.

    The parser has taken this head, so it has one such line and none that is folded. None: the head is not
    whole in here, too long to be kept, or the number is not written plainly.
    """
    end = data.find(_END, 0, LONGEST_KEPT)
    if end < 0:
        return None
    head = data[: end + len(_END)]
    start = head.lower().find(_LINE)
    if start < 0:
        return None
    start += len(_LINE)
    stop = head.index(b"\r", start)
    number = head[start:stop].lstrip(b" \t")
    if not number.isdigit() or len(number) > _LONGEST_NUMBER:
        return None
    return head[: stop - len(number)], head[stop:]
