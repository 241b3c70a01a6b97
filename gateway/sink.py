"""Where an answer goes. `flow` and `relay` know only this, so that the server under them can be another one."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Protocol

Headers = Sequence[tuple[bytes, bytes]]
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Sink(Protocol):
    """One client's side of one request.

    Names of headers are in lower case, and none is about the frame of the message: the length, chunks and whether
    the connection stays are the sink's own business.
    """

    begun: bool  # the status has gone out and cannot change any more

    def on_left(self, callback: Callable[[], None] | None) -> None:
        """Call this the moment the client is gone, at once if it is gone already (None: no longer)."""
        ...

    def on_drain(self, callback: Callable[[], None] | None) -> None:
        """Call this when the process has to end and the answer still runs (None: no longer)."""
        ...

    def body(self) -> bytes | None:
        """The request's whole body, once; None: it is not here yet, or was given out already."""
        ...

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """The whole answer at once."""
        ...

    async def begin(self, status: int, headers: Headers) -> None:
        """Status and headers of an answer that comes in pieces."""
        ...

    async def send(self, data: bytes) -> None:
        """A piece. Waits while the client reads too slowly."""
        ...

    async def end(self, data: bytes) -> None:
        """The last piece, maybe empty: the answer is whole."""
        ...

    async def cut(self, data: bytes) -> None:
        """The last piece of an answer that is not whole: the connection closes without an end mark."""
        ...


class AsgiSink:
    """A sink over any ASGI server: it hears neither of a client that leaves nor of a drain, and ends an answer
    that is not whole by its fault."""

    __slots__ = ("_send", "begun")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    def on_left(self, callback: Callable[[], None] | None) -> None:
        """See Sink."""

    def on_drain(self, callback: Callable[[], None] | None) -> None:
        """See Sink."""

    def body(self) -> bytes | None:
        """See Sink."""
        return None

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """See Sink."""
        await self.begin(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.end(body)

    async def begin(self, status: int, headers: Headers) -> None:
        """See Sink."""
        self.begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, data: bytes) -> None:
        """See Sink."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes) -> None:
        """See Sink."""
        await self._send({"type": "http.response.body", "body": data})

    async def cut(self, data: bytes) -> None:
        """See Sink."""
        if data:
            await self.send(data)
        raise CutOff("the answer is not whole; a server closes the connection on this")


class CutOff(Exception):
    """Tells an ASGI server that the answer ends here and is not whole."""
