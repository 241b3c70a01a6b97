"""What only the httpx client does: HTTP/2, a proxy that was configured; and that it stays within its bounds."""

import asyncio
import logging
import random
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from gateway.upstream import ClientLeft
from gateway.upstream.httpx_client import HttpxUpstream
from gateway.upstream.settings import Settings
from tests.gateway.upstream.servers import (
    KEY,
    Authority,
    Wire,
    always,
    ask,
    call,
    failure_of,
    rest_of,
    run,
    serving,
    until,
    upstream,
    whole,
)


def test_http_2_is_spoken_where_it_is_wanted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = authority.context("localhost")
    context.set_alpn_protocols(["h2"])
    seen: list[dict[bytes, bytes]] = []

    async def script(wire: Wire) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        wire.writer.write(connection.data_to_send())
        while data := await wire.reader.read(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    seen.append({bytes(name): bytes(value) for name, value in event.headers})
                elif isinstance(event, h2.events.StreamEnded):
                    stream = event.stream_id
                    connection.send_headers(stream, [(b":status", b"200"), (b"content-type", b"text/plain")])
                    connection.send_data(stream, b"two", end_stream=True)
            wire.writer.write(connection.data_to_send())

    async def trial() -> None:
        async with serving(script, context=context) as server:
            url = f"https://localhost:{server.port}/v1"
            async with upstream("httpx", url, http2=True, ca_file=authority.file) as provider:
                assert await asyncio.gather(*(ask(provider, call()) for _ in range(3))) == [(200, b"two")] * 3
                assert len(server.wires) == 1

    run(trial())
    assert [head[b":path"] for head in seen] == [b"/v1/chat/completions"] * 3
    assert {head[b"authorization"] for head in seen} == {b"Bearer " + KEY.encode()}


def test_a_configured_proxy_is_used() -> None:
    async def trial() -> None:
        async with serving(always(whole(b"by proxy"))) as server:
            proxy = f"http://127.0.0.1:{server.port}"
            async with upstream("httpx", "http://name.test/v1", proxy=proxy) as provider:
                assert await ask(provider, call()) == (200, b"by proxy")
            assert server.heads[0].startswith(b"POST http://name.test/v1/chat/completions HTTP/1.1\r\n")

    run(trial())


def test_at_the_cap_a_request_waits_less_than_a_second() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.gone()

    async def trial() -> None:
        async with serving(script) as server, upstream("httpx", server.url, max_connections=1) as provider:
            held = provider.open(call())
            await until(lambda: len(server.bodies) == 1)
            failure, _ = await failure_of(provider, call())
            assert (failure.kind, failure.sent) == ("pool_exhausted", False)
            held.cancel(ClientLeft())

    run(trial())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_cancelled_requests_leave_nothing_behind(loop: str) -> None:
    dice = random.Random(7)

    async def script(wire: Wire) -> None:
        while True:
            body = await wire.request()
            await asyncio.sleep(dice.random() * 0.004)
            await wire.say(whole(body))

    async def trial() -> None:
        async with serving(script) as server:
            provider = HttpxUpstream(Settings(base_url=server.url, client="httpx"))

            async def one(number: int) -> None:
                exchange = provider.open(call(b"%d" % number))
                if dice.random() < 0.6:
                    await asyncio.sleep(dice.random() * 0.02)
                    exchange.cancel(ClientLeft())
                try:
                    await exchange.head()
                    assert await rest_of(exchange) == b"%d" % number
                except ClientLeft:
                    pass

            for start in range(0, 100, 20):
                await asyncio.gather(*(one(start + number) for number in range(20)))
            await until(lambda: provider.in_use == 0)
            assert await ask(provider, call(b"after")) == (200, b"after")
            await provider.close()
            await until(lambda: server.open == 0)

    run(trial(), loop)


def test_no_library_below_writes_urls_or_headers_to_the_log(caplog: pytest.LogCaptureFixture) -> None:  # S21
    async def trial() -> None:
        async with serving(always(whole())) as server, upstream("httpx", server.url) as provider:
            await ask(provider, call(path="/x?canary=1"))

    with caplog.at_level(logging.DEBUG):
        run(trial())
    assert "canary" not in caplog.text
