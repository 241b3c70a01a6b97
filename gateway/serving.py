"""The two listeners: uvicorn with a protocol of our own, its limits, a client that left, signals, the drain.

What a person on call should know:

- A connection is *idle* between requests, in the *head*, in the *body*, or *parting* (its last bytes are out,
  what the client still sends is thrown away). Each has its deadline; one sweep looks at all of them.
- One request runs at a time on a connection. Further ones wait in order, a few at most; past that the
  connection answers what it has and closes. Reading never pauses, so a client that leaves is always noticed.
- Whatever is wrong with the framing is answered once, in the error form of the endpoints, and the connection
  closes. Not one byte after such a fault is taken for a request.
- A half-closed connection counts as left: the running request is told at once.
- SIGTERM or SIGINT: not ready any more, no new connections, running requests go on until the drain time is
  over, then streams are told to end, then the process ends with 0. A second signal changes nothing. SIGHUP
  reloads.

- A client sends the same head again and again, with another length. One that the parser has taken is known by
  its bytes the next time on its connection (`known_head`), and what follows from it alone is not worked out again.

For the application a scope carries beside ASGI's own: `sink`, the client's side as `gateway.sink` describes it;
`head`, the same object for the same head, None for one that is not kept; an id that the application sets as
`request_id` is the one that a failure is answered with. `receive` gives the whole body at once.
"""

import asyncio
import logging
import signal
import socket
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from math import inf
from typing import Any, cast
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.lifespan.on import LifespanOn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gateway import errors
from gateway.errors import GatewayError
from gateway.ids import RequestIds
from gateway.known_head import KnownHead, head_around_length
from gateway.sink import Headers, Message, Receive, Scope, Send
from gateway.wire.error_forms import form_at

log = logging.getLogger("faregate.serving")

App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLimits:
    """What a client may send and how slowly. Sizes in bytes."""

    max_body: int = 32 * 1024 * 1024
    max_body_framing: int = 16 * 1024  # chunk extensions and trailers of one body, together
    max_bodies: int = 512 * 1024 * 1024  # held for all running requests of this listener
    max_head: int = 64 * 1024
    max_header_lines: int = 100
    max_url: int = 8 * 1024
    max_waiting: int = 8  # pipelined requests that wait on one connection
    max_connections: int = 10_000
    head_seconds: float = 10.0  # from the connection, or the first byte, to the end of the head
    body_idle_seconds: float = 30.0  # without a byte
    body_bytes_per_second: int = 500  # on average, once body_idle_seconds are over
    idle_seconds: float = 75.0  # between two requests
    write_seconds: float = 120.0  # without the client taking a byte
    part_seconds: float = 2.0  # what a refused client may still send before the connection is closed hard


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings:
    """Where to listen ("host:port", port 0: any free one) and how to stop."""

    listen: str = "127.0.0.1:8080"
    admin_listen: str = "127.0.0.1:8081"
    limits: ServingLimits = field(default_factory=ServingLimits)
    drain_seconds: float = 30.0
    drain_idle_seconds: float = 0.5  # an idle connection may still bring a request this long into the drain
    cut_seconds: float = 3.0  # what a stream has left to say once the drain time is over


def _nothing() -> None:
    """The hook that nobody set."""


def _no_refusal(status: int, code: str) -> None:
    """The hook that nobody set."""


def _no_address(data: str, admin: str) -> None:
    """The hook that nobody set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingHooks:
    """What the rest of the program wants to be told. None of them may wait or raise."""

    listening: Callable[[str, str], None] = _no_address  # both addresses, as "host:port"
    draining: Callable[[], None] = _nothing  # at the first signal: readiness is to say no
    drain_over: Callable[[], None] = _nothing  # after every sink's own `on_drain`
    reload: Callable[[], None] = _nothing  # SIGHUP
    refused: Callable[[int, str], None] = _no_refusal  # status and code of what the protocol answered itself


# ── what goes out ──


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


_STATUS_LINES = {status: _status_line(status) for status in range(100, 600)}
_BODILESS = frozenset({204, 304})
_BIG = 16 * 1024  # pieces from here on are not copied into one buffer with their frame


def error_answer(
    error: GatewayError, request_id: str, path: bytes
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body of an error that is made before, or without, the application."""
    form = form_at(path)
    body = form.body(error, request_id)
    headers = errors.error_headers(error)
    headers.append((b"x-request-id", request_id.encode()))
    if form.id_header is not None:
        headers.append((form.id_header, request_id.encode()))
    headers.append((b"x-faregate-attempts", b"0"))
    headers.append((b"content-length", b"%d" % len(body)))
    status = form.status(error)
    if status == 426:
        headers.append((b"upgrade", b"HTTP/1.1"))  # RFC 9110, 15.5.22: what is spoken instead
    return status, headers, body


def _malformed(message: str, status: int = 400) -> GatewayError:
    return GatewayError(status, "invalid_request_error", "invalid_value", message, should_retry=False)


