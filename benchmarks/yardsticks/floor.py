"""The Python floor: a raw uvloop Protocol on both sides.

Parses the body, splices the model name, relays the upstream's bytes unchanged and scans them for usage. No
routing, no deadlines, no limits, no ledger: a yardstick, not a gateway.

    python floor.py PORT UPSTREAM_PORT
"""

import asyncio
import re
import sys
from collections import deque
from typing import cast

import httptools
import msgspec
import uvloop

UPSTREAM_PORT = int(sys.argv[2])


class Request(msgspec.Struct):
    model: str
    stream: bool = False


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Answer(msgspec.Struct):
    usage: Usage | None = None


read_request = msgspec.json.Decoder(Request).decode
read_answer = msgspec.json.Decoder(Answer).decode
MODEL = re.compile(rb'"model"\s*:\s*"[^"\\]*"')
totals = [0, 0]
idle: "deque[Upstream]" = deque()


def spliced(body: bytes) -> tuple[bool, bytes]:
    """Whether a stream is asked for, and the body with another model name."""
    request = read_request(body)
    new, count = MODEL.subn(b'"model":"mock-model-fast"', body, count=2)
    if count != 1:
        whole = msgspec.json.decode(body)
        whole["model"] = "mock-model-fast"
        new = msgspec.json.encode(whole)
    return request.stream, new


def account(body: bytes) -> None:
    usage = read_answer(body).usage
    if usage:
        totals[0] += usage.prompt_tokens
        totals[1] += usage.completion_tokens


def scan(piece: bytes) -> None:
    at = piece.find(b'"usage":{')
    if at >= 0:
        start, end = piece.rfind(b"data: ", 0, at), piece.find(b"\n", at)
        if start >= 0 and end > 0:
            account(piece[start + 6 : end])


class Upstream(asyncio.Protocol):
    down: "Downstream | None" = None
    alive, done, stream = True, False, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpResponseParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.alive = False
        if self.down:
            self.down.transport.abort()

    def data_received(self, data: bytes) -> None:
        down = self.down
        assert down is not None
        self.parser.feed_data(data)
        down.transport.write(data)
        if self.done:
            self.done, self.down, down.up = False, None, None
            self.parser = httptools.HttpResponseParser(self)
            idle.append(self)

    def on_body(self, body: bytes) -> None:
        scan(body) if self.stream else account(body)

    def on_message_complete(self) -> None:
        self.done = True


class Downstream(asyncio.Protocol):
    up: Upstream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)
        self.parts: list[bytes] = []

    def connection_lost(self, exc: Exception | None) -> None:
        if self.up:
            self.up.down = None
            self.up.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        body, self.parts = b"".join(self.parts), []
        if not body:
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return
        stream, new = spliced(body)
        while idle:
            up = idle.pop()
            if up.alive:
                self.go(up, stream, new)
                return
        self.task = asyncio.ensure_future(self.dial(stream, new))

    async def dial(self, stream: bool, new: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, up = await loop.create_connection(Upstream, "127.0.0.1", UPSTREAM_PORT)
        self.go(up, stream, new)

    def go(self, up: Upstream, stream: bool, new: bytes) -> None:
        up.down, self.up, up.stream = self, up, stream
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: u\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer sk-up\r\ncontent-length: %d\r\n\r\n" % len(new)
        )
        if len(new) < 8192:
            up.transport.write(head + new)
        else:
            up.transport.writelines((head, new))


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Downstream, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await server.serve_forever()


uvloop.run(main())
