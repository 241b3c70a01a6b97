"""Our own HTTP/1.1 client: what a request on a warm connection costs is one write and a few objects."""

import asyncio
import re
from math import inf

from gateway.upstream import METHODS, Call
from gateway.upstream.connection import OwnExchange
from gateway.upstream.deadlines import Alarm
from gateway.upstream.pool import Pool, PoolStanding
from gateway.upstream.resolve import KEEP_FAILURE_SECONDS, LookUp, Resolver, look_up
from gateway.upstream.settings import OWN_HEADERS, USER_AGENT, Settings, address_of, auth_of, is_plain
from gateway.upstream.tls import context_for

# Paths and names are few; a flood of others must not fill the memory.
_KNOWN_STARTS = 64
_KNOWN_NAMES = 256
_KNOWN_LINES = 256
_LONGEST_KNOWN_LINE = 128
_KNOWN_HEADS = 256
_LONGEST_KNOWN_HEAD = 1_024
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class OwnUpstream:
    """The connections of one event loop to one provider."""

    def __init__(
        self,
        settings: Settings,
        *,
        look_up: LookUp = look_up,
        keep_failure_seconds: float = KEEP_FAILURE_SECONDS,
    ) -> None:
        """Raises ValueError for settings it cannot use, OSError for a `ca_file` it cannot read."""
        if settings.proxy is not None or settings.http2:
            raise ValueError('a proxy or HTTP/2 needs client = "httpx"')
        self._address = address_of(settings.base_url)
        self._resolver = Resolver(
            self._address.host, self._address.port, look_up=look_up, keep_failure_seconds=keep_failure_seconds
        )
        self._context = (
            context_for(settings.ca_file, protocols=("http/1.1",)) if self._address.secure else None
        )
        self._max_connections = settings.max_connections
        self._idle_seconds = settings.idle_connection_seconds
        auth = auth_of(settings)
        self._fixed = b"host: %s\r\nuser-agent: %s\r\naccept-encoding: identity\r\n" % (
            self._address.authority.encode(),
            USER_AGENT.encode(),
        )
        self._own_headers = OWN_HEADERS
        if auth is not None:
            self._fixed += b"%s: %s\r\n" % auth
            self._own_headers |= {auth[0]}
        self._starts: dict[tuple[str, str], bytes] = {}
        self._known: set[bytes] = set()  # names found fit to be sent
        self._heads: dict[tuple[str, str, tuple[tuple[bytes, bytes], ...]], bytes] = {}  # up to the length
        self._lines: dict[tuple[bytes, bytes], bytes] = {}  # headers found fit, as they are written
        self._pool: Pool | None = None

    def open(self, call: Call) -> OwnExchange:
        """See Upstream. Raises ValueError for a path or a header that would not be one request."""
        pool = self._pool or self._begin_pool()
        loop = pool.loop
        now = loop.time()
        head = self._heads.get((call.method, call.path, tuple(call.headers))) or self._head_of(call)
        body = call.body
        limits = call.limits
        first_token_seconds = limits.first_token_seconds
        connection = pool.take(now)
        exchange = OwnExchange(
            loop,
            Alarm(pool.wheel) if connection is None else connection.alarm,
            limits,
            now + limits.total_seconds,
            inf if first_token_seconds is None else now + first_token_seconds,
            now,
            home=pool,
            request_head=head + b"%d\r\n\r\n" % len(body),
            body=body,
        )
        if connection is None:
            pool.wait(exchange, now)
        else:
            connection.send(exchange, now)
        return exchange

    @property
    def heads_kept(self) -> int:
        """Requests' heads that are kept as they are written."""
        return len(self._heads)

    def retire(self) -> None:
        """See Upstream."""
        if self._pool is not None:
            self._pool.retire()

    async def close(self) -> None:
        """See Upstream."""
        if self._pool is not None:
            await self._pool.close()

    def standing(self) -> PoolStanding:
        """What its connections do just now."""
        if self._pool is None:
            return PoolStanding(opening=0, idle=0, in_use=0, waiting=0, resent=0)
        return self._pool.standing()

    def _begin_pool(self) -> Pool:
        self._pool = Pool(
            asyncio.get_running_loop(),
            self._address,
            self._resolver,
            self._context,
            max_connections=self._max_connections,
            idle_seconds=self._idle_seconds,
        )
        return self._pool

    def _head_of(self, call: Call) -> bytes:
        """Up to the length's number."""
        lines = self._lines
        parts = [self._starts.get((call.method, call.path)) or self._start_of(call.method, call.path)]
        for header in call.headers:
            parts.append(lines.get(header) or self._line_of(*header))
        parts.append(b"content-length: ")
        head = b"".join(parts)
        if len(head) <= _LONGEST_KNOWN_HEAD:
            if len(self._heads) >= _KNOWN_HEADS:
                self._heads.clear()
            self._heads[call.method, call.path, tuple(call.headers)] = head
        return head

    def _line_of(self, name: bytes, value: bytes) -> bytes:
        if name not in self._known:
            self._check(name)
        # Our lines end in CRLF; a line break in a value could begin a request that nobody admitted.
        if b"\n" in value or b"\r" in value or b"\0" in value:
            raise ValueError("a header holds a line break")
        line = b"%s: %s\r\n" % (name, value)
        if len(line) <= _LONGEST_KNOWN_LINE:
            if len(self._lines) >= _KNOWN_LINES:
                self._lines.clear()
            self._lines[name, value] = line
        return line

    def _check(self, name: bytes) -> None:
        if name.lower() in self._own_headers:
            raise ValueError(f"the client writes the header {name.decode('latin-1')!r} itself")
        if not _TOKEN.fullmatch(name):
            raise ValueError("not the name of a header")
        if len(self._known) < _KNOWN_NAMES:
            self._known.add(name)

    def _start_of(self, method: str, path: str) -> bytes:
        target = self._address.target(path)
        if method not in METHODS or not path.startswith("/") or not is_plain(target) or " " in target:
            raise ValueError("not a request this client can send")
        start = b"%s %s HTTP/1.1\r\n%s" % (method.encode(), target.encode(), self._fixed)
        if len(self._starts) < _KNOWN_STARTS:
            self._starts[(method, path)] = start
        return start
