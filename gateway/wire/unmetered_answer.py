"""Answers whose form is not known here: passed on untouched, and booked as what they are, of unknown usage.

For every POST that has no endpoint of its own. The row has no tokens, a null cost and the flag `unmetered`.
"""

from gateway.wire.answer import StreamProblem
from pricing.cost import UNMETERED
from pricing.tokens import Counter, quarter_of_bytes
from pricing.usage import End, Reading, Usage


def read_unmetered(
    body: bytes,
    *,
    status: int,
    dialect: str,
    input_tokens_estimate: int | None,
    content_encoding: str | None = None,
    end: End = "complete",
    counter: Counter = quarter_of_bytes,
) -> Reading:
    """The reading of a whole answer: nobody knows what it used."""
    del body, dialect, input_tokens_estimate, content_encoding, counter
    return _reading(status, end)


class UnmeteredAnswer:
    """A stream that is passed on as it comes."""

    __slots__ = ("content_seen", "events")

    error: StreamProblem | None = None
    model: str | None = None
    answer_id: str | None = None
    finished = True  # its end is the end of its bytes

    def __init__(self, *, dialect: str, drop_usage: bool, counter: Counter = quarter_of_bytes) -> None:
        del dialect, drop_usage, counter
        self.events = 0  # pieces that came
        self.content_seen = False

    def feed(self, data: bytes) -> bytes:
        """See StreamMeter."""
        if data:
            self.events += 1
            self.content_seen = True
        return data

    def take_payload(self, payload: bytes) -> None:
        """See StreamMeter."""
        self.feed(payload)

    def rest(self) -> bytes:
        """See StreamMeter."""
        return b""

    def reading(self, *, status: int, end: End, input_tokens_estimate: int | None) -> Reading:
        """See StreamMeter."""
        del input_tokens_estimate
        return _reading(status, end)


def _reading(status: int, end: End) -> Reading:
    flags: set[str] = set() if end == "complete" else {end}
    flags.add("http_error" if status >= 400 else UNMETERED)
    return Reading(usage=Usage(), source="none", flags=frozenset(flags))
