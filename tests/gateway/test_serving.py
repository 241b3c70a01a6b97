"""The data listener over real sockets: a client that left, back-pressure, answers, time limits, the drain."""

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import uvloop

from gateway.serving import App, Listener, ServingHooks, ServingLimits, ServingSettings, address_of, bind
from gateway.sink import Receive, Scope, Send

T = TypeVar("T")
LIMITS = ServingLimits()
CUT_SECONDS = 10.0  # never over, unless a test waits for it
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Coroutine[Any, Any, Streams]]


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(within(30.0, work))


async def within(seconds: float, work: Awaitable[T]) -> T:
    async with asyncio.timeout(seconds):
        return await work


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0)


def request(body: bytes = b"", *, head: str = "", method: str = "POST", version: str = "1.1") -> bytes:
    line = f"{method} /v1/chat/completions HTTP/{version}\r\nHost: x\r\n"
    return f"{line}{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def serving(
    app: App,
    limits: ServingLimits = LIMITS,
    hooks: ServingHooks | None = None,
    cut_seconds: float = CUT_SECONDS,
) -> AsyncGenerator[tuple[Listener, Connect]]:
    bound = bind("127.0.0.1:0")
    host, port = address_of(bound).split(":")
    settings = ServingSettings(limits=limits, drain_idle_seconds=0.01, cut_seconds=cut_seconds)
    listener = Listener(app, bound, settings=settings, hooks=hooks or ServingHooks(), lifespan=False)
    await listener.start()
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> Streams:
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 16)
        writers.append(writer)
        return reader, writer

    try:
        yield listener, connect
    finally:
        for writer in writers:
            writer.close()
        await listener.stop(0.5)
        assert not listener.connections
        assert not listener.tasks
        assert listener.held == 0


async def respond(send: Send, body: bytes, *headers: tuple[bytes, bytes], status: int = 200) -> None:
    lines = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


# ── a client that left ──

Waits = Callable[[Send], Awaitable[None]]


async def says_nothing(send: Send) -> None:
    """Not streaming: the answer is still being made."""


async def streams_and_goes_quiet(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})


async def fills_the_buffer(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(20):
        await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})


def _fin(writer: asyncio.StreamWriter) -> None:
    writer.close()


def _rst(writer: asyncio.StreamWriter) -> None:
    taken = writer.get_extra_info("socket")
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _half_close(writer: asyncio.StreamWriter) -> None:
    writer.write_eof()


@pytest.mark.parametrize("leave", [_fin, _rst, _half_close])
@pytest.mark.parametrize("does", [says_nothing, streams_and_goes_quiet, fills_the_buffer])
@pytest.mark.parametrize("sent", ["small", "2 MB body", "pipelined", "many pipelined"])
def test_the_running_request_is_told_that_its_client_left(
    leave: Callable[[asyncio.StreamWriter], None], does: Waits, sent: str
) -> None:
    async def work() -> tuple[list[str], int]:
        told: list[str] = []
        started = 0
        ready, gone = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal started
            started += 1
            await receive()

            def left() -> None:
                told.append("left")
                gone.set()

            scope["sink"].on_left(left)
            ready.set()
            await does(send)
            await gone.wait()
            assert (await receive())["type"] == "http.disconnect"
            told.append("ended")

        async with serving(app) as (listener, connect):
            _, writer = await connect()
            writer.write(request(b"x" * 2_000_000 if sent == "2 MB body" else b"{}"))
            await ready.wait()
            writer.write(request() * {"pipelined": 1, "many pipelined": 40}.get(sent, 0))
            await asyncio.sleep(0)
            leave(writer)
            await gone.wait()
            await listener.stop(1.0)
        return told, started

    assert run(work()) == (["left", "ended"], 1)


def test_nobody_is_told_once_the_answer_is_out() -> None:
    async def work() -> list[str]:
        told: list[str] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["sink"].on_left(lambda: told.append("left"))
            await respond(send, b"ok")

        async with serving(app) as (_, connect):
            reader, writer = await connect()
            writer.write(request())
            await reader.readuntil(b"ok")
        return told

    assert run(work()) == []


def test_an_application_that_asks_late_is_told_that_its_client_left_before() -> None:
    async def work() -> list[str]:
        told: list[str] = []
        ready, ended = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            ready.set()
            assert (await receive())["type"] == "http.disconnect"  # as while a limit is asked for elsewhere
            scope["sink"].on_left(lambda: told.append("left"))
            ended.set()

        async with serving(app) as (_, connect):
            _, writer = await connect()
            writer.write(request(b"{}"))
            await ready.wait()
            writer.transport.abort()
            await ended.wait()
        return told

    assert run(work()) == ["left"]