class Turn:
    """One request and its answer on a connection: what ASGI's `receive` and `send` stand on, and a `Sink`."""

    __slots__ = (
        "_chunked",
        "_chunks",
        "_head",
        "_on_left",
        "_remaining",
        "_waiter",
        "_wire",
        "begun",
        "complete",
        "drain_over",
        "expects",
        "keep_alive",
        "left",
        "method",
        "scope",
        "size",
        "task",
        "whole_read",
    )

    def __init__(self, wire: "Wire", scope: Scope, method: str, *, keep_alive: bool, expects: bool) -> None:
        self._wire = wire
        self.scope = scope
        self.method = method
        self.keep_alive = keep_alive
        self.expects = expects  # the client waits for our word before it sends the body
        self.size = 0  # bytes of body that are held for it
        self.whole_read = False  # the request has been read to its end
        self.left = False  # nobody is there to answer any more
        self.begun = False
        self.complete = False
        self.task: asyncio.Task[None] | None = None
        self.drain_over: Callable[[], None] | None = None  # called when the drain time is over
        self._on_left: Callable[[], None] | None = None
        self._chunks: list[bytes] = []
        self._chunked = False
        self._remaining: int | None = None  # of the length that the answer declared
        self._head: bytes | None = None  # made, not yet written
        self._waiter: asyncio.Future[None] | None = None
        scope["sink"] = self

    # the request's body

    def feed(self, data: bytes) -> None:
        """A piece of the request's body."""
        self._chunks.append(data)
        self.size += len(data)

    def forget_body(self) -> None:
        """Nobody will ask for it."""
        self._chunks = _TAKEN

    def wake(self) -> None:
        """Let a waiting `receive` look again."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def body(self) -> bytes | None:
        """See Sink."""
        if not self.whole_read or self.left or self.complete or self._chunks is _TAKEN:
            return None
        chunks, self._chunks = self._chunks, _TAKEN
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def receive(self) -> Message:
        """The whole body once; after that, and when the client left, a disconnect."""
        if self.expects and not self.left and not self.begun:
            self.expects = False
            if not self.whole_read:
                self._wire.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self.left or self.complete):
            body = self.body()
            if body is not None:
                return {"type": "http.request", "body": body, "more_body": False}
            waiter = self._waiter
            if waiter is None:
                waiter = self._waiter = self._wire.loop.create_future()
            await asyncio.shield(waiter)
        return {"type": "http.disconnect"}

    # the client

    def on_left(self, callback: Callable[[], None] | None) -> None:
        """See Sink."""
        self._on_left = callback
        if callback is not None and self.left:
            callback()

    def on_drain(self, callback: Callable[[], None] | None) -> None:
        """See Sink."""
        self.drain_over = callback

    def leave(self) -> None:
        """The client is gone; whoever asked for it is told."""
        self.left = True
        self.wake()
        if self._on_left is not None:
            self._on_left()

    # the answer

    async def asgi_send(self, message: Message) -> None:
        """Status and headers wait for the first piece of the body, so that both go out together."""
        wire = self._wire
        if wire.flow.write_paused and not self.left:
            await wire.flow.drain()
        if self.left:
            return
        kind = message["type"]
        if kind == "http.response.body" and self.begun and not self.complete:
            self._piece(message.get("body", b""), last=not message.get("more_body", False))
        elif kind == "http.response.start" and not self.begun:
            self._start(message["status"], message.get("headers", ()))
            wire.loop.call_soon(self.flush)
        else:
            raise RuntimeError(f"{kind} is out of order")

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """See Sink."""
        wire = self._wire
        if wire.flow.write_paused and not self.left:
            await wire.flow.drain()
        if self.left:
            return
        head = self._head_of(status, headers, b"content-length: %d\r\n" % len(body))
        self.complete = True
        if self.method == "HEAD" or status in _BODILESS:
            wire.transport.write(head)
        elif len(body) >= _BIG:
            wire.transport.writelines((head, body))
        else:
            wire.transport.write(head + body)
        wire.turn_over(self)

    async def begin(self, status: int, headers: Headers) -> None:
        """See Sink. The head goes out with the first piece, or soon."""
        wire = self._wire
        if wire.flow.write_paused and not self.left:
            await wire.flow.drain()
        if not self.left:
            self._begin(status, headers, None)
            wire.loop.call_soon(self.flush)

    async def send(self, data: bytes) -> None:
        """See Sink."""
        flow = self._wire.flow
        if flow.write_paused and not self.left:
            await flow.drain()
        if not self.left and not self.complete:
            self._piece(data, last=False)

    async def end(self, data: bytes) -> None:
        """See Sink."""
        flow = self._wire.flow
        if flow.write_paused and not self.left:
            await flow.drain()
        if not self.left and not self.complete:
            self._piece(data, last=True)

    async def cut(self, data: bytes) -> None:
        """See Sink."""
        if data:
            await self.send(data)
        self.break_off()

    def break_off(self) -> None:
        """End the answer by closing the connection, with no end mark: nobody may take it for a whole one."""
        if self.left or self.complete:
            return
        self.flush()
        self.complete = True
        self.keep_alive = False
        self._wire.turn_over(self)

    def flush(self) -> None:
        """Write the head if it still waits for a body."""
        head, self._head = self._head, None
        if head is not None and not self.left:
            self._wire.transport.write(head)

    def _start(self, status: int, headers: Headers) -> None:
        """Make the head of an ASGI answer: its headers may say what is otherwise this module's to say."""
        named = dict(headers)
        if not b"".join(named).islower():  # as ASGI wants names; whoever writes them otherwise is served too
            headers = [(name.lower(), value) for name, value in headers]
            named = dict(headers)
        if b"connection" in named:
            if any(name == b"connection" and b"close" in value.lower() for name, value in headers):
                self.keep_alive = False
            headers = [line for line in headers if line[0] != b"connection"]
        if b"transfer-encoding" in named:
            headers = [line for line in headers if line[0] != b"transfer-encoding"]
        self._begin(status, headers, named.get(b"content-length"))

    def _begin(self, status: int, headers: Headers, length: bytes | None) -> None:
        """Make the head of an answer in pieces; `length` is what its headers say, if they do."""
        frame = b""
        if self.method == "HEAD" or status in _BODILESS:
            pass
        elif length is not None:
            self._remaining = int(length)
        elif self.scope["http_version"] == "1.0":
            self.keep_alive = False  # the end of the connection is the end of the answer
        else:
            self._chunked = True
            frame = b"transfer-encoding: chunked\r\n"
        self._head = self._head_of(status, headers, frame)

    def _head_of(self, status: int, headers: Headers, frame: bytes) -> bytes:
        """The head with these lines about its frame; from here on the status stands."""
        wire = self._wire
        if self.begun:
            raise RuntimeError("the answer has begun already")
        if wire.is_last() or (self.expects and not self.whole_read):
            self.keep_alive = False  # and of a body that was never asked for nobody knows if it still comes
        if not self.keep_alive:
            frame += b"connection: close\r\n"
        lines = b"\r\n".join(map(b": ".join, headers))
        breaks = len(headers) - 1 if headers else 0
        if lines.count(b"\n") != breaks or lines.count(b"\r") != breaks or b"\0" in lines:
            raise RuntimeError("a header of the answer holds a control character")
        self.begun = True
        return b"%b%b%b%b%b\r\n" % (
            _STATUS_LINES[status],
            wire.listener.date_line,
            lines,
            b"\r\n" if lines else b"",
            frame,
        )

    def _piece(self, body: bytes, *, last: bool) -> None:
        wire = self._wire
        head, self._head = self._head, None
        if self._chunked:
            size = len(body)
            if size >= _BIG:
                wire.transport.writelines(
                    (head or b"", b"%x\r\n" % size, body, b"\r\n0\r\n\r\n" if last else b"\r\n")
                )
            elif size:
                end = b"\r\n0\r\n\r\n" if last else b"\r\n"
                wire.transport.write(b"%b%x\r\n%b%b" % (head or b"", size, body, end))
            elif last:
                wire.transport.write((head or b"") + b"0\r\n\r\n")
            elif head is not None:
                wire.transport.write(head)
        elif self._remaining is None and (self.method == "HEAD" or self.scope["http_version"] != "1.0"):
            if head is not None:
                wire.transport.write(head)
        else:
            if self._remaining is not None:
                self._remaining -= len(body)
                if self._remaining < 0 or (last and self._remaining):
                    raise RuntimeError("the body is not as long as its content-length says")
            if head is None:
                wire.transport.write(body)
            elif len(body) >= _BIG:
                wire.transport.writelines((head, body))
            else:
                wire.transport.write(head + body)
        if last:
            self.complete = True
            wire.turn_over(self)

    async def run(self, app: App) -> None:
        """The application, and what is left to do when it fails. Never raises."""
        try:
            await app(self.scope, self.receive, self.asgi_send)
            if not self.complete and not self.left:
                log.error("the application returned before its answer was whole")
                self._fail()
        except asyncio.CancelledError:
            self._fail(errors.draining())
        except Exception as problem:
            # Its text may hold anything, a prompt or a key: what it was and where is all that is written.
            where = traceback.extract_tb(problem.__traceback__)[-1]
            log.error("%s at %s:%s (%s)", type(problem).__name__, where.filename, where.lineno, where.name)
            self._fail()
        finally:
            task, self.task = self.task, None
            self.scope = _OVER  # it knows this turn as its sink: a circle that only the collector would undo
            self._wire.listener.task_over(task)

    def _fail(self, error: GatewayError | None = None) -> None:
        if self.left or self.complete:
            return
        if self.begun and self._head is None:
            self.break_off()
            return
        self.begun, self._head, self._chunked, self._remaining = False, None, False, None
        self.keep_alive = False
        request_id: str = self.scope.get("request_id") or self._wire.listener.ids.next()
        if error is None:
            error = errors.internal_error(request_id)
            log.error("answered 500 as %s", request_id)
        status, headers, body = error_answer(error, request_id, self.scope.get("raw_path", b""))
        self._start(status, headers)
        self._piece(body, last=True)


