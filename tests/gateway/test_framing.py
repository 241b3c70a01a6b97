"""Framing over a raw socket: each case has one outcome, and nothing after a fault is taken for a request."""

import asyncio
import json
import re
import socket
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
import uvloop

from gateway.serving import Listener, ServingHooks, ServingLimits, ServingSettings, address_of, bind
from gateway.sink import Receive, Scope, Send

T = TypeVar("T")
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + "Transfer-Encoding: chunked\r\n\r\n"
EMPTY = HEAD + "Content-Length: 0\r\n\r\n"
GET = "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
LIMITS = ServingLimits(max_body=1_000_000)
SHORT = replace(LIMITS, head_seconds=0.1, body_idle_seconds=0.1, idle_seconds=0.1)  # to be waited for


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@dataclass
class Seen:
    """What the application was asked."""

    requests: list[tuple[str, str, bytes]]


async def answered(sent: bytes, limits: ServingLimits = LIMITS) -> tuple[bytes, Seen, list[tuple[int, str]]]:
    """All that comes back until the connection closes, what the application saw, what was refused."""
    seen, refused = Seen([]), list[tuple[int, str]]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body = message["body"]
        seen.requests.append((scope["method"], scope["path"], body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    bound = bind("127.0.0.1:0")
    address = address_of(bound)
    listener = Listener(
        app,
        bound,
        settings=ServingSettings(limits=limits, drain_idle_seconds=0.01, cut_seconds=0.1),
        hooks=ServingHooks(refused=lambda status, code: refused.append((status, code))),
        lifespan=False,
    )
    await listener.start()
    reader, writer = await saying(sent, address)
    try:
        async with asyncio.timeout(30):
            got = await reader.read()
    finally:
        writer.close()
        await listener.stop(1.0)
    assert listener.held == 0
    assert not listener.tasks
    return got, seen, refused


async def saying(words: bytes, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that says this, as much as fits before the listener takes it: no time limit runs meanwhile."""
    host, port = address.split(":")
    sock = socket.create_connection((host, int(port)))
    sock.setblocking(False)
    said = sock.send(words)
    reader, writer = await asyncio.open_connection(sock=sock)
    writer.write(words[said:])
    return reader, writer


def statuses(got: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d\d\d) ", got)]


FAULTS = {
    "CL+TE both": (
        HEAD + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET,
        400,
    ),
    "TE+CL both": (
        HEAD + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + GET,
        400,
    ),
    "two CL differ": (HEAD + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", 400),
    "two CL same": (HEAD + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "CL list 4, 4": (HEAD + "Content-Length: 4, 4\r\n\r\nabcd", 400),
    "CL +4": (HEAD + "Content-Length: +4\r\n\r\nabcd", 400),
    "CL 0x4": (HEAD + "Content-Length: 0x4\r\n\r\nabcd", 400),
    "CL -1": (HEAD + "Content-Length: -1\r\n\r\n", 400),
    "CL empty": (HEAD + "Content-Length: \r\n\r\n", 400),
    "CL huge": (HEAD + "Content-Length: 99999999999999999999\r\n\r\n", 400),
    "CL 10^18": (HEAD + "Content-Length: 1000000000000000000\r\n\r\n", 413),
    "TE xchunked": (HEAD + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    "TE chunked, identity": (HEAD + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
    "TE identity, chunked": (HEAD + "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n", 400),
    "TE gzip, chunked": (HEAD + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    "TE twice": (HEAD + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
    "TE twice the same": (
        HEAD + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "TE space before colon": (HEAD + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    "TE with HTTP/1.0": (
        "POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "obs-fold": (HEAD + "X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n", 400),
    "bare LF": ("POST /v1/chat/completions HTTP/1.1\nHost: x\nContent-Length: 2\n\nab", 400),
    "bare CR in value": (HEAD + "X-A: b\rX-B: c\r\nContent-Length: 0\r\n\r\n", 400),
    "NUL in value": (HEAD + "X-A: b\0c\r\nContent-Length: 0\r\n\r\n", 400),
    "control character in value": (HEAD + "X-A: b\x01c\r\nContent-Length: 0\r\n\r\n", 400),
    "non-ASCII in name": (HEAD + "X-\xe9: b\r\nContent-Length: 0\r\n\r\n", 400),
    "header name with a space": (HEAD + "X A: 1\r\nContent-Length: 0\r\n\r\n", 400),
    "chunk extension of 20 KB": (CHUNKED + "1;" + "a" * 20000 + "\r\nx\r\n0\r\n\r\n", 400),
    "chunk extensions, many": (CHUNKED + "1;aaaaaaaaaaaaaaaaaaaa\r\nx\r\n" * 1000 + "0\r\n\r\n", 400),
    "chunk with a bad end": (CHUNKED + "1\r\nxZZ0\r\n\r\n", 400),
    "chunk size overflows": (CHUNKED + "ffffffffffffffffff\r\nx\r\n0\r\n\r\n", 400),
    "chunk size 0x": (CHUNKED + "0x2\r\nab\r\n0\r\n\r\n", 400),
    "chunk size -1": (CHUNKED + "-1\r\nab\r\n0\r\n\r\n", 400),
    "chunk lines end in LF": (CHUNKED + "2\nab\n0\n\n", 400),
    "trailer with content-length": (CHUNKED + "0\r\nContent-Length: 5\r\n\r\n", 400),
    "trailer with authorization": (CHUNKED + "0\r\nAuthorization: x\r\n\r\n", 400),
    "trailer with host": (CHUNKED + "0\r\nhost: y\r\n\r\n", 400),
    "trailers of 20 KB": (CHUNKED + "0\r\n" + "X-A: aaaaaaaaaaaaaa\r\n" * 1000 + "\r\n", 400),
    "no Host": ("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 400),
    "two Hosts": (HEAD + "Host: y\r\nContent-Length: 0\r\n\r\n", 400),
    "Host with #@": ("POST /v1/x HTTP/1.1\r\nHost: localhost:1/#@evil\r\nContent-Length: 0\r\n\r\n", 400),
    "two Authorizations": (HEAD + "Authorization: a\r\nAuthorization: b\r\nContent-Length: 0\r\n\r\n", 400),
    "head of just over 64 KiB": (HEAD + "X-A: " + "a" * 65_500 + "\r\nContent-Length: 0\r\n\r\n", 431),
    "head of 1 MB": (HEAD + "X-A: " + "a" * 1_000_000 + "\r\nContent-Length: 0\r\n\r\n", 431),
    "head of 1 MB, no end": (HEAD + "X-A: " + "a" * 1_000_000, 431),
    "101 header lines": (
        HEAD + "".join(f"X-{i}: a\r\n" for i in range(99)) + "Content-Length: 0\r\n\r\n",
        431,
    ),
    "1000 header lines": (HEAD + "".join(f"X-{i}: a\r\n" for i in range(1000)) + "\r\n", 431),
    "URL of 8 KiB and one": ("GET /" + "a" * 8192 + " HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "URL of 100 KB": ("GET /" + "a" * 100_000 + " HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "absolute URL": ("POST http://evil/v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 400),
    "path without slash": ("GET v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "asterisk": ("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "non-ASCII in path": ("GET /v1/\xe9 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "CONNECT": ("CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "PURGE": ("PURGE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "TRACE": ("TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "invented method": ("BREW / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "lower case method": ("post / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "HTTP/2.0 as a version": (HEAD.replace("1.1", "2.0") + "Content-Length: 0\r\n\r\n", 505),
    "HTTP/0.9 as a version": ("GET / HTTP/0.9\r\nHost: x\r\n\r\n", 505),
    "HTTP/1.2 as a version": ("GET / HTTP/1.2\r\nHost: x\r\n\r\n", 400),
    "HTTP/2 preface": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 400),
    "TLS hello": ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "websocket": (HEAD + "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n", 426),
    "unknown expectation": (HEAD + "Expect: a miracle\r\nContent-Length: 0\r\n\r\n", 417),
    "packed body": (HEAD + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab", 415),
    "body over the limit, declared": (HEAD + "Content-Length: 1000001\r\n\r\n" + "a" * 1_000_001, 413),
    "body over the limit, chunked": (CHUNKED + "10000\r\n" + ("a" * 65536 + "\r\n10000\r\n") * 20, 413),
    "head not finished": (HEAD + "X-A: b", 408),
    "body not finished": (HEAD + "Content-Length: 5\r\n\r\nab", 408),
    "chunked body not finished": (CHUNKED + "5\r\nab", 408),
    "trailer not finished": (CHUNKED + "0\r\nX-A: b", 408),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_framing_is_refused_and_nothing_after_it_is_a_request(name: str) -> None:
    sent, status = FAULTS[name]

    limits = SHORT if status == 408 else LIMITS
    got, seen, refused = run(answered(sent.encode("latin-1"), limits))

    assert statuses(got) == [status]
    assert seen.requests == []
    assert [refusal[0] for refusal in refused] == [status]
    head, _, body = got.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["code"] == refused[0][1]
    lines = head.lower().split(b"\r\n")
    assert b"content-type: application/json" in lines
    assert b"connection: close" in lines
    assert b"content-length: %d" % len(body) in lines
    assert any(re.fullmatch(rb"x-request-id: req_[0-9a-f]+", line) for line in lines)
    assert not any(line.startswith(b"server:") for line in lines)


@pytest.mark.parametrize("name", [name for name, (sent, _) in FAULTS.items() if len(sent) < 3000])
def test_a_fault_is_the_same_fault_when_the_network_cuts_it_into_pieces(name: str) -> None:
    sent, status = FAULTS[name]
    data = sent.encode("latin-1")

    limits = SHORT if status == 408 else LIMITS
    got, seen = run(answered_in_pieces(data, limits))

    assert (statuses(got), seen.requests) == ([status], [])


async def answered_in_pieces(data: bytes, limits: ServingLimits) -> tuple[bytes, Seen]:
    seen = Seen([])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] == "http.request":
            seen.requests.append((scope["method"], scope["path"], b""))
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})

    bound = bind("127.0.0.1:0")
    settings = ServingSettings(limits=limits, drain_idle_seconds=0.01, cut_seconds=0.1)
    listener = Listener(app, bound, settings=settings, hooks=ServingHooks(), lifespan=False)
    await listener.start()
    reader, writer = await saying(data[:1], address_of(bound))
    try:
        for byte in data[1:]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)  # let it go out on its own
        async with asyncio.timeout(30):
            return await reader.read(), seen
    finally:
        writer.close()
        await listener.stop(1.0)


ACCEPTED: dict[str, tuple[str, list[tuple[str, str, bytes]]]] = {
    "plain": (EMPTY, [("POST", "/v1/chat/completions", b"")]),
    "with a body": (HEAD + "Content-Length: 2\r\n\r\nab", [("POST", "/v1/chat/completions", b"ab")]),
    "chunked": (CHUNKED + "2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", [("POST", "/v1/chat/completions", b"abc")]),
    "chunked with a harmless trailer": (
        CHUNKED + "2\r\nab\r\n0\r\nX-Checksum: 1\r\n\r\n",
        [("POST", "/v1/chat/completions", b"ab")],
    ),
    "leading CRLF": ("\r\n\r\n" + EMPTY, [("POST", "/v1/chat/completions", b"")]),
    "underscore in a header": (
        HEAD + "X_Auth: a\r\nContent-Length: 0\r\n\r\n",
        [("POST", "/v1/chat/completions", b"")],
    ),
    "upgrade to h2c": (
        HEAD + "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n",
        [("POST", "/v1/chat/completions", b"")],
    ),
    "upgrade to h2c with a body": (
        HEAD + "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab",
        [("POST", "/v1/chat/completions", b"ab")],
    ),
    "upgrade to h2c and a pipelined request": (
        HEAD + "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab" + EMPTY,
        [("POST", "/v1/chat/completions", b"ab"), ("POST", "/v1/chat/completions", b"")],
    ),
    "upgrade to h2c, chunked, and a pipelined request": (
        HEAD
        + "Connection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
        + GET,
        [("POST", "/v1/chat/completions", b"ab"), ("GET", "/x", b"")],
    ),
    "upgrade whose body looks like a request": (
        HEAD + f"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: {len(GET)}\r\n\r\n" + GET,
        [("POST", "/v1/chat/completions", GET.encode())],
    ),
    "GET with a body": (
        "GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab",
        [("GET", "/v1/models", b"ab")],
    ),
    "HTTP/1.0 without Host": ("GET /v1/models HTTP/1.0\r\n\r\n", [("GET", "/v1/models", b"")]),
    "identity": (
        HEAD + "Content-Encoding: identity\r\nContent-Length: 2\r\n\r\nab",
        [("POST", "/v1/chat/completions", b"ab")],
    ),
    "percent-encoded path": (
        "GET /v1/%6dodels?a=%20 HTTP/1.1\r\nHost: x\r\n\r\n",
        [("GET", "/v1/models", b"")],
    ),
    "a head of almost 64 KiB": (
        HEAD + "X-A: " + "a" * 65_000 + "\r\nContent-Length: 0\r\n\r\n",
        [("POST", "/v1/chat/completions", b"")],
    ),
    "100 header lines": (
        HEAD + "".join(f"X-{i}: a\r\n" for i in range(98)) + "Content-Length: 0\r\n\r\n",
        [("POST", "/v1/chat/completions", b"")],
    ),
    "a body of the limit": (
        HEAD + "Content-Length: 1000000\r\n\r\n" + "a" * 1_000_000,
        [("POST", "/v1/chat/completions", b"a" * 1_000_000)],
    ),
    "two pipelined": (EMPTY * 2, [("POST", "/v1/chat/completions", b"")] * 2),
    "nine pipelined": (EMPTY * 9, [("POST", "/v1/chat/completions", b"")] * 9),
    "more pipelined than are kept": (EMPTY * 30, [("POST", "/v1/chat/completions", b"")] * 9),
    "data after close": (
        HEAD + "Connection: close\r\nContent-Length: 0\r\n\r\n" + EMPTY,
        [("POST", "/v1/chat/completions", b"")],
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_allowed_reaches_the_application_in_order(name: str) -> None:
    sent, requests = ACCEPTED[name]

    got, seen, refused = run(answered(sent.encode("latin-1"), replace(LIMITS, idle_seconds=0.02)))

    assert seen.requests == requests
    assert statuses(got) == [200] * len(requests)
    assert refused == []


def test_a_fault_after_a_good_request_is_answered_after_it() -> None:
    got, seen, refused = run(answered((EMPTY + HEAD + "Content-Length: +4\r\n\r\nabcd" + EMPTY).encode()))

    assert statuses(got) == [200, 400]
    assert len(seen.requests) == 1
    assert refused == [(400, "invalid_value")]


def test_a_connection_that_says_nothing_is_closed_without_a_word() -> None:
    got, seen, refused = run(answered(b"", SHORT))

    assert (got, seen.requests, refused) == (b"", [], [])


def test_an_idle_connection_is_closed() -> None:
    got, _, refused = run(answered(EMPTY.encode(), SHORT))

    assert (statuses(got), refused) == ([200], [])
    assert b"connection: close" not in got
