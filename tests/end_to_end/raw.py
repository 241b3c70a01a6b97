"""A client that says exactly the bytes it is told, and leaves in every way a client can leave."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.end_to_end.harness import Running

CHAT = "/v1/chat/completions"


@dataclass(kw_only=True)
class RawAnswer:
    """One answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    def error(self) -> tuple[int, str, str]:
        """Status, type and code of an error."""
        error = json.loads(self.body)["error"]
        assert self.headers["content-type"] == "application/json"
        return self.status, error["type"], error["code"]


@dataclass(kw_only=True)
class RawClient:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    running: Running

    def say(self, data: bytes) -> None:
        """These bytes, now."""
        self.writer.write(data)

    def chat(self, body: bytes, *lines: str, path: str = CHAT, method: str = "POST") -> None:
        """One request with a key, a length and these header lines."""
        self.say(request(body, *lines, path=path, method=method, key=self.running.key))

    async def until(self, text: bytes, *, times: int = 1) -> bytes:
        """Read until this text came so often."""
        got = b""
        while got.count(text) < times:
            piece = await self.reader.read(65_536)
            assert piece, f"closed after {got!r}"
            got += piece
        return got

    async def answer(self) -> RawAnswer:
        """One answer whose body has a length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return RawAnswer(
            status=int(first.split(" ")[1]),
            headers=headers,
            body=await self.reader.readexactly(int(headers.get("content-length", "0"))),
        )

    async def rest(self) -> bytes:
        """Everything until the other side closes, in an orderly way or not."""
        got = b""
        try:
            while piece := await self.reader.read(1 << 20):
                got += piece
        except ConnectionError:
            pass
        return got

    def leave(self) -> None:
        """FIN both ways."""
        self.writer.close()

    def reset(self) -> None:
        """RST."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def half_close(self) -> None:
        """FIN one way: it says no more, and reads on."""
        self.writer.write_eof()


def request(body: bytes, *lines: str, path: str = CHAT, method: str = "POST", key: str) -> bytes:
    """A request's bytes."""
    head = [
        f"{method} {path} HTTP/1.1",
        "host: gateway",
        f"authorization: Bearer {key}",
        f"content-length: {len(body)}",
        *lines,
    ]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def chat_body(tag: str, *, fault: str = "none", stream: bool = False, **more: Any) -> bytes:
    """A chat request that the fake provider knows by its tag, and answers with this fault."""
    body: dict[str, Any] = {
        "model": "standard",
        "messages": [{"role": "user", "content": "canary-prompt-7f3a: say hello."}],
        "max_tokens": 64,
        "user": f"fault:{fault} {tag}",
        **more,
    }
    if stream:
        body["stream"] = True
    return json.dumps(body).encode()


@asynccontextmanager
async def raw_client(
    running: Running, *, receive_buffer: int | None = None, first: bytes = b""
) -> AsyncGenerator[RawClient]:
    """A connection to the gateway. `receive_buffer` in bytes makes a client whose kernel takes little.

    `first` is said before the gateway can take the connection, so that no time passes between the two.
    """
    host, _, port = running.base_url.removeprefix("http://").rpartition(":")
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect((host, int(port)))  # the kernel answers; the gateway, on this very loop, need not
    sock.sendall(first)
    sock.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
    try:
        yield RawClient(reader=reader, writer=writer, running=running)
    finally:
        writer.transport.abort()
        try:
            await writer.wait_closed()
        except ConnectionError:
            pass