def test_a_slow_reader_stops_the_application_and_is_dropped_when_it_takes_nothing() -> None:
    async def work() -> int:
        written = 0
        gone = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal written
            scope["sink"].on_left(gone.set)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not gone.is_set():
                await send({"type": "http.response.body", "body": b"x" * 16_000, "more_body": True})
                written += 16_000

        async with serving(app, replace(LIMITS, write_seconds=0.1)) as (_, connect):
            reader, writer = await connect()
            writer.write(request())
            await reader.readexactly(1000)
            await gone.wait()
            assert writer
        return written

    assert (
        run(work()) < 16_000_000
    )  # what the kernel's buffers took; the rest of an endless answer was not made


# ── answers ──


async def once(app: App, sent: bytes, limits: ServingLimits = LIMITS) -> bytes:
    """Everything that comes back until the gateway closes."""
    async with serving(app, limits) as (_, connect):
        reader, writer = await connect()
        writer.write(sent)
        return await reader.read()


CLOSE = "Connection: close\r\n"


def test_head_and_body_of_a_whole_answer_are_written_together() -> None:
    async def work() -> tuple[list[int], bytes]:
        sizes: list[int] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            turn: Any = receive.__self__  # type: ignore[attr-defined]
            transport = turn._wire.transport

            class Counted:
                def write(self, data: bytes) -> None:
                    sizes.append(len(data))
                    transport.write(data)

                def __getattr__(self, name: str) -> Any:
                    return getattr(transport, name)

            turn._wire.transport = Counted()
            await respond(send, b"ok")

        got = await once(app, request(head=CLOSE))
        return sizes, got

    sizes, got = run(work())

    assert sizes == [len(got)]


def test_a_head_without_a_body_goes_out_by_itself() -> None:
    async def work() -> bytes:
        seen = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b")]})
            await seen.wait()
            await send({"type": "http.response.body", "body": b""})

        async with serving(app) as (_, connect):
            reader, writer = await connect()
            writer.write(request())
            head = await reader.readuntil(b"\r\n\r\n")
            seen.set()
            return head + await reader.readuntil(b"0\r\n\r\n")

    head, _, rest = run(work()).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    assert lines[1].startswith(b"date: ")
    assert lines[2:] == [b"x-a: b", b"transfer-encoding: chunked"]
    assert rest == b"0\r\n\r\n"


@pytest.mark.parametrize("size", [0, 1, 15, 16_383, 16_384, 300_000])
def test_pieces_of_any_size_are_framed(size: int) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a" * size, "more_body": True})
        await send({"type": "http.response.body", "body": b"b" * size})

    _, _, body = run(once(app, request(head=CLOSE))).partition(b"\r\n\r\n")

    frame = b"%x\r\n%b\r\n"
    pieces = b"".join(frame % (size, letter * size) for letter in (b"a", b"b")) if size else b""
    assert body == pieces + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [0, 2, 300_000])
def test_a_declared_length_is_kept(size: int) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"a" * size)

    head, _, body = run(once(app, request(head=CLOSE))).partition(b"\r\n\r\n")

    assert body == b"a" * size
    assert b"transfer-encoding" not in head


def test_an_answer_to_http_1_0_ends_with_its_connection() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})

    head, _, body = run(once(app, request(version="1.0"))).partition(b"\r\n\r\n")

    assert body == b"ab"
    assert b"connection: close" in head
    assert b"chunked" not in head


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_an_answer_that_may_have_no_body_has_none(method: str, status: int) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"5")] if method == "HEAD" else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"hello" if method == "HEAD" else b""})

    got = run(once(app, request(method=method, head=CLOSE)))

    assert got.endswith(b"\r\n\r\n")
    assert b"chunked" not in got


def test_a_cut_answer_has_no_end_mark_and_closes() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
        scope["sink"].break_off()
        scope["sink"].break_off()

    _, _, body = run(once(app, request())).partition(b"\r\n\r\n")

    assert body == b"9\r\ndata: x\n\n\r\n"


def test_an_exception_is_answered_500_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("a secret prompt")

    head, _, body = run(once(app, request())).partition(b"\r\n\r\n")

    error = json.loads(body)["error"]
    assert head.startswith(b"HTTP/1.1 500 ")
    assert (error["type"], error["code"], error["param"]) == ("server_error", "internal_error", None)
    assert b"x-request-id: req_" in head
    assert "secret" not in caplog.text
    assert "ValueError" in caplog.text


