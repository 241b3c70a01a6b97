"""The half of an exchange that faces the reader; a client feeds the other.

Its life: under way, then over, for exactly one of two reasons: `whole` (every byte of the answer has come) or
a failure (the provider's, a deadline's, or the caller's cancelling). Nothing changes once it is over, except
that a whole answer not yet read may still be cancelled.

Deadlines, all in one wheel entry set to the nearest:
- total: from the start to the last byte;
- phase: while a connection is waited for or opened, what the client allows for that;
- first token: from the start until `first_token` is told;
- idle: without a byte, from `first_token` on; where there is no first-token limit, from the body's first byte
  on. Time in which we did not read, because our reader is slow, does not count.
"""

import asyncio
from collections.abc import Sequence
from math import inf

from gateway.upstream import FailureKind, Limits, UpstreamFailure
from gateway.upstream.deadlines import Token, Wheel

HIGH_WATER = 65_536  # bytes waiting for the reader before we stop reading from the provider
SLACK_SECONDS = 0.002  # loops count in milliseconds and may wake that much early


class BufferedExchange:
    """One attempt under way: what has come and was not yet read, who waits for it, and until when."""

    __slots__ = (
        "__weakref__",
        "_cancelled",
        "_failure",
        "_first_due",
        "_heard",
        "_idle",
        "_loop",
        "_opened",
        "_paused",
        "_phase_due",
        "_token",
        "_total_due",
        "_waiter",
        "_wake_due",
        "_wheel",
        "_whole",
        "buffered",
        "ended",
        "headers",
        "limits",
        "parts",
        "sent",
        "status",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, wheel: Wheel, limits: Limits, now: float) -> None:
        self.status = 0
        self.headers: Sequence[tuple[bytes, bytes]] = ()
        self.sent = False
        self.ended = False
        self.limits = limits
        # The client puts in what comes, and tells with `fed`, `finish` or `fail` before the loop goes on.
        self.parts: list[bytes] = []
        self.buffered = 0  # bytes in `parts`
        self._loop = loop
        self._wheel = wheel
        self._whole = False
        self._failure: BaseException | None = None
        self._cancelled = False
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._opened = now
        self._total_due = now + limits.total_seconds
        self._first_due = inf if limits.first_token_seconds is None else now + limits.first_token_seconds
        self._phase_due = inf
        self._idle = False
        self._heard = now
        self._wake_due = inf
        self._token: Token | None = None

    # for the reader

    async def head(self) -> None:
        """See Exchange."""
        while not self.status and self._failure is None:
            self._waiter = waiter = self._loop.create_future()
            await waiter
        if self._failure is not None and (self._cancelled or not self.status):
            raise self._failure

    async def more(self) -> bytes:
        """See Exchange."""
        while True:
            parts = self.parts
            if parts:
                data = parts[0] if len(parts) == 1 else b"".join(parts)
                parts.clear()
                self.buffered = 0
                if self._whole:
                    self.ended = True
                elif self._paused:
                    self._paused = False
                    self._heard = self._loop.time()
                    self._resume()
                return data
            if self._failure is not None:
                raise self._failure
            if self._whole:
                self.ended = True
                return b""
            self._waiter = waiter = self._loop.create_future()
            await waiter

    def first_token(self) -> None:
        """See Exchange."""
        self._first_due = inf
        if not self._idle and not self.over:
            self._start_idle(self._loop.time())

    def cancel(self, why: BaseException) -> None:
        """See Exchange."""
        if self._failure is not None or self.ended:
            return
        self._cancelled = True
        self.parts.clear()
        self.buffered = 0
        if self._whole:
            self._failure = why
            self._wake()
        else:
            self.fail(why)

    # for the client

    @property
    def over(self) -> bool:
        """True once nothing more will come."""
        return self._whole or self._failure is not None

    def arm(self, now: float) -> None:
        """Set the wheel to the nearest deadline, unless it is set to an earlier moment already."""
        due = self._total_due
        if self._first_due < due:
            due = self._first_due
        if self._phase_due < due:
            due = self._phase_due
        if self._idle and self._heard + self.limits.idle_seconds < due:
            due = self._heard + self.limits.idle_seconds
        if due < self._wake_due:
            if self._token is not None:
                self._wheel.drop(self, self._token)
            self._wake_due = due
            self._token = self._wheel.add(self, now, due)

    def begins(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The final head came."""
        self.status = status
        self.headers = headers

    def fed(self) -> None:
        """All that one read brought has been told; more is to come."""
        self._heard = now = self._loop.time()
        if not self._idle and self.buffered and self.limits.first_token_seconds is None:
            self._start_idle(now)
        if self.buffered > HIGH_WATER and not self._paused:
            self._paused = True
            self._pause()
        if self.status:
            self._wake()

    def finish(self) -> None:
        """Every byte of the answer has come."""
        self._whole = True
        if not self.parts:
            self.ended = True
        if self._token is not None:
            self._wheel.drop(self, self._token)
            self._token = None
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, failure: BaseException) -> None:
        """End without a whole answer; bytes that came before are still given out. Nothing if it is over."""
        if self.over:
            return
        self._failure = failure
        if self._token is not None:
            self._wheel.drop(self, self._token)
            self._token = None
        self._leave()
        self._wake()

    def fail_as(self, kind: FailureKind, detail: str) -> None:
        """End by the provider's or a deadline's fault."""
        self.fail(UpstreamFailure(kind, detail, sent=self.sent))

    def expire(self) -> None:
        """The wheel's turn: fail if a deadline passed, else wait for the next."""
        if self.over:
            return
        self._token = None
        self._wake_due = inf
        now = self._loop.time()
        late = now + SLACK_SECONDS
        limits = self.limits
        if late >= self._total_due:
            self.fail_as("total_timeout", f"not whole after {limits.total_seconds:g} s")
        elif late >= self._phase_due:
            kind, detail = self._phase_failure()
            self.fail_as(kind, detail)
        elif late >= self._first_due:
            self.fail_as("first_token_timeout", f"no content after {limits.first_token_seconds:g} s")
        else:
            if self._idle and self._paused:
                self._heard = now
            if self._idle and late >= self._heard + limits.idle_seconds:
                self.fail_as("idle_timeout", f"no byte for {limits.idle_seconds:g} s")
            else:
                self.arm(now)

    def _start_idle(self, now: float) -> None:
        self._idle = True
        self._heard = now
        self.arm(now)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    # what each client does in its own way

    def _phase_failure(self) -> tuple[FailureKind, str]:
        """What it means that the phase's deadline passed."""
        raise NotImplementedError

    def _pause(self) -> None:
        """Stop reading from the provider."""
        raise NotImplementedError

    def _resume(self) -> None:
        """Read on."""
        raise NotImplementedError

    def _leave(self) -> None:
        """Let go of connection, task or place in the queue, closing what is half done."""
        raise NotImplementedError
