"""The passthrough unit U: a raw ASGI app mounted in Litestar, the least a gateway on that stack must do.

It parses the body, splices the model name, forwards over a minimal asyncio client (httptools,
last-in-first-out pool) and relays JSON or events while it scans for usage. Faregate is measured in units of
this one, in the same run: what is over 1 is what keys, routing, budgets, deadlines, metering and the ledger
cost.

    UP=9100 uvicorn passthrough:app --port 9201 --loop uvloop --http httptools --no-access-log
"""

import asyncio
import os
import re
from collections import deque
from typing import cast

import httptools
import msgspec
from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send

UPSTREAM_PORT = int(os.environ.get("UP", "9100"))
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: u\r\ncontent-type: application/json\r\n"
    b"authorization: Bearer sk-up\r\ncontent-length: %d\r\n\r\n"
)


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
idle: "deque[Connection]" = deque()


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


class Connection(asyncio.Protocol):
    exchange: "Exchange | None" = None
    parser: httptools.HttpResponseParser
    alive = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.alive = False
        if self.exchange:
            self.exchange.fail(exc or ConnectionError("closed"))

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)


class Exchange:
    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        self.loop, self.connection = loop, connection
        self.head: asyncio.Future[None] = loop.create_future()
        self.pieces: list[bytes] = []
        self.ended = False
        self.waiter: asyncio.Future[None] | None = None
        self.problem: Exception | None = None
        self.content_type = b"application/json"

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 12 and name.lower() == b"content-type":
            self.content_type = value

    def on_headers_complete(self) -> None:
        self.status = self.connection.parser.get_status_code()
        self.head.set_result(None)

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)
        self.wake()

    def on_message_complete(self) -> None:
        self.ended, self.connection.exchange = True, None
        if self.connection.parser.should_keep_alive():
            idle.append(self.connection)
        else:
            self.connection.transport.close()
        self.wake()

    def wake(self) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter and not waiter.done():
            waiter.set_result(None)

    def fail(self, problem: Exception) -> None:
        self.problem, self.ended = problem, True
        if not self.head.done():
            self.head.set_exception(problem)
        self.wake()

    async def more(self) -> bytes:
        """Bytes that came since the last call, or b"" at the end."""
        while not self.pieces:
            if self.problem:
                raise self.problem
            if self.ended:
                return b""
            self.waiter = self.loop.create_future()
            await self.waiter
        joined = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        return joined

    async def all(self) -> bytes:
        parts: list[bytes] = []
        while piece := await self.more():
            parts.append(piece)
        return b"".join(parts)


async def forward(body: bytes) -> Exchange:
    loop = asyncio.get_running_loop()
    connection: Connection | None = None
    while idle and connection is None:
        connection = idle.pop()
        connection = connection if connection.alive else None
    if connection is None:
        _, connection = await loop.create_connection(Connection, "127.0.0.1", UPSTREAM_PORT)
    connection.exchange = exchange = Exchange(loop, connection)
    connection.parser = httptools.HttpResponseParser(exchange)
    if len(body) < 8192:
        connection.transport.write(HEAD % len(body) + body)
    else:
        connection.transport.writelines((HEAD % len(body), body))
    await exchange.head
    return exchange


@asgi("/v1/chat/completions", is_mount=False, copy_scope=False)
async def chat(scope: Scope, receive: Receive, send: Send) -> None:
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body")
    stream, body = spliced(b"".join(parts))
    exchange = await forward(body)
    headers = [(b"content-type", exchange.content_type)]
    if stream:
        await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
        while piece := await exchange.more():
            scan(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    else:
        whole = await exchange.all()
        account(whole)
        headers.append((b"content-length", b"%d" % len(whole)))
        await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
        await send({"type": "http.response.body", "body": whole, "more_body": False})


app = Litestar([chat], openapi_config=None, logging_config=None)
