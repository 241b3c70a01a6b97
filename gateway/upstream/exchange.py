"""The half of an exchange that faces the reader; a client feeds the other.

Its life: under way, then over, for exactly one of two reasons: `whole` (every byte of the answer has come) or
a failure (the provider's, a deadline's, or the caller's cancelling). Nothing changes once it is over, except
that a whole answer not yet read may still be cancelled.

Deadlines, all behind one alarm that is set to the nearest or earlier:
- total: from the start to the last byte;
- phase: while a connection is waited for or opened, what the client allows for that;
- first token: from the start until `first_token` is told;
- idle: without a byte, from `first_token` on; where there is no first-token limit, from the body's first byte
  on. Time in which we did not read, because our reader is slow, does not count.
"""

import asyncio
from collections.abc import Sequence
from math import inf

import msgspec

from gateway.upstream import FailureKind, Limits, UpstreamFailure
from gateway.upstream.deadlines import Alarm

HIGH_WATER = 65_536  # bytes waiting for the reader before we stop reading from the provider
SLACK_SECONDS = 0.002  # loops count in milliseconds and may wake that much early


class BufferedExchange(msgspec.Struct, eq=False, weakref=True):
    """One attempt under way: what has come and was not yet read, who waits for it, and until when."""

    _loop: asyncio.AbstractEventLoop
    alarm: Alarm  # wakes it, or whatever it is on
    limits: Limits
    total_due: float
    first_due: float  # inf: there is no such limit
    _heard: float  # when it began, or the last byte came
    _phase_due: float = inf
    _idle: bool = False  # the idle limit counts
    status: int = 0
    headers: Sequence[tuple[bytes, bytes]] = ()
    sent: bool = False
    ended: bool = False
    # The client puts in what comes, and tells with `fed`, `finish` or `fail` before the loop goes on.
    parts: list[bytes] = msgspec.field(default_factory=list[bytes])
    buffered: int = 0  # bytes in `parts`
    _whole: bool = False
    _failure: BaseException | None = None
    _cancelled: bool = False
    _paused: bool = False
    _waiter: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        """Without what is in it: a key, a prompt, an answer."""
        return f"<{type(self).__name__} {self.status} {'over' if self.over else 'under way'}>"

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
                if len(parts) == 1:
                    data = parts.pop()
                else:
                    data = b"".join(parts)
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
        self.first_due = inf
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
        """Set the alarm to the nearest deadline, unless it is set to an earlier moment already."""
        due = self.total_due
        if self.first_due < due:
            due = self.first_due
        if self._phase_due < due:
            due = self._phase_due
        if self._idle and self._heard + self.limits.idle_seconds < due:
            due = self._heard + self.limits.idle_seconds
        if due < self.alarm.due:
            self.alarm.set(now, due)

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
        waiter = self._waiter
        if waiter is not None and self.status:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def answered(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """All of the answer came at once; its body is not empty."""
        self.status = status
        self.headers = headers
        self.parts.append(body)
        self.buffered = len(body)
        self._whole = True
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def finish(self) -> None:
        """Every byte of the answer has come."""
        self._whole = True
        if not self.parts:
            self.ended = True
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
        self._leave()
        self._wake()

    def fail_as(self, kind: FailureKind, detail: str) -> None:
        """End by the provider's or a deadline's fault."""
        self.fail(UpstreamFailure(kind, detail, sent=self.sent))

    def expire(self) -> None:
        """The alarm's turn: fail if a deadline passed, else wait for the next."""
        if self.over:
            return
        now = self._loop.time()
        late = now + SLACK_SECONDS
        limits = self.limits
        if late >= self.total_due:
            self.fail_as("total_timeout", f"not whole after {limits.total_seconds:g} s")
        elif late >= self._phase_due:
            kind, detail = self._phase_failure()
            self.fail_as(kind, detail)
        elif late >= self.first_due:
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
        """Let go of connection, task, alarm or place in the queue, closing what is half done."""
        raise NotImplementedError
