"""The connections to one provider: at most so many, the one used last is used first.

An exchange that finds no idle connection opens one of its own. At the cap it waits its turn, for less than a
second, for whichever comes first: a connection given back or room for a new one. The cap counts connections
being opened, idle and in use. Idle ones are closed after a while, the longest unused first.
"""

import asyncio
import errno
import ssl
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass

from gateway.upstream import FailureKind, UpstreamFailure
from gateway.upstream.connection import Connection, OwnExchange
from gateway.upstream.deadlines import Alarm, Wheel
from gateway.upstream.known_answer import KnownAnswers
from gateway.upstream.resolve import NEXT_ADDRESS_SECONDS, ResolveProblem, Resolver, connect
from gateway.upstream.settings import Address
from gateway.upstream.tls import problem_of

WAIT_SECONDS = 0.9  # for a connection, when all are in use
MAX_WAITING = 1000

# Our own machine has no more sockets, ports or memory: no fault of the provider's.
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStanding:
    """How many connections there are, by what they do."""

    opening: int
    idle: int
    in_use: int
    waiting: int  # exchanges without a connection
    resent: int  # since the start: requests repeated because an idle connection turned out dead


class Pool:
    """See the module."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        resolver: Resolver,
        context: ssl.SSLContext | None,
        *,
        max_connections: int,
        idle_seconds: float,
    ) -> None:
        self.wheel = Wheel(loop)
        self.known = KnownAnswers()
        self.loop = loop
        self._address = address
        self._resolver = resolver
        self._context = context
        self._room = max_connections
        self._idle_seconds = idle_seconds
        self._idle: list[Connection] = []  # the one used last at the end; dead ones are skipped when met
        self._all: set[Connection] = set()
        self._dials: dict[asyncio.Task[Connection], OwnExchange] = {}
        self._waiting: OrderedDict[OwnExchange, None] = OrderedDict()  # who is over has left it
        self._sweep: asyncio.TimerHandle | None = None
        self._keeps = True  # False once retired
        self._closed = False
        self._resent = 0

    def standing(self) -> PoolStanding:
        """What is going on just now."""
        idle = sum(connection.alive for connection in self._idle)
        return PoolStanding(
            opening=len(self._dials),
            idle=idle,
            in_use=len(self._all) - idle,
            waiting=len(self._waiting),
            resent=self._resent,
        )

    def take(self, now: float) -> Connection | None:
        """An idle connection that is fit for a request; None: there is none."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.usable():
                if now - connection.free_since < self._idle_seconds:
                    return connection
                connection.drop()
        return None

    def wait(self, exchange: OwnExchange, now: float) -> None:
        """Put a new exchange on its way to a connection."""
        exchange.alarm.sleeper = exchange
        exchange.arm(now)
        self._open(exchange, now)

    def retire(self) -> None:
        """Keep no connection any longer than its exchange needs it."""
        self._keeps = False
        self._drop_idle()

    async def close(self) -> None:
        """Close everything; what is under way fails."""
        self._keeps = False
        self._closed = True
        for exchange in [*self._waiting, *self._dials.values()]:
            exchange.fail_as("pool_exhausted", "the gateway closed its connections")
        for connection in list(self._all):
            connection.close()
        self._drop_idle()
        self.wheel.stop()
        if self._dials:
            await asyncio.wait(list(self._dials))
        await asyncio.sleep(0)  # transports close their sockets in the loop's next turn

    # the connections' home

    def give(self, connection: Connection) -> None:
        """See Home."""
        now = self.loop.time()
        if self._waiting:
            exchange, _ = self._waiting.popitem(last=False)
            connection.send(exchange, now)
            return
        if not self._keeps:
            connection.drop()
            return
        connection.free_since = now
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self.loop.call_later(self._idle_seconds, self._close_unused)

    def lost(self, connection: Connection) -> None:
        """See Home."""
        self._all.discard(connection)
        self._open_for_next()

    def send_again(self, exchange: OwnExchange) -> None:
        """See Home."""
        self._resent += 1
        exchange.alarm = Alarm(self.wheel, exchange)
        self._open(exchange, self.loop.time())

    def leave(self, exchange: OwnExchange) -> None:
        """See Home."""
        self._waiting.pop(exchange, None)
        if exchange.dialing is not None:
            exchange.dialing.cancel()
            exchange.dialing = None

    # opening

    def _open(self, exchange: OwnExchange, now: float) -> None:
        if self._closed:
            exchange.fail_as("pool_exhausted", "the gateway closed its connections")
        elif len(self._all) + len(self._dials) < self._room:
            self._dial(exchange, now)
        elif len(self._waiting) >= MAX_WAITING:
            exchange.fail_as(
                "pool_exhausted", f"{self._room} connections in use and {MAX_WAITING} requests waiting"
            )
        else:
            self._waiting[exchange] = None
            exchange.enter("pool_exhausted", now, WAIT_SECONDS)

    def _open_for_next(self) -> None:
        while self._waiting and len(self._all) + len(self._dials) < self._room:
            exchange, _ = self._waiting.popitem(last=False)
            self._dial(exchange, self.loop.time())

    def _dial(self, exchange: OwnExchange, now: float) -> None:
        exchange.enter("resolve", now, exchange.limits.connect_seconds)
        task = self.loop.create_task(self._connect(exchange))
        exchange.dialing = task
        self._dials[task] = exchange
        task.add_done_callback(self._dialed)

    async def _connect(self, exchange: OwnExchange) -> Connection:
        endpoints = await self._resolver.endpoints()
        exchange.phase = "connect_timeout"
        socket, endpoint = await connect(endpoints, next_seconds=NEXT_ADDRESS_SECONDS)
        self._resolver.prefer(endpoint)
        try:
            if self._context is None:
                _, connection = await self.loop.create_connection(
                    lambda: Connection(self, self.wheel), sock=socket
                )
            else:
                exchange.phase = "tls"
                _, connection = await self.loop.create_connection(
                    lambda: Connection(self, self.wheel),
                    sock=socket,
                    ssl=self._context,
                    server_hostname=self._address.host,
                    ssl_handshake_timeout=exchange.limits.connect_seconds + 1,  # ours comes first
                )
        except BaseException:
            with suppress(OSError):
                socket.close()
            raise
        return connection

    def _dialed(self, task: asyncio.Task[Connection]) -> None:
        exchange = self._dials.pop(task)
        exchange.dialing = None
        if task.cancelled():
            self._open_for_next()
            return
        error = task.exception()
        if error is not None:
            exchange.fail(self._failure_of(error, exchange))
            self._open_for_next()
            return
        connection = task.result()
        if self._closed:
            connection.drop()
            return
        if not connection.usable():
            exchange.fail_as("reset", "closed as soon as it was open")
            connection.drop()
            self._open_for_next()
            return
        self._all.add(connection)
        if exchange.over:  # cancelled in the very moment it was ready
            self.give(connection)
        else:
            connection.send(exchange, self.loop.time())

    def _failure_of(self, error: BaseException, exchange: OwnExchange) -> BaseException:
        kind: FailureKind
        where = self._address.authority
        if isinstance(error, ResolveProblem):
            kind, detail = "resolve", str(error)
        elif exchange.phase == "tls" and isinstance(error, (OSError, ValueError)):
            kind, detail = "tls", f"{where}: {problem_of(error)}"
        elif isinstance(error, OSError) and error.errno in _NO_ROOM:
            kind, detail = "pool_exhausted", f"this machine: {error.strerror}"
        elif isinstance(error, TimeoutError):
            kind, detail = "connect_timeout", f"{where} did not answer"
        elif isinstance(error, OSError):
            kind, detail = "connect_refused", f"{where}: {error.strerror or 'no connection'}"
        else:
            return error  # a fault of our own: not to be hidden
        return UpstreamFailure(kind, detail, sent=exchange.sent)

    # closing

    def _close_unused(self) -> None:
        self._sweep = None
        oldest = self.loop.time() - self._idle_seconds
        unused = [connection for connection in self._idle if connection.free_since <= oldest]
        self._idle = [
            connection for connection in self._idle if connection.alive and connection.free_since > oldest
        ]
        for connection in unused:
            connection.drop()
        if self._idle:
            wait = self._idle[0].free_since - oldest
            self._sweep = self.loop.call_later(max(wait, 0.01), self._close_unused)

    def _drop_idle(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.drop()
