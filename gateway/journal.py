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

_encode = msgspec.json.encode


class _Request(msgspec.Struct, kw_only=True, gc=False):
    """The line of one request; a struct is written faster than a dict."""

    at_ms: int
    event: str = "request"
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


class Journal:
    """Lines on their way to a file descriptor."""

    def __init__(self, fd: int | None) -> None:
        """`fd` None: nothing is written."""
        self.dropped = 0
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if fd is not None:
            self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
            self._thread.start()

    def _put(self, line: bytes) -> None:
        if self._fd is None:
            return
        if len(self._lines) >= MOST_LINES:
            self.dropped += 1
            return
        self._lines.append(line)

    def closed(self, admitted: Admitted, closed: Closed) -> None:
        """The line of one request, with the ids that lead to its rows."""
        last = closed.attempts[-1] if closed.attempts else None
        self._put(
            _encode(
                _Request(
                    at_ms=closed.closed_at_ms,
                    id=closed.id,
                    state=closed.state,
                    status=closed.status,
                    error=closed.error,
                    key=admitted.key_id,
                    team=admitted.team,
                    tier=admitted.tier,
                    rule=admitted.rule,
                    task_kind=admitted.task_kind,
                    deployment=last.deployment if last else None,
                    attempts=len(closed.attempts),
                    cost_usd=None if closed.cost_pico_usd is None else usd_text(closed.cost_pico_usd),
                    usage_source=last.usage_source if last else None,
                    duration_ms=closed.duration_ms,
                )
            )
        )

    def event(self, event: str, facts: Mapping[str, object]) -> None:
        """Something that an operator should see."""
        self._put(_encode({"at_ms": time.time_ns() // 1_000_000, "event": event, **facts}))

    def _write(self) -> None:
        while not self._stop.wait(FLUSH_SECONDS):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        lines = self._lines
        count = len(lines)
        if not count or self._fd is None:
            return
        data = memoryview(b"".join(lines.popleft() + b"\n" for _ in range(count)))
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:  # whoever reads the log is gone, or its disk is full
            self.dropped += count

    def close(self) -> None:
        """Write what is left; waits at most two seconds for a reader."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
