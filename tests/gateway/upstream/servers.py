"""Small raw servers for the upstream's tests: each connection runs a script over bytes, whatever HTTP says.

Not a test; it keeps what was seen, so that a test can compare.
"""

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.upstream import Call, Exchange, Limits, Upstream, UpstreamFailure
from gateway.upstream.build import upstream_for
from gateway.upstream.own import OwnUpstream
from gateway.upstream.resolve import LookUp, look_up
from gateway.upstream.settings import Settings

T = TypeVar("T")
Client = Literal["own", "httpx"]
KEY = "sk-canary-f00d"

both_clients = pytest.mark.parametrize("client", ["own", "httpx"])
both_loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def run(work: Coroutine[Any, Any, T], loop: str = "uvloop", *, within_seconds: float = 10.0) -> T:
    """Run to its end on the named loop; whatever the loop had to complain of is an error."""
    complaints: list[str] = []

    async def limited() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(repr(said)))
        async with asyncio.timeout(within_seconds):
            return await work

    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        result = runner.run(limited())
    assert complaints == []
    return result


async def until(holds: Callable[[], bool]) -> None:
    """Give way until it holds, which must not take long."""
    async with asyncio.timeout(2.5):
        while not holds():
            await asyncio.sleep(0.001)


class Wire:
    """One connection, seen from the provider."""

    def __init__(self, server: "Server", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.number = len(server.wires)  # of this connection, from 0

    async def request(self) -> bytes:
        """Read one request; its body. Raises IncompleteReadError when there is no further one."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        body = await self.reader.readexactly(length_of(head))
        self.server.heads.append(head)
        self.server.bodies.append(body)
        return body

    async def say(self, *pieces: bytes) -> None:
        """Write each piece by itself, so that each comes in a read of its own where the loop allows it."""
        for piece in pieces:
            if self.writer.is_closing():
                raise ConnectionResetError
            self.writer.write(piece)
            await self.writer.drain()
            if len(pieces) > 1:
                await asyncio.sleep(0.001)

    async def gone(self) -> None:
        """Wait until the other side has closed."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        """Break the connection with RST."""
        import socket
        import struct

        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Wire], Awaitable[None]]


class Server:
    """Where it listens, and what came."""

    def __init__(self) -> None:
        self.port = 0
        self.wires: list[Wire] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.open = 0  # connections just now

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def serving(script: Script, *, context: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    """Run the script on every connection. Its errors but for a broken connection fail the test."""
    server = Server()
    tasks: set[asyncio.Task[None]] = set()
    problems: list[BaseException] = []

    async def serve(wire: Wire) -> None:
        try:
            await script(wire)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        except Exception as problem:
            problems.append(problem)
        finally:
            server.open -= 1
            wire.writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(server, reader, writer)
        server.wires.append(wire)
        server.open += 1
        tasks.add(asyncio.ensure_future(serve(wire)))

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context, limit=1 << 24)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for wire in server.wires:
            wire.writer.transport.abort()
        await asyncio.sleep(0)
    if problems:
        raise problems[0]


@asynccontextmanager
async def upstream(client: Client, url: str, **more: Any) -> AsyncGenerator[Upstream]:
    """A client for this server, closed at the end."""
    opened = upstream_for(Settings(base_url=url, api_key=KEY, client=client, **more))
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def own(url: str, *, look_up: LookUp = look_up, **more: Any) -> AsyncGenerator[OwnUpstream]:
    """Our own client for this server."""
    opened = OwnUpstream(Settings(base_url=url, api_key=KEY, **more), look_up=look_up)
    try:
        yield opened
    finally:
        await opened.close()


def call(
    body: bytes = b"{}",
    *,
    path: str = "/chat/completions",
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),),
    connect: float = 2.0,
    first_token: float | None = None,
    idle: float = 5.0,
    total: float = 5.0,
) -> Call:
    """One request, with limits that no healthy test meets."""
    limits = Limits(
        connect_seconds=connect,
        first_token_seconds=first_token,
        idle_seconds=idle,
        total_seconds=total,
    )
    return Call(method="POST", path=path, headers=headers, body=body, limits=limits)


async def rest_of(exchange: Exchange) -> bytes:
    """The body to its end."""
    parts: list[bytes] = []
    while not exchange.ended:
        part = await exchange.more()
        parts.append(part)
        if not part:
            break
    return b"".join(parts)


async def ask(upstream: Upstream, request: Call) -> tuple[int, bytes]:
    """A whole answer: status and body."""
    exchange = upstream.open(request)
    await exchange.head()
    return exchange.status, await rest_of(exchange)


async def failure_of(upstream: Upstream, request: Call) -> tuple[UpstreamFailure, bytes]:
    """The failure of a request that cannot succeed, and the bytes of the body that came before."""
    exchange = upstream.open(request)
    got = bytearray()
    try:
        await exchange.head()
        while True:
            part = await exchange.more()
            got += part
            if not part:
                raise AssertionError(f"a whole answer: {exchange.status} {bytes(got[:100])!r}")
    except UpstreamFailure as failure:
        return failure, bytes(got)


def length_of(head: bytes) -> int:
    """The content-length of a head."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def whole(body: bytes = b'{"ok":true}', *, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    """An answer with its length; `more` are whole header lines."""
    return b"HTTP/1.1 %s\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n%s" % (
        status,
        more,
        len(body),
        body,
    )


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk; of nothing: the end."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def always(*answer: bytes) -> Script:
    """Answer every request of every connection so."""

    async def script(wire: Wire) -> None:
        while True:
            await wire.request()
            await wire.say(*answer)

    return script


def once(*answer: bytes) -> Script:
    """Answer one request so, then close."""

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(*answer)

    return script


class Authority:
    """A certificate authority of one test run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test's own authority")])
        certificate = self._certificate(self._name, self._key, host=None, days=1, authority=True)
        self.file = str(folder / "ca.pem")
        Path(self.file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def context(self, host: str, *, days: int = 1, self_signed: bool = False) -> ssl.SSLContext:
        """A server's context for a host; a negative number of days: expired so long ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)]),
            key,
            host=host,
            days=days,
            signer=key if self_signed else None,
        )
        file = self.folder / f"{host}{days}{self_signed}.pem"
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        host: str | None,
        days: int,
        authority: bool = False,
        signer: ec.EllipticCurvePrivateKey | None = None,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        ends = now + datetime.timedelta(days=days)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if signer is not None else self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(ends - datetime.timedelta(days=30))
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if signer is None:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(issuer, critical=False)
        if host is not None:
            try:
                name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
            except ValueError:
                name = x509.DNSName(host)
            builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
        return builder.sign(signer or self._key, hashes.SHA256())
