"""The same interface over httpx, for providers that need HTTP/2, a proxy, or another opinion on HTTP.

Several times dearer per request than our own client, and for the same work: every fault ends in the same kind
of failure. A task per exchange reads from httpx and waits while the reader is behind.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from math import inf
from typing import Any

import httpcore
import httpx

from gateway.upstream import METHODS, Call, FailureKind
from gateway.upstream.connection import MAX_HEAD_BYTES, MAX_HEADERS, RESEND_SECONDS
from gateway.upstream.deadlines import Alarm, Wheel
from gateway.upstream.exchange import BufferedExchange
from gateway.upstream.pool import WAIT_SECONDS
from gateway.upstream.settings import OWN_HEADERS, USER_AGENT, Settings, address_of, auth_of, is_plain
from gateway.upstream.tls import context_for, problem_of

# They would write URLs with queries, and at debug level headers with keys in them.
for _name in ("httpx", "httpcore", "hpack", "h2"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class HttpxExchange(BufferedExchange, eq=False, weakref=True):
    """One attempt through httpx."""

    task: asyncio.Task[None] | None = None
    fresh: bool = False  # a connection was opened for it
    phase: FailureKind = "connect_refused"
    _drained: asyncio.Event | None = None
    _opening: httpcore.AsyncNetworkStream | None = None

    def finish(self) -> None:
        """Every byte of the answer has come."""
        super().finish()
        self.alarm.drop()

    async def trace(self, name: str, info: dict[str, Any]) -> None:
        """What httpcore does just now (its trace extension)."""
        if name == "connection.connect_tcp.started":
            self.fresh = True
            self._phase_due = self._loop.time() + self.limits.connect_seconds
            self.arm(self._loop.time())
        elif name.endswith("connect_tcp.complete"):
            stream = info.get("return_value")
            if isinstance(stream, httpcore.AsyncNetworkStream):
                self._opening = stream
        elif name.endswith("start_tls.started"):
            self.phase = "tls"
        elif name.endswith("start_tls.failed"):
            if self._opening is not None:  # httpcore forgets it when the handshake is cancelled
                await self._opening.aclose()
        elif name.endswith("send_request_headers.started"):
            self._phase_due = inf
            self._opening = None
            self.sent = True
            self.phase = "reset"

    async def drained(self) -> None:
        """Wait until the reader has caught up."""
        if self._drained is not None:
            await self._drained.wait()

    def _phase_failure(self) -> tuple[FailureKind, str]:
        return "connect_timeout", f"not connected after {self.limits.connect_seconds:g} s"

    def _pause(self) -> None:
        self._drained = asyncio.Event()

    def _resume(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _leave(self) -> None:
        self.alarm.drop()
        if self.task is not None:
            self.task.cancel()


class HttpxUpstream:
    """The connections of one event loop to one provider, kept by httpx."""

    def __init__(self, settings: Settings) -> None:
        """Raises ValueError for settings it cannot use, OSError for a `ca_file` it cannot read."""
        self._address = address_of(settings.base_url)
        scheme = "https" if self._address.secure else "http"
        self._origin = f"{scheme}://{self._address.authority}"
        auth = auth_of(settings)
        fixed = [(b"user-agent", USER_AGENT.encode()), (b"accept-encoding", b"identity")]
        self._fixed = fixed if auth is None else [*fixed, auth]
        self._own_headers = OWN_HEADERS if auth is None else OWN_HEADERS | {auth[0]}
        protocols = ("http/1.1", "h2") if settings.http2 else ("http/1.1",)
        self._client = httpx.AsyncClient(
            verify=context_for(settings.ca_file, protocols=protocols),
            http2=settings.http2,
            proxy=settings.proxy,
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(
                max_connections=settings.max_connections,
                max_keepalive_connections=settings.max_connections,
                keepalive_expiry=settings.idle_connection_seconds,
            ),
            timeout=httpx.Timeout(None, pool=WAIT_SECONDS),  # all others are ours
        )
        self._wheel: Wheel | None = None
        self._running: dict[asyncio.Task[None], HttpxExchange] = {}
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    def open(self, call: Call) -> HttpxExchange:
        """See Upstream. Raises ValueError for a path or a header that would not be one request."""
        loop = asyncio.get_running_loop()
        if self._wheel is None:
            self._wheel = Wheel(loop)
        request = self._request_of(call)
        now = loop.time()
        limits = call.limits
        exchange = HttpxExchange(
            loop,
            Alarm(self._wheel),
            limits,
            now + limits.total_seconds,
            inf if limits.first_token_seconds is None else now + limits.first_token_seconds,
            now,
        )
        exchange.alarm.sleeper = exchange
        request.extensions["trace"] = exchange.trace
        task = loop.create_task(self._run(exchange, request))
        exchange.task = task
        self._running[task] = exchange
        task.add_done_callback(self._ran)
        exchange.arm(now)
        return exchange

    @property
    def in_use(self) -> int:
        """Exchanges under way."""
        return len(self._running)

    def retire(self) -> None:
        """See Upstream."""
        self._retired = True
        if not self._running:
            self._close_soon()

    async def close(self) -> None:
        """See Upstream."""
        for exchange in list(self._running.values()):
            exchange.fail_as(
                "reset" if exchange.sent else "pool_exhausted", "the gateway closed its connections"
            )
        if self._running:
            await asyncio.wait(list(self._running))
        if self._closing is not None:
            await self._closing
        await self._client.aclose()
        if self._wheel is not None:
            self._wheel.stop()

    def _close_soon(self) -> None:
        if self._closing is None and self._wheel is not None:
            self._closing = asyncio.get_running_loop().create_task(self._client.aclose())

    def _request_of(self, call: Call) -> httpx.Request:
        target = self._address.target(call.path)
        if (
            call.method not in METHODS
            or not call.path.startswith("/")
            or not is_plain(target)
            or " " in target
        ):
            raise ValueError("not a request this client can send")
        for name, value in call.headers:
            if name.lower() in self._own_headers:
                raise ValueError(f"the client writes the header {name.decode('latin-1')!r} itself")
            if any(byte in b"\r\n\0" for byte in name + value):
                raise ValueError("a header holds a line break")
        return self._client.build_request(
            call.method, self._origin + target, headers=[*self._fixed, *call.headers], content=call.body
        )

    async def _run(self, exchange: HttpxExchange, request: httpx.Request) -> None:
        started = asyncio.get_running_loop().time()
        try:
            try:
                response = await self._client.send(request, stream=True)
            except (httpx.RemoteProtocolError, httpx.NetworkError) as error:
                # A connection that died while it was idle shows only now; the request goes out once more.
                late = asyncio.get_running_loop().time() - started >= RESEND_SECONDS
                if exchange.fresh or late or not _was_cut(error):
                    raise
                response = await self._client.send(request, stream=True)
            try:
                await self._relay(exchange, response)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            kind, detail = self._failure_of(error, exchange)
            exchange.task = None  # it ends by itself
            exchange.fail_as(kind, detail)

    async def _relay(self, exchange: HttpxExchange, response: httpx.Response) -> None:
        headers = [(name.lower(), value) for name, value in response.headers.raw]
        problem = _problem_of_head(headers)
        if problem is not None:
            exchange.task = None
            exchange.fail_as("invalid_response", problem)
            return
        exchange.begins(response.status_code, headers)
        if _is_packed(
            headers
        ):  # it may be a whole answer, and billed, so that there was a head is to be known
            exchange.task = None
            exchange.fail_as("invalid_response", "packed although we asked for identity")
            return
        exchange.fed()
        async for piece in response.aiter_raw():
            exchange.parts.append(piece)
            exchange.buffered += len(piece)
            exchange.fed()
            await exchange.drained()
        exchange.finish()

    def _failure_of(self, error: httpx.HTTPError, exchange: HttpxExchange) -> tuple[FailureKind, str]:
        where = self._address.authority
        if isinstance(error, httpx.PoolTimeout):
            return "pool_exhausted", "no connection became free"
        if isinstance(error, httpx.ProxyError):
            return "connect_refused", f"the proxy refused to reach {where}"
        if isinstance(error, httpx.ConnectError):
            for cause in _causes_of(error):
                if isinstance(cause, ssl.SSLError):
                    return "tls", f"{where}: {problem_of(cause)}"
                if isinstance(cause, socket.gaierror):
                    return "resolve", f"{self._address.host} does not resolve: {cause.strerror}"
            if exchange.phase == "tls":
                return "tls", f"{where}: {problem_of(error)}"
            return "connect_refused", f"{where}: no connection"
        if _was_cut(error):
            return (
                "reset",
                "closed in the middle of the body" if exchange.status else "closed before an answer",
            )
        return "invalid_response", "not an HTTP answer, or over the limits of its head"

    def _ran(self, task: asyncio.Task[None]) -> None:
        exchange = self._running.pop(task)
        exchange.task = None
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                exchange.fail(error)  # a fault of our own: not to be hidden
        if self._retired and not self._running:
            self._close_soon()


def _problem_of_head(headers: list[tuple[bytes, bytes]]) -> str | None:
    if (
        len(headers) > MAX_HEADERS
        or sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEAD_BYTES
    ):
        return f"more than {MAX_HEADERS} headers or {MAX_HEAD_BYTES} bytes of them"
    return None


def _is_packed(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"content-encoding" and value.strip().lower() not in (b"identity", b"")
        for name, value in headers
    )


def _was_cut(error: httpx.HTTPError) -> bool:
    """True if the connection ended, rather than said something wrong."""
    if isinstance(error, httpx.NetworkError):
        return not isinstance(error, httpx.ConnectError)
    said = str(error)
    return said.startswith(("Server disconnected", "peer closed connection"))


def _causes_of(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