@pytest.mark.parametrize("value", [b"b\r\nset-cookie: c", b"b\nset-cookie: c", b"b\rset-cookie: c", b"b\0"])
@pytest.mark.parametrize("in_name", [False, True])
def test_no_header_of_an_answer_can_make_another(value: bytes, in_name: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"ok", (value, b"a") if in_name else (b"x-a", value))

    got = run(once(app, request()))

    assert got.startswith(b"HTTP/1.1 500 ")
    assert b"set-cookie" not in got


def test_an_application_that_returns_without_an_answer_is_answered_500() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        return

    assert run(once(app, request())).startswith(b"HTTP/1.1 500 ")


def test_an_application_that_fails_in_its_answer_is_cut_off() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        raise ValueError

    assert run(once(app, request())).endswith(b"\r\n\r\n1\r\na\r\n")


# ── requests ──


def test_the_body_is_asked_for_with_100_continue_only_when_it_is_wanted() -> None:
    async def work(wanted: bool) -> bytes:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if wanted:
                await respond(send, (await receive())["body"])
            else:
                await respond(send, b"no", status=401)

        async with serving(app) as (_, connect):
            reader, writer = await connect()
            head, _, body = request(b"abc", head="Expect: 100-continue\r\n").partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n")
            got = await reader.readuntil(b"\r\n\r\n")
            if not wanted:
                return got + await reader.read()
            writer.write(body)
            return got + await reader.readuntil(b"abc")

    wanted, refused = run(work(True)), run(work(False))

    assert wanted.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert b"connection: close" not in wanted
    assert refused.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in refused


def test_a_body_that_never_comes_after_100_continue_is_timed_out() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.disconnect"

    head, _, _ = request(b"abc", head="Expect: 100-continue\r\n").partition(b"\r\n\r\n")

    got = run(once(app, head + b"\r\n\r\n", replace(LIMITS, body_idle_seconds=0.1)))

    assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 408 ")


def test_an_answer_before_the_body_was_read_still_reaches_a_client_that_sends_on() -> None:
    async def work() -> bytes:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await respond(send, b"no", (b"connection", b"close"), status=401)

        async with serving(app) as (_, connect):
            reader, writer = await connect()
            head, _, _ = request(b"x" * 10_000_000).partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n")
            for _ in range(50):
                writer.write(b"x" * 10_000)
                await asyncio.sleep(0)
            return await reader.read()

    assert run(work()).endswith(b"\r\n\r\nno")


def test_an_unread_body_does_not_disturb_the_next_request() -> None:
    async def work() -> bytes:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await respond(send, b"ok")

        async with serving(app) as (_, connect):
            reader, writer = await connect()
            first = request(b"x" * 300_000)
            writer.write(first[:1000])
            got = await reader.readuntil(b"ok")
            writer.write(first[1000:] + request(head=CLOSE))
            return got + await reader.read()

    assert run(work()).count(b"HTTP/1.1 200 OK") == 2


def test_a_drip_of_a_body_is_timed_out_though_it_never_stops() -> None:
    async def work() -> bytes:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()

        async with serving(app, replace(LIMITS, body_idle_seconds=0.1)) as (_, connect):
            reader, writer = await connect()
            writer.write(request(b"x" * 1000)[:80])
            answer = asyncio.ensure_future(reader.read())
            while not answer.done():
                writer.write(b"x")
                await asyncio.wait([answer], timeout=0.01)
            return await answer

    assert run(work()).startswith(b"HTTP/1.1 408 ")


def test_a_connection_over_the_cap_is_told_so() -> None:
    async def work() -> tuple[bytes, list[tuple[int, str]]]:
        refused: list[tuple[int, str]] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await respond(send, b"ok")

        hooks = ServingHooks(refused=lambda status, code: refused.append((status, code)))
        async with serving(app, replace(LIMITS, max_connections=1), hooks) as (_, connect):
            first, writer = await connect()
            writer.write(request())
            await first.readuntil(b"ok")
            second, _ = await connect()
            got = await second.read()
            writer.write(request())
            await first.readuntil(b"ok")
            return got, refused

    got, refused = run(work())
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in head
    assert json.loads(body)["error"]["code"] == "overloaded"
    assert refused == [(503, "overloaded")]


