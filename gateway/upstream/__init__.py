"""Opens one attempt at a provider: one interface, two implementations (our own client, httpx).

`flow` knows only what is named here. An `Exchange` is one HTTP request and its answer. It starts at once,
never blocks to start, and may be cancelled at any moment of its life, any number of times.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

FailureKind = Literal[
    "resolve",  # the name did not resolve
    "connect_refused",
    "connect_timeout",
    "tls",  # certificate or handshake
    "pool_exhausted",  # no connection became free in time
    "reset",  # the connection broke after the request went out, before its answer was whole
    "first_token_timeout",
    "idle_timeout",
    "total_timeout",
    "invalid_response",  # not HTTP, too large, a length that lies, a packed body we did not ask for
]


class UpstreamFailure(Exception):
    """An attempt that ended without a whole answer."""

    def __init__(self, kind: FailureKind, detail: str, *, sent: bool) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind: FailureKind = kind
        self.detail = detail  # for logs: an address or a rule broken, never a body, header value or key
        self.sent = sent  # False: certainly no byte of the request reached the provider


class ClientLeft(Exception):
    """Our client is gone; raised out of a wait on an exchange that was cancelled for that reason."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Deadlines of one attempt, in seconds. None: no such limit."""

    connect_seconds: float = 2.0
    first_token_seconds: float | None = 30.0  # until `first_token()` is told; None for whole answers
    idle_seconds: float = (
        60.0  # without a byte, once the first token came (whole answers: the body's first byte)
    )
    total_seconds: float = 600.0  # from `open` to the last byte


METHODS = frozenset({"GET", "POST", "DELETE"})
"""What a provider may be asked with."""


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request to send."""

    method: str  # one of METHODS
    path: str  # below the provider's base URL, with its query: "/chat/completions"
    headers: Sequence[
        tuple[bytes, bytes]
    ]  # without host, authorization, content-length: the client adds those
    body: bytes
    limits: Limits


class Exchange(Protocol):
    """One attempt under way. `head`, then `more` until it gives b""; `cancel` at any time."""

    status: int  # 0 until `head` returned
    headers: Sequence[tuple[bytes, bytes]]  # names in lower case, as received; empty until `head` returned

    @property
    def sent(self) -> bool:
        """False: certainly no byte of the request has reached the provider."""
        ...

    async def head(self) -> None:
        """Wait for the final status and headers. Raises UpstreamFailure, or what `cancel` was given."""
        ...

    async def more(self) -> bytes:
        """Some bytes of the body as they came, joined if several waited; b"" at its end. Raises as `head`.

        Bytes received before a failure are given out first.
        """
        ...

    @property
    def ended(self) -> bool:
        """True once every byte of a whole answer was given out by `more`: it need not be asked again."""
        ...

    def first_token(self) -> None:
        """The first content of a stream came: from now on the idle limit counts."""
        ...

    def cancel(self, why: BaseException) -> None:
        """Stop and close the connection now; a waiting or later `head` or `more` raises `why`.

        Harmless when over.
        """
        ...


class Upstream(Protocol):
    """The connections to one provider. Holds its base URL and its key; the key never leaves it."""

    def open(self, call: Call) -> Exchange:
        """Start an attempt at once. Never raises for network reasons: `Exchange.head` does."""
        ...

    def retire(self) -> None:
        """A newer configuration took over: close what is idle now and the rest as each exchange ends."""
        ...

    async def close(self) -> None:
        """Close every connection; exchanges under way fail."""
        ...
