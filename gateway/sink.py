"""Where an answer goes. `flow` and `relay` know only this, so that the server under them can be another one."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Protocol

Headers = Sequence[tuple[bytes, bytes]]
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Sink(Protocol):
    """One client's side of one request."""

    begun: bool  # the status has gone out and cannot change any more

    def on_left(self, callback: Callable[[], None] | None) -> None:
        """Call this the moment the client is gone, at once if it is gone already (None: no longer)."""
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
    """A sink over an ASGI server whose scope may carry the hooks of our own protocol (see `serving`)."""

    __slots__ = ("_scope", "_send", "begun")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self.begun = False

    def on_left(self, callback: Callable[[], None] | None) -> None:
        """See Sink."""
        self._scope["on_left"] = callback
        if callback is not None and "left" in self._scope:
            callback()

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """See Sink."""
        self.begun = True
        answer = self._scope.get("answer")
        if answer is not None and answer(status, headers, body):
            return
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, status: int, headers: Headers) -> None:
        """See Sink."""
        self.begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, data: bytes) -> None:
        """See Sink."""
        write = self._scope.get("write")
        if write is None or not write(data):
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes) -> None:
        """See Sink."""
        await self._send({"type": "http.response.body", "body": data})

    async def cut(self, data: bytes) -> None:
        """See Sink."""
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        cut = self._scope.get("cut")
        if cut is not None:
            cut()