_TAKEN: list[bytes] = []  # stands for a body that was given out, or that nobody wants any more
_OVER: Scope = {}  # stands for the scope of a request whose application has returned


# ── what comes in ──

_IDLE, _HEAD, _BODY, _PARTING = range(4)
_SPECIAL = frozenset(
    {
        b"host",
        b"authorization",
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"upgrade",
        b"content-encoding",
    }
)
_RARE = _SPECIAL - {b"host", b"authorization", b"content-length"}
_NOT_IN_TRAILERS = _SPECIAL | {b"connection", b"trailer", b"content-type", b"x-api-key"}
_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})
_HOST_BYTES = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]%~"
_URL_BYTES = bytes(range(0x21, 0x7F))
_TOO_MUCH_FRAMING = "the body has more chunk extensions and trailers than content needs"
_MOST_UNKNOWN = 3  # a client whose heads all differ is not looked at any more
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class _Refused(Exception):
    """Raised inside a parser's callback to stop it; the reason is `Wire._refusal`."""


class Wire(HttpToolsProtocol):
    """A client's connection: uvicorn's protocol, strict; it tells a running request that its client left."""

    parser: httptools.HttpRequestParser

    def __init__(self, config: uvicorn.Config, state: ServerState, listener: "Listener") -> None:
        super().__init__(config, state, {}, listener.loop)
        self.parser = httptools.HttpRequestParser(self)  # without the leniency that uvicorn gives it
        self.listener = listener
        self.limits = listener.limits
        self.running: Turn | None = None  # its answer is not complete, or nothing came after it
        self.reading: Turn | None = None  # whose body is being read
        self.waiting: deque[Turn] = deque()
        self.deaf = False  # not one byte more is parsed
        self.stage = _IDLE
        self.deadline = inf
        self.body_since = 0.0
        self._fresh = False
        self._chunked = False
        self._upgrading = False
        self._raw = 0  # bytes read since this head began; less than that if it began in the middle of a read
        self._alone = False  # the read that is being parsed began between two requests
        self._leads = False  # the head that is being parsed is the first thing in its read
        self._framing = 0  # bytes of this chunked body that are not its content
        self._special: dict[bytes, bytes] = {}
        self._known: KnownHead | None = None  # the last head, if it may come again
        self._plain: Scope | None = None  # of a head that was parsed just now and may be kept
        self._unknown = 0  # heads in a row that were not the one before
        self._missing = 0  # bytes of the body of a known head that have not come
        self.url = b""
        self._refusal: GatewayError | None = None
        self._last_words: bytes | None = None  # a refusal that waits for the answers before it
        self._taken = 0  # written bytes that the client had not taken, as last seen
        self._taken_at = 0.0

    # the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        listener = self.listener
        self.deadline = self.loop.time() + self.limits.head_seconds
        if len(listener.connections) > self.limits.max_connections:
            if len(listener.connections) > self.limits.max_connections + 1000:
                transport.abort()
                return
            self._refuse(errors.overloaded("too many connections"))
        elif listener.draining:
            self._refuse(errors.draining())

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.deaf = True
        self.stage = _PARTING
        self.parser = cast("httptools.HttpRequestParser", None)  # parser and protocol know each other: let go
        self.flow.resume_writing()
        self._leave(self.running)
        self._forget_waiting()
        self.listener.connection_over(self)

    def eof_received(self) -> None:
        """A half-closed connection is closed: see the rules at the top."""
        if self.is_busy:
            self.deaf = True
            self._leave(self.running)
            self._forget_waiting()
            self.transport.abort()  # closing would first wait for a buffer that maybe nobody empties
        elif self.stage != _PARTING:
            self._close(self.loop.time())

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        super().pause_writing()
        self._taken = -1
        self.listener.stalled.add(self)

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        super().resume_writing()
        self.listener.stalled.discard(self)

    def shutdown(self) -> None:
        """The drain has begun. What runs or is being sent goes on, an idle connection has a moment left."""
        if self.stage == _IDLE and not self.is_busy:
            self.deadline = min(self.deadline, self.loop.time() + self.listener.settings.drain_idle_seconds)

    @property
    def is_busy(self) -> bool:
        """A request runs."""
        return self.running is not None and not self.running.complete

    def is_last(self) -> bool:
        """After the running request's answer the connection closes, and nothing waits to be said on it."""
        return (self.deaf or self.listener.draining) and not self.waiting and self._last_words is None

    # the sweep

    def overdue(self, now: float) -> None:
        """The deadline has passed."""
        if self.stage == _PARTING:
            self.transport.abort()
        elif self.stage == _IDLE:
            self._close(now)
        elif self.stage == _HEAD:
            self._refuse(errors.request_timeout("the head of the request did not come to its end"))
        else:
            self._refuse(errors.request_timeout("the body of the request stopped coming"))

    def is_dripping(self, now: float) -> bool:
        """The body comes more slowly than anybody sends in earnest."""
        if self.stage != _BODY or self.reading is None:
            return False
        seconds = now - self.body_since
        limits = self.limits
        return (
            seconds > limits.body_idle_seconds and self.reading.size < seconds * limits.body_bytes_per_second
        )

    def check_write(self, now: float) -> None:
        """Called for a connection that takes no more: end it when the client takes nothing for too long."""
        left = self.transport.get_write_buffer_size()
        if left != self._taken:
            self._taken, self._taken_at = left, now
        elif now - self._taken_at > self.limits.write_seconds:
            self.transport.abort()

    # bytes

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.deaf:
            return
        stage = self.stage
        if stage == _IDLE:
            if self._known is not None and self._takes_known(data):
                return
        elif self._missing:
            data = self._take_body(data)
            if not data:
                return
            stage = self.stage
        size = len(data)
        if stage == _IDLE:
            self._raw, self._alone = size, True
        elif stage == _HEAD:
            self._raw += size
        else:
            self._framing += size
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            refusal = self._refusal
            if not self.deaf:
                self._refuse(refusal or _malformed("this is not a request in HTTP/1.1"))
            return
        if self._plain is not None:
            self._learn(data if stage == _IDLE else b"")
        self._after_read()

    def _learn(self, data: bytes) -> None:
        """Keep the head that leads this read, if it stands whole in it."""
        scope, self._plain = self._plain, None
        self._unknown += 1
        around = head_around_length(data)
        self._known = None if around is None or scope is None else KnownHead(*around, scope)

    def _takes_known(self, data: bytes) -> bool:
        """True if it is the last head once more, and what of its body has come: it is on its way then."""
        known, listener, limits = cast("KnownHead", self._known), self.listener, self.limits
        found = known.find(data)
        if found is None:
            return False
        length, start = found
        have = len(data) - start
        running = self.running
        if (
            have > length
            or length > limits.max_body
            or listener.held + length > limits.max_bodies
            or listener.closed
            or (running is not None and not running.complete)
        ):
            return False  # the parser's work
        self._unknown = 0
        turn = Turn(self, known.scope_of(length), "POST", keep_alive=True, expects=False)
        if have:
            turn.feed(data[start:])
            listener.held += have
        if have == length:
            turn.whole_read = True
            self.deadline = inf
        else:
            self.reading = turn
            self.stage = _BODY
            self._missing = length - have
            self._chunked = False
            self.body_since = self.loop.time()
            self.deadline = self.body_since + limits.body_idle_seconds
        self._begin(turn)
        return True

    def _take_body(self, data: bytes) -> bytes:
        """A piece of the body of a known head; gives back what follows the body."""
        rest = data[self._missing :]
        if rest:
            data = data[: self._missing]
        self._missing -= len(data)
        try:
            self.on_body(data)
        except _Refused:
            if not self.deaf:
                self._refuse(self._refusal or errors.overloaded("the body cannot be taken"))
            return b""
        if not self._missing:
            self.on_message_complete()
        self._after_read()
        return b"" if self.deaf else rest

    def _after_read(self) -> None:
        stage = self.stage
        if stage == _IDLE:
            if self.is_busy:
                self.deadline = inf
        elif stage == _BODY:
            if self._chunked and self._framing > self.limits.max_body_framing:
                self._refuse(_malformed(_TOO_MUCH_FRAMING))
                return
            self.deadline = self.loop.time() + self.limits.body_idle_seconds
            if self._fresh:
                self._fresh = False
                self.body_since = self.loop.time()
        elif stage == _HEAD:
            if self._fresh:
                self._fresh = False
                self.deadline = self.loop.time() + self.limits.head_seconds
            if self._raw > self.limits.max_head:
                self._refuse(self._head_too_large())

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Ignore the offer, as RFC 9110, 7.8 allows. The parser does not, it skips the body: take a new one.

        Java's HttpClient makes the offer with every request to a plain address.
        """
        self._upgrading = False
        if self.deaf:
            return
        self.parser = httptools.HttpRequestParser(_AfterUpgrade(self))
        length = self._special.get(b"content-length", b"0")
        frame = b"transfer-encoding: chunked" if self._chunked else b"content-length: " + length
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + frame + b"\r\n\r\n")
        if rest:
            self.data_received(rest)
        else:
            self._after_read()

    def on_message_begin(self) -> None:
        """Parser callback."""
        self.stage = _HEAD
        self._fresh = True
        self._leads = self._alone
        if self._alone:
            self._alone = False
        else:
            self._raw = 0
        self.url = b""
        self.headers = []
        self._special = {}

    def on_url(self, url: bytes) -> None:
        """Parser callback."""
        self.url += url
        if len(self.url) > self.limits.max_url:
            self._stop(errors.url_too_long(self.limits.max_url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Parser callback, for the head's lines and for trailers."""
        name = name.lower()
        if self.stage == _BODY:
            if name in _NOT_IN_TRAILERS:
                self._stop(_malformed("this header may not stand in a trailer"))
            return  # no other trailer has a meaning here
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Parser callback: every rule about the head is here."""
        limits, listener = self.limits, self.listener
        headers = self.headers
        if len(headers) > limits.max_header_lines:
            self._stop(self._head_too_large())
        special = self._special = dict(headers)
        if len(special) != len(headers):
            self._check_repeats(headers)
        size = 0
        if self._raw > limits.max_body_framing:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in headers)
            if size > limits.max_head:
                self._stop(self._head_too_large())
        version = self.parser.get_http_version()
        if version != "1.1" and version != "1.0":
            self._stop(_malformed("only HTTP/1.1 is spoken here", 505))
        method = self.parser.get_method()
        if method not in _METHODS:
            self._stop(errors.method_not_allowed(method.decode(), "any path"))
        url = self.url
        if not url.startswith(b"/") or url.translate(None, _URL_BYTES):
            self._stop(_malformed("the request's target must be a path"))
        self._check_special(special, version)
        if listener.closed:
            self._stop(errors.draining())
        raw_path, _, query = url.partition(b"?")
        path = raw_path.decode("ascii")
        if "%" in path:
            path = unquote(path)
        verb = method.decode("ascii")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": headers,
            "method": verb,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "head": None,
        }
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        if (
            self._leads
            and keep_alive
            and verb == "POST"
            and b"content-length" in special
            and self._unknown < _MOST_UNKNOWN
            and _RARE.isdisjoint(special)
        ):
            self._plain = scope.copy()
        turn = Turn(self, scope, verb, keep_alive=keep_alive, expects=b"expect" in special)
        self.reading = turn
        self.stage = _BODY
        self._chunked = b"transfer-encoding" in special
        self._upgrading = b"upgrade" in special and self.parser.should_upgrade()
        self._framing = self._raw - size if size else 0
        self._fresh = True
        if not self.is_busy:
            self._begin(turn)
        elif len(self.waiting) < limits.max_waiting:
            self.waiting.append(turn)
        else:
            self.reading = None
            self.deaf = True  # what is here already is answered; the client asks again for the rest
            self.stage, self.deadline = _IDLE, inf
            raise _Refused

    def _check_repeats(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        seen: set[bytes] = set()
        for name, _ in headers:
            if name in seen:
                if name == b"authorization":
                    self._stop(errors.conflicting_credentials("two authorization headers; send one"))
                self._stop(_malformed(f"{name.decode()} stands twice in the request's head; send it once"))
            if name in _SPECIAL:
                seen.add(name)

    def _check_special(self, special: Mapping[bytes, bytes], version: str) -> None:
        host = special.get(b"host")
        if host is None:
            if version != "1.0":
                self._stop(_malformed("the host header is missing"))
        elif host.translate(None, _HOST_BYTES):
            self._stop(_malformed("the host header is not a host"))
        length = special.get(b"content-length")
        if length is not None:
            if not length.isdigit():
                self._stop(_malformed("content-length is not a number"))
            if len(length) > 18 or int(length) > self.limits.max_body:
                self._stop(errors.request_too_large(self.limits.max_body))
            if self.listener.held + int(length) > self.limits.max_bodies:
                self._stop(errors.overloaded("too many large requests at once"))
        if _RARE.isdisjoint(special):
            return
        coding = special.get(b"transfer-encoding")
        if coding is not None and (length is not None or version == "1.0" or coding.lower() != b"chunked"):
            self._stop(_malformed("this transfer-encoding is not understood here"))
        expect = special.get(b"expect")
        if expect is not None and expect.lower() != b"100-continue":
            self._stop(_malformed("this expectation is not met here", 417))
        upgrade = special.get(b"upgrade")
        if upgrade is not None and upgrade.lower().strip() == b"websocket":
            self._stop(_malformed("no websockets here; send a plain request", 426))
        packed = special.get(b"content-encoding")
        if packed is not None and packed.lower().strip() not in (b"", b"identity"):
            self._stop(errors.unsupported_content_encoding(packed.decode("latin-1")))

    def on_body(self, body: bytes) -> None:
        """Parser callback."""
        turn = self.reading
        size = len(body)
        self._framing -= size
        if turn is None:
            return
        if turn.size + size > self.limits.max_body:
            self._stop(errors.request_too_large(self.limits.max_body))
        if turn.complete or turn.left:
            turn.size += size  # nobody reads it; it still counts against the limit
            return
        turn.feed(body)
        listener = self.listener
        listener.held += size
        if listener.held > self.limits.max_bodies:
            self._stop(errors.overloaded("too many large requests at once"))
        if turn is not self.running and sum(t.size for t in self.waiting) > self.limits.max_body:
            self._stop(errors.request_too_large(self.limits.max_body))

    def on_message_complete(self) -> None:
        """Parser callback."""
        if self._upgrading:
            return  # said by the parser that skips the body
        if self._chunked and self._framing > self.limits.max_body_framing:
            self._stop(_malformed(_TOO_MUCH_FRAMING))
        turn, self.reading = self.reading, None
        self.stage = _IDLE
        if turn is None:
            return
        turn.whole_read = True
        turn.wake()
        if not turn.keep_alive:
            self.deaf = True  # nothing after a request that closes is a request
        if turn.complete:
            self._rest()

    def _stop(self, error: GatewayError) -> None:
        self._refusal = error
        raise _Refused

    def _head_too_large(self) -> GatewayError:
        limits = self.limits
        return errors.headers_too_large(
            f"the head is larger than {limits.max_head} bytes or {limits.max_header_lines} lines"
        )

    # turns

    def _begin(self, turn: Turn) -> None:
        self.running = turn
        turn.task = self.loop.create_task(turn.run(self.listener.app))
        self.listener.tasks.add(turn.task)

    def turn_over(self, turn: Turn) -> None:
        """The answer of the running request is out."""
        listener = self.listener
        listener.held -= min(turn.size, listener.held)
        turn.forget_body()
        if turn is not self.running or self.transport.is_closing():
            return
        if not turn.keep_alive:
            self._forget_waiting()
            if turn.whole_read and self._last_words is None:
                self._close(self.loop.time())
            else:
                self._part(self._last_words or b"")
        elif self.waiting:
            self._begin(self.waiting.popleft())
        elif self._last_words is not None:
            self._part(self._last_words)
        elif self.deaf:
            self._part(b"")
        elif self.stage == _IDLE:
            self._rest()

    def _rest(self) -> None:
        """Between two requests."""
        now = self.loop.time()
        if self.listener.draining:
            self._close(now)
        elif not self.transport.is_closing():
            self.deadline = now + self.limits.idle_seconds

    def _close(self, now: float) -> None:
        self.deaf = True
        self.stage = _PARTING
        self.deadline = now + self.limits.write_seconds
        self.transport.close()

    def _part(self, words: bytes) -> None:
        """Say the last words, close our side, and read on for a moment: else the client sees only a reset."""
        self.deaf = True
        self.stage = _PARTING
        self.deadline = self.loop.time() + self.limits.part_seconds
        if self.transport.is_closing():
            return
        if words:
            self.transport.write(words)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _refuse(self, error: GatewayError) -> None:
        """Answer for the client's fault, after the answers that are due before it, and close."""
        self.deaf = True
        path = self.url.partition(b"?")[0]
        status, headers, body = error_answer(error, self.listener.ids.next(), path)
        self.listener.hooks.refused(status, error.code)
        lines = b"".join(b"%b: %b\r\n" % line for line in headers)
        words = b"%b%b%bconnection: close\r\n\r\n%b" % (
            _STATUS_LINES[status],
            self.listener.date_line,
            lines,
            body,
        )
        faulty, self.reading = self.reading, None
        running = self.running
        if running is None or running.complete:
            # An answer that came before its body was read stands; there is nothing to add to it.
            self._part(b"" if faulty is not None and faulty is running else words)
        elif faulty is running:
            started = running.begun
            if started:
                running.flush()
            self._leave(running)
            self._part(b"" if started else words)
        else:
            if faulty is not None:
                self.waiting.remove(faulty)
                self.listener.held -= min(faulty.size, self.listener.held)
            self._last_words = words
            self.stage, self.deadline = _IDLE, inf

    def _leave(self, turn: Turn | None) -> None:
        if turn is None or turn.complete or turn.left:
            return
        self.listener.held -= min(turn.size, self.listener.held)
        turn.leave()

    def _forget_waiting(self) -> None:
        for turn in self.waiting:
            turn.left = True
            self.listener.held -= min(turn.size, self.listener.held)
        self.waiting.clear()


