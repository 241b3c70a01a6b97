"""One HTTP/1.1 connection and the one exchange that is on it.

A connection is alive until it is closed, breaks, or says something nobody asked for; it dies once. It goes
back to its pool only when the answer on it was whole, both sides mean to go on, all of the request was sent,
and not a byte came after the answer. An answer is refused, and the connection closed, when its head is over
the limits below, when it is packed (we asked for `identity`, and unpacking would have no bound), or when its
framing is not certain.
"""

import asyncio
from math import inf
from typing import NoReturn, Protocol, cast

import httptools

from gateway.upstream import FailureKind
from gateway.upstream.deadlines import Alarm, Wheel
from gateway.upstream.exchange import BufferedExchange
from gateway.upstream.known_answer import KnownAnswers

MAX_HEAD_BYTES = 65_536
MAX_HEADERS = 100
MAX_SILENT_BYTES = 65_536  # read in a row without giving any body: chunk extensions, trailers
JOIN_BELOW = 8_192  # a body up to this size is joined to its head for one write
PIECE = 524_288  # larger bodies are written in pieces of this size, as the provider takes them
RESEND_SECONDS = 1.0  # a connection found dead later than this after sending did not die while it was idle


class Home(Protocol):
    """Where connections come from and go to."""

    known: KnownAnswers

    def give(self, connection: "Connection") -> None:
        """The connection is free for another exchange."""
        ...

    def lost(self, connection: "Connection") -> None:
        """The connection died."""
        ...

    def send_again(self, exchange: "OwnExchange") -> None:
        """Put the exchange on a fresh connection."""
        ...

    def leave(self, exchange: "OwnExchange") -> None:
        """The exchange waits no longer, for a connection or for its being opened."""
        ...


class OwnExchange(BufferedExchange, kw_only=True, eq=False, weakref=True):
    """One attempt on our own client."""

    home: Home
    request_head: bytes
    body: bytes
    connection: "Connection | None" = None
    dialing: "asyncio.Task[Connection] | None" = None
    phase: FailureKind | None = None  # what it means when the phase's deadline passes
    resent: bool = False
    sent_at: float = 0.0

    def enter(self, phase: FailureKind, now: float, seconds: float) -> None:
        """Begin to wait for a connection, or to open one, for this long at most."""
        self.phase = phase
        self._phase_due = now + seconds
        self.arm(now)

    def waits_no_more(self, alarm: Alarm) -> None:
        """A connection is there, with its alarm."""
        self.alarm.drop()
        self.alarm = alarm
        self.phase = None
        self._phase_due = inf

    def _phase_failure(self) -> tuple[FailureKind, str]:
        if self.phase == "pool_exhausted":
            return "pool_exhausted", "no connection became free"
        if self.phase == "resolve":
            return "resolve", "the name server did not answer in time"
        if self.phase == "tls":
            return "connect_timeout", f"TLS handshake not done after {self.limits.connect_seconds:g} s"
        return "connect_timeout", f"not connected after {self.limits.connect_seconds:g} s"

    def _pause(self) -> None:
        if self.connection is not None:
            self.connection.pause()

    def _resume(self) -> None:
        if self.connection is not None:
            self.connection.resume()

    def _leave(self) -> None:
        self.body = b""
        connection = self.connection
        if connection is not None:
            self.connection = None
            connection.drop()
        else:
            self.alarm.drop()
            self.home.leave(self)