def test_bodies_that_are_held_have_a_limit_over_all_connections() -> None:
    async def work() -> bytes:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            await asyncio.Event().wait()

        async with serving(app, replace(LIMITS, max_bodies=1500)) as (listener, connect):
            _, one = await connect()
            one.write(request(b"x" * 1000))
            reader, two = await connect()
            await until(lambda: listener.held == 1000)
            two.write(request(b"x" * 1000))
            got = await reader.read()
            one.close()
            for task in list(listener.tasks):
                task.cancel()
            return got

    assert run(work()).startswith(b"HTTP/1.1 503 ")


# ── the drain ──


def test_a_drain_lets_requests_end_and_then_tells_streams() -> None:
    async def work() -> tuple[bytes, bytes, list[str]]:
        said: list[str] = []
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if (await receive())["body"] == b"short":
                begun.set()
                await go_on.wait()
                await respond(send, b"ok")
                return
            over = asyncio.Event()
            scope["sink"].on_drain(over.set)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
            await over.wait()
            await send({"type": "http.response.body", "body": b"data: draining\n\n", "more_body": True})
            scope["sink"].break_off()

        hooks = ServingHooks(drain_over=lambda: said.append("over"))
        async with serving(app, LIMITS, hooks) as (listener, connect):
            short, short_writer = await connect()
            short_writer.write(request(b"short"))
            await begun.wait()
            stream, stream_writer = await connect()
            stream_writer.write(request(b"stream"))
            await stream.readuntil(b"data: 1\n\n")
            stopping = asyncio.ensure_future(listener.stop(0.1))
            await asyncio.sleep(0)
            go_on.set()
            short_answer = await short.read()
            stream_end = await stream.read()
            await stopping
            return short_answer, stream_end, said

    short, stream, said = run(work())
    assert short.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in short
    assert stream.endswith(b"data: draining\n\n\r\n")
    assert said == ["over"]


def test_a_request_that_will_not_end_is_ended_by_the_drain() -> None:
    async def work() -> bytes:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await asyncio.Event().wait()

        async with serving(app, cut_seconds=0.2) as (listener, connect):
            reader, writer = await connect()
            writer.write(request())
            await until(lambda: bool(listener.tasks))
            await listener.stop(0.01)
            return await reader.read()

    got = run(work())
    assert got.startswith(b"HTTP/1.1 503 ")
    assert b'"draining"' in got


def test_new_connections_are_refused_in_a_drain() -> None:
    async def work() -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await respond(send, b"ok")

        async with serving(app) as (listener, connect):
            await listener.stop(0.1)
            with pytest.raises(OSError):
                await connect()

    run(work())


PROGRAM = textwrap.dedent(
    """
    import asyncio, sys, uvloop
    from gateway.serving import ServingHooks, ServingSettings, run

    async def data(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        over = asyncio.Event()
        scope["sink"].on_drain(over.set)
        await over.wait()
        await send({"type": "http.response.body", "body": b"two", "more_body": True})
        scope["sink"].break_off()

    async def admin(scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": message["type"] + ".complete"})
                print(message["type"], flush=True)
                if message["type"] == "lifespan.shutdown":
                    return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def say(*words):
        print(*words, flush=True)

    settings = ServingSettings(listen="127.0.0.1:0", admin_listen="127.0.0.1:0", drain_seconds=0.2)
    hooks = ServingHooks(
        listening=lambda data, admin: say(data, admin),
        draining=lambda: say("draining"),
        drain_over=lambda: say("over"),
        reload=lambda: say("reload"),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(run(data, admin, settings, hooks)))
    """
)


def test_signals_reload_and_drain_once_and_the_process_ends_with_0() -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "lifespan.startup\n"
        data, admin = process.stdout.readline().split()
        for address in (admin, data):
            host, port = address.split(":")
            client = socket.create_connection((host, int(port)), timeout=5)
            client.sendall(request())
            assert client.recv(9) == b"HTTP/1.1 "
            if address == admin:
                client.close()
        os.kill(process.pid, signal.SIGHUP)
        assert process.stdout.readline() == "reload\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "draining\n"
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGTERM)
        got = b""
        while piece := client.recv(65536):
            got += piece
        client.close()
        assert got.endswith(b"3\r\none\r\n3\r\ntwo\r\n")
        assert process.stdout.read() == "over\nlifespan.shutdown\n"
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_an_address_that_is_taken_is_named() -> None:
    bound = bind("127.0.0.1:0")
    try:
        with pytest.raises(OSError, match=address_of(bound)):
            bind(address_of(bound))
    finally:
        bound.close()
