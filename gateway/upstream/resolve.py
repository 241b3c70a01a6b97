"""Names to addresses, remembered for a moment; then the quickest of several addresses wins.

A look-up runs in a thread of its own, one at a time per provider: a name server that does not answer holds up
nobody else, and no thread has to be waited for at exit.
"""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

KEEP_SECONDS = 30.0
KEEP_FAILURE_SECONDS = 2.0
NEXT_ADDRESS_SECONDS = 0.25  # a slow address gets this much of a start before the next one is tried as well


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address to connect to, as the socket module wants it."""

    family: int
    address: tuple[str, int] | tuple[str, int, int, int]


LookUp = Callable[[str, int], Sequence[Endpoint]]
"""Blocks; raises OSError when the name does not resolve."""


class ResolveProblem(Exception):
    """The name did not resolve; says which and why."""


def look_up(host: str, port: int) -> list[Endpoint]:
    """Ask the system."""
    answers: list[Endpoint] = []
    for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if family == socket.AF_INET:
            answers.append(Endpoint(family, (str(address[0]), int(address[1]))))
        elif family == socket.AF_INET6 and len(address) == 4:
            answers.append(
                Endpoint(family, (str(address[0]), int(address[1]), int(address[2]), int(address[3])))
            )
    return answers


class Resolver:
    """The addresses of one host."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        look_up: LookUp = look_up,
        keep_seconds: float = KEEP_SECONDS,
        keep_failure_seconds: float = KEEP_FAILURE_SECONDS,
    ) -> None:
        self._host = host
        self._port = port
        self._look_up = look_up
        self._keep_seconds = keep_seconds
        self._keep_failure_seconds = keep_failure_seconds
        self._known: list[Endpoint] = []
        self._problem = ""
        self._until = 0.0  # by the loop's clock
        self._asked = False
        self._pending: asyncio.Future[Sequence[Endpoint]] | None = None
        with suppress(ValueError):
            version = ipaddress.ip_address(host).version
            literal = (host, port) if version == 4 else (host, port, 0, 0)
            self._known = [Endpoint(socket.AF_INET if version == 4 else socket.AF_INET6, literal)]
            self._asked = True
            self._until = float("inf")

    async def endpoints(self) -> Sequence[Endpoint]:
        """Where to connect, best first, families taking turns. Raises ResolveProblem."""
        loop = asyncio.get_running_loop()
        if not self._asked or loop.time() >= self._until:
            if self._pending is None:
                self._pending = self._ask(loop)
            try:
                # Others may wait for the same answer: who leaves must not take it from them.
                self._known, self._problem = taking_turns(await asyncio.shield(self._pending)), ""
            except OSError as error:
                self._known, self._problem = (
                    [],
                    f"{self._host} does not resolve: {error.strerror or 'no answer'}",
                )
        if not self._known:
            raise ResolveProblem(self._problem or f"{self._host} does not resolve: no address")
        return self._known

    def prefer(self, endpoint: Endpoint) -> None:
        """This one answered: try it first while the answer is remembered."""
        if self._known and self._known[0] is not endpoint and endpoint in self._known:
            self._known = [endpoint, *(other for other in self._known if other is not endpoint)]

    def _ask(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Sequence[Endpoint]]:
        answer: asyncio.Future[Sequence[Endpoint]] = loop.create_future()

        def settle(found: Sequence[Endpoint] | OSError) -> None:
            self._pending = None
            self._asked = True
            failed = isinstance(found, OSError)
            self._until = loop.time() + (
                self._keep_failure_seconds if failed or not found else self._keep_seconds
            )
            if isinstance(found, OSError):
                answer.set_exception(found)
                answer.exception()  # seen, even if all who waited have left
            else:
                answer.set_result(found)

        def ask() -> None:
            found: Sequence[Endpoint] | OSError
            try:
                found = self._look_up(self._host, self._port)
            except OSError as error:
                found = error
            except UnicodeError:
                found = OSError(0, "not a host name")
            with suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(settle, found)

        threading.Thread(target=ask, name="look-up", daemon=True).start()
        return answer


def taking_turns(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """The same, in the system's order, but families alternate, so that one broken family costs one step."""
    first = [endpoint for endpoint in endpoints if endpoint.family == endpoints[0].family]
    second = [endpoint for endpoint in endpoints if endpoint.family != endpoints[0].family]
    order: list[Endpoint] = []
    for number in range(max(len(first), len(second))):
        order += first[number : number + 1] + second[number : number + 1]
    return order


async def connect(endpoints: Sequence[Endpoint], *, next_seconds: float) -> tuple[socket.socket, Endpoint]:
    """A connected socket to the first address that answers.

    An address that neither answers nor refuses within `next_seconds` is raced by the next. Raises the first
    address's OSError when all failed. Cancelling closes all that was begun.
    """
    if len(endpoints) == 1:
        return await _connect_one(endpoints[0])
    racing: set[asyncio.Task[tuple[socket.socket, Endpoint]]] = set()
    waiting = list(endpoints)
    problem: OSError | None = None
    try:
        while waiting or racing:
            if waiting:
                racing.add(asyncio.ensure_future(_connect_one(waiting.pop(0))))
            done, racing = await asyncio.wait(
                racing, timeout=next_seconds if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            won: tuple[socket.socket, Endpoint] | None = None
            for task in done:
                error = task.exception()
                if error is None:
                    if won is None:
                        won = task.result()
                    else:
                        task.result()[0].close()
                elif isinstance(error, OSError):
                    problem = problem or error
                else:
                    raise error
            if won is not None:
                return won
        raise problem or OSError("no address")
    finally:
        for task in racing:
            task.cancel()
            task.add_done_callback(_close_late)


def _close_late(task: asyncio.Task[tuple[socket.socket, Endpoint]]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result()[0].close()


async def _connect_one(endpoint: Endpoint) -> tuple[socket.socket, Endpoint]:
    connection = socket.socket(endpoint.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A model may think for minutes without a byte: let the kernel find out if anybody is still there.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        await asyncio.get_running_loop().sock_connect(connection, endpoint.address)
    except BaseException:
        connection.close()
        raise
    return connection, endpoint
