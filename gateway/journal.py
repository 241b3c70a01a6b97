"""The log: one JSON line a request, and warnings; written by a thread, so that no reader can hold a request up.

A line that finds the queue full is dropped and counted. No line holds a text of a request, an answer or a key.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Mapping

import msgspec

from ledger.entry import Admitted, Closed
from pricing.money import usd_text

MOST_LINES = 20_000
FLUSH_SECONDS = 0.05
_LINES_AT_ONCE = 500  # the event loop waits while so many are encoded

_encoder = msgspec.json.Encoder()


class _Request(msgspec.Struct, gc=False):
    """The line of one request, its fields in the line's order; a struct is written faster than a dict."""

    at_ms: int
    event: str
    id: str
    state: str
    status: int
    error: str | None
    key: str
    team: str
    tier: str
    rule: str
    task_kind: str
    deployment: str | None
    attempts: int
    cost_usd: str | None
    usage_source: str | None
    duration_ms: int


class _NoCall(msgspec.Struct, frozen=True):
    """In place of a request's last call, if it made none."""

    deployment: None = None
    usage_source: None = None


_NO_CALL = _NoCall()


class Journal:
    """Lines on their way to a file descriptor."""

    def __init__(self, fd: int | None) -> None:
        """`fd` None: nothing is written."""
        self.dropped = 0
        self._fd = fd
        self._lines: deque[_Request | msgspec.Raw] = deque()  # encoded together, when they are written
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if fd is not None:
            self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
            self._thread.start()

    def closed(self, admitted: Admitted, closed: Closed) -> None:
        """The line of one request, with the ids that lead to its rows."""
        lines = self._lines
        if self._fd is None or len(lines) >= MOST_LINES:
            self._leave_out()
            return
        attempts = closed.attempts
        last = attempts[-1] if attempts else _NO_CALL
        cost = closed.cost_pico_usd
        lines.append(
            _Request(  # in the order of its fields: names would take longer
                closed.closed_at_ms,
                "request",
                closed.id,
                closed.state,
                closed.status,
                closed.error,
                admitted.key_id,
                admitted.team,
                admitted.tier,
                admitted.rule,
                admitted.task_kind,
                last.deployment,
                len(attempts),
                None if cost is None else usd_text(cost),
                last.usage_source,
                closed.duration_ms,
            )
        )

    def event(self, event: str, facts: Mapping[str, object]) -> None:
        """Something that an operator should see."""
        if self._fd is None or len(self._lines) >= MOST_LINES:
            self._leave_out()
            return
        line = _encoder.encode({"at_ms": time.time_ns() // 1_000_000, "event": event, **facts})
        self._lines.append(msgspec.Raw(line))

    def _leave_out(self) -> None:
        if self._fd is not None:
            self.dropped += 1

    def _write(self) -> None:
        while not self._stop.wait(FLUSH_SECONDS):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        lines = self._lines
        if self._fd is None:
            return
        while lines:
            some = [lines.popleft() for _ in range(min(len(lines), _LINES_AT_ONCE))]
            data = memoryview(_encoder.encode_lines(some))
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:  # whoever reads the log is gone, or its disk is full
                self.dropped += len(some)

    def close(self) -> None:
        """Write what is left; waits at most two seconds for a reader."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