class _AfterUpgrade:
    """Called by the parser that takes over after an ignored offer: the first head it is given is known."""

    def __init__(self, wire: Wire) -> None:
        self._known = True
        self._wire = wire
        self.on_body = wire.on_body
        self.on_message_complete = wire.on_message_complete

    def on_message_begin(self) -> None:
        """Parser callback."""
        if not self._known:
            self._wire.on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Parser callback."""
        if not self._known:
            self._wire.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Parser callback."""
        if not self._known:
            self._wire.on_header(name, value)

    def on_headers_complete(self) -> None:
        """Parser callback."""
        if self._known:
            self._known = False
        else:
            self._wire.on_headers_complete()


# ── listeners ──


class Listener:
    """One address: its socket, its connections, its sweep and its drain."""

    def __init__(
        self,
        app: App,
        address: socket.socket,
        *,
        settings: ServingSettings,
        hooks: ServingHooks,
        lifespan: bool,
    ) -> None:
        self.app = app
        self.settings = settings
        self.limits = settings.limits
        self.hooks = hooks
        self.ids = RequestIds()
        self.loop = asyncio.get_running_loop()
        self.connections: set[Wire] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.stalled: set[Wire] = set()
        self.held = 0  # bytes of bodies
        self.draining = False  # no new connections; each request is the last of its connection
        self.closed = False  # no new requests either
        self.date_line = b""
        self._socket = address
        self._config = uvicorn.Config(
            app=cast("Any", app),
            http=Wire,
            ws="none",
            lifespan="on" if lifespan else "off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        self._state = ServerState()
        self._state.connections = cast("Any", self.connections)
        self._state.tasks = self.tasks
        self._lifespan: LifespanOn | None = None
        self._server: asyncio.Server | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._second: int = 0
        self._empty: asyncio.Future[None] | None = None
        limits = self.limits
        shortest = min(
            limits.head_seconds,
            limits.body_idle_seconds,
            limits.idle_seconds,
            limits.write_seconds,
            limits.part_seconds,
            settings.drain_idle_seconds,
        )
        self._every = min(0.25, max(0.005, shortest / 8))

    async def start(self) -> None:
        """Run the application's start-up and take connections. Raises RuntimeError if the start-up fails."""
        self._config.load()
        if self._config.lifespan == "on":
            self._lifespan = LifespanOn(self._config)
            await self._lifespan.startup()
            if self._lifespan.should_exit:
                raise RuntimeError("the application did not start")
        self._sweep()
        self._server = await self.loop.create_server(
            lambda: Wire(self._config, self._state, self), sock=self._socket, backlog=2048
        )

    async def stop(self, seconds: float) -> None:
        """Take nothing new, let what runs end for `seconds`, then make it end."""
        self.draining = True
        if self._server is not None:
            self._server.close()
        for wire in list(self.connections):
            wire.shutdown()
        if not await self._empties(seconds):
            self.closed = True
            for wire in list(self.connections):
                drain_over = wire.running.drain_over if wire.is_busy and wire.running else None
                if drain_over is not None:
                    drain_over()
            self.hooks.drain_over()
            if not await self._empties(self.settings.cut_seconds):
                for task in list(self.tasks):
                    task.cancel()
                await self._empties(min(0.5, self.settings.cut_seconds))
                for wire in list(self.connections):
                    wire.transport.abort()
                await self._empties(self.settings.cut_seconds)
        if self._lifespan is not None:
            await self._lifespan.shutdown()
        if self._tick is not None:
            self._tick.cancel()

    def connection_over(self, wire: Wire) -> None:
        """A connection is gone."""
        self.connections.discard(wire)
        self.stalled.discard(wire)
        self._look_if_empty()

    def task_over(self, task: asyncio.Task[None] | None) -> None:
        """A request's task is at its end."""
        if task is not None:
            self.tasks.discard(task)
            self._look_if_empty()

    def _look_if_empty(self) -> None:
        empty = self._empty
        if empty is not None and not empty.done() and not self.connections and not self.tasks:
            empty.set_result(None)

    async def _empties(self, seconds: float) -> bool:
        self._empty = self.loop.create_future()
        self._look_if_empty()
        done, _ = await asyncio.wait([self._empty], timeout=seconds)
        return bool(done)

    def _sweep(self) -> None:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self.date_line = b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
        now = self.loop.time()
        late = now + self._every / 2  # rather half a tick too early than late
        for wire in [w for w in self.connections if w.deadline <= late]:
            wire.overdue(now)
        for wire in [w for w in self.connections if w.stage == _BODY and w.is_dripping(now)]:
            wire.overdue(now)
        for wire in list(self.stalled):
            wire.check_write(now)
        self._tick = self.loop.call_later(self._every, self._sweep)


def bind(listen: str) -> socket.socket:
    """A listening socket for "host:port" or "[::1]:port". Raises OSError with the address in its text."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.create_server((host, int(port)), family=family, backlog=2048)
    except OSError as problem:
        raise OSError(f"cannot listen on {listen}: {problem.strerror or problem}") from problem
    found.setblocking(False)
    return found


def address_of(bound: socket.socket) -> str:
    """The address of a bound socket as "host:port"."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def run(
    data_app: App, admin_app: App, settings: ServingSettings, hooks: ServingHooks | None = None
) -> int:
    """Serve both applications until a signal, drain, and give the exit code.

    The data application is called for requests only; the admin application gets ASGI's lifespan too. Raises
    OSError when an address is taken, RuntimeError when the admin application does not start.
    """
    hooks = hooks or ServingHooks()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def stopping() -> None:
        if not stop.is_set():
            hooks.draining()
            stop.set()

    # Before the sockets: whoever has reached us may already want us to stop.
    handled = {signal.SIGTERM: stopping, signal.SIGINT: stopping, signal.SIGHUP: hooks.reload}
    for number, handler in handled.items():
        loop.add_signal_handler(number, handler)
    try:
        with bind(settings.listen) as data_socket, bind(settings.admin_listen) as admin_socket:
            data = Listener(data_app, data_socket, settings=settings, hooks=hooks, lifespan=False)
            admin = Listener(admin_app, admin_socket, settings=settings, hooks=ServingHooks(), lifespan=True)
            await admin.start()
            await data.start()
            hooks.listening(address_of(data_socket), address_of(admin_socket))
            await stop.wait()
            await data.stop(settings.drain_seconds)
            await admin.stop(min(1.0, settings.drain_seconds))
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
    return 0