class Connection(asyncio.Protocol):
    """See the module."""

    __slots__ = (
        "_came",
        "_done",
        "_exchange",
        "_framed",
        "_got",
        "_head_bytes",
        "_headers",
        "_home",
        "_in_body",
        "_keep",
        "_packed",
        "_parser",
        "_problem",
        "_rest",
        "_silent_bytes",
        "_transport",
        "_writable",
        "alarm",
        "alive",
        "free_since",
        "on_body",
        "uses",
    )

    _transport: asyncio.Transport

    def __init__(self, home: Home, wheel: Wheel) -> None:
        self._home = home
        self.alarm = Alarm(wheel, self)
        self._came: list[bytes] = []  # what the parser found of the body in this read
        self.on_body = (
            self._came.append
        )  # see httptools: a list's own method, as a stream calls it for each event
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: OwnExchange | None = None
        self.alive = True
        self.uses = 0
        self.free_since = 0.0
        self._writable = True
        self._rest: memoryview | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0  # read up to the end of the final head, informational ones and all
        self._silent_bytes = 0
        self._problem = ""
        self._got = self._in_body = self._framed = self._done = self._keep = self._packed = False

    # for the pool and the exchange

    def expire(self) -> None:
        """The alarm's turn."""
        if self._exchange is not None:
            self._exchange.expire()

    def usable(self) -> bool:
        """True if a request may be sent on it."""
        return self.alive and not self._transport.is_closing()

    def send(self, exchange: OwnExchange, now: float) -> None:
        """Write the request; its answer goes to the exchange."""
        alarm = self.alarm
        if exchange.alarm is not alarm:
            exchange.waits_no_more(alarm)
        if exchange.total_due < alarm.due or exchange.first_due < alarm.due:
            exchange.arm(now)
        self._exchange = exchange
        self._got = False
        self.uses += 1
        exchange.connection = self
        exchange.sent = True
        exchange.sent_at = now
        body = exchange.body
        size = len(body)
        if size <= JOIN_BELOW:
            self._transport.write(exchange.request_head + body)
        elif size <= PIECE:
            self._transport.writelines((exchange.request_head, body))
        else:
            self._rest = memoryview(body)
            self._transport.write(exchange.request_head)
            self._write_on()

    def unsent_in_transport(self) -> int:
        """Bytes of the request that the transport holds because the provider does not take them."""
        return self._transport.get_write_buffer_size()

    def pause(self) -> None:
        """Stop reading."""
        if self.usable():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.usable():
            self._transport.resume_reading()

    def drop(self) -> None:
        """Close at once, whatever is on it; the exchange is told nothing."""
        self._exchange = None
        self._rest = None
        self.alarm.drop()
        if self.alive:
            self.alive = False
            self._transport.abort()
            self._home.lost(self)

    def close(self) -> None:
        """Close at once; an exchange on it fails."""
        exchange = self._exchange
        if exchange is not None:
            exchange.fail_as("reset", "the gateway closed the connection")
        self.drop()

    # the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is none by name

    def pause_writing(self) -> None:
        """See asyncio."""
        self._writable = False

    def resume_writing(self) -> None:
        """See asyncio."""
        self._writable = True
        self._write_on()

    def _write_on(self) -> None:
        while self._rest is not None and self._writable and self.alive:
            piece, rest = self._rest[:PIECE], self._rest[PIECE:]
            self._rest = rest if len(rest) else None
            self._transport.write(piece)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        exchange = self._exchange
        if exchange is None:  # bytes nobody asked for
            self.drop()
            return
        begins = not self._got
        if begins:
            self._got = True
            exchange.body = b""  # it is not sent again now
            found = self._home.known.find(data)
            if found is not None:
                self._give_back(exchange)
                exchange.answered(200, *found)
                return
            self._headers = []
            self._head_bytes = self._silent_bytes = 0
            self._in_body = self._framed = self._done = self._packed = False
        if not self._in_body:
            self._head_bytes += len(data)
        broken = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            broken = True
            self._keep = False  # maybe a whole answer with something after it
        came = self._came
        if came:
            if len(came) == 1:
                piece = came.pop()
            else:
                piece = b"".join(came)
                came.clear()
            exchange.parts.append(piece)
            exchange.buffered += len(piece)
            if not self._done and not broken:
                self._silent_bytes = 0
                exchange.fed()
                return
        if broken and not self._done:
            exchange.fail_as("invalid_response", self._problem or "not an HTTP/1.1 answer")
            return
        if self._done:
            if begins and self._keep and exchange.status == 200:
                self._home.known.learn(data, self._headers)
            self._finish(exchange)
            return
        if not self._in_body:
            if self._head_bytes > MAX_HEAD_BYTES:
                exchange.fail_as("invalid_response", f"headers over {MAX_HEAD_BYTES} bytes")
                return
        elif self._silent_bytes < 0:  # a head was in it
            self._silent_bytes = 0
        else:
            self._silent_bytes += len(data)
            if self._silent_bytes > MAX_SILENT_BYTES:
                exchange.fail_as("invalid_response", "framing without a body")
                return
        exchange.fed()

    def eof_received(self) -> None:
        """See asyncio. The provider sends no more, so whatever is left to write will not be answered."""
        self._broke(clean=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._broke(clean=exc is None)

    def _broke(self, *, clean: bool) -> None:
        exchange = self._exchange
        if exchange is None:
            self.drop()
            return
        if clean and self._got and self._in_body and not self._framed:
            self._keep = False  # the end of the connection is the end of this answer
            self._finish(exchange)
            return
        again = (
            not self._got
            and self.uses > 1
            and not exchange.resent
            and asyncio.get_running_loop().time() - exchange.sent_at < RESEND_SECONDS
        )
        if again:
            exchange.resent = True
            exchange.connection = None
            self.drop()
            self._home.send_again(exchange)
        elif not self._got:
            exchange.fail_as("reset", "closed before the first byte of an answer")
        elif self._in_body:
            exchange.fail_as("reset", "closed in the middle of the body")
        else:
            exchange.fail_as("reset", "closed in the middle of the headers")

    def _finish(self, exchange: OwnExchange) -> None:
        if self._keep:
            self._give_back(exchange)
        else:
            exchange.connection = None
            self.drop()
        exchange.finish()

    def _give_back(self, exchange: OwnExchange) -> None:
        """The answer is whole and the provider means to go on."""
        exchange.connection = None
        self._exchange = None
        if self._rest is None and not self._transport.get_write_buffer_size():
            self._home.give(self)
        else:
            self.drop()

    # the parser's side

    def on_message_begin(self) -> None:
        """See httptools."""
        if self._done:
            self._refuse("bytes after the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        if self._in_body:  # trailers are read and forgotten
            return
        headers = self._headers
        if len(headers) == MAX_HEADERS:
            self._refuse(f"more than {MAX_HEADERS} headers")
        size = len(name)
        name = name.lower()
        headers.append((name, value))
        if size == 14:
            if name == b"content-length":
                self._framed = True
        elif size == 16:
            if name == b"content-encoding" and value.strip().lower() not in (b"identity", b""):
                self._packed = True
        elif size == 17 and name == b"transfer-encoding":
            if value.strip().lower() != b"chunked":
                self._refuse("a transfer-encoding other than chunked")
            self._framed = True

    def on_headers_complete(self) -> None:
        """See httptools."""
        status = self._parser.get_status_code()
        if status >= 200:
            self._silent_bytes = -1
            # Only a read this large can have brought a head over the limit; then it is worth counting.
            if self._head_bytes > MAX_HEAD_BYTES and _size_of(self._headers) > MAX_HEAD_BYTES:
                self._refuse(f"headers over {MAX_HEAD_BYTES} bytes")
            self._in_body = True
            if self._exchange is not None:
                self._exchange.begins(status, self._headers)
            if self._packed:  # it may be a whole answer, and billed, so that there was a head is to be known
                self._refuse("packed although we asked for identity")
        elif status == 101:
            self._refuse("switching protocols")
        else:  # 100, 103: not the answer yet
            self._headers = []
            self._framed = False

    def on_message_complete(self) -> None:
        """See httptools."""
        if self._in_body:
            self._done = True
            self._keep = self._parser.should_keep_alive()

    def _refuse(self, problem: str) -> NoReturn:
        self._problem = problem
        raise ValueError(problem)  # stops the parser, which wraps it


def _size_of(headers: list[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers)
