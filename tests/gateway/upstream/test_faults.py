"""What providers do wrong and what comes of it, the same on both clients (U: the list of upstream faults)."""

import asyncio
import gzip
import socket
from typing import Any, Literal

import pytest

from gateway.upstream import ClientLeft, UpstreamFailure
from tests.gateway.upstream.servers import (
    CHUNKED,
    KEY,
    Client,
    Script,
    Wire,
    always,
    ask,
    both_clients,
    both_loops,
    call,
    chunk,
    failure_of,
    once,
    rest_of,
    run,
    serving,
    until,
    upstream,
    whole,
)
from tests.patience import in_time

ANSWER = whole(b'{"ok":true}')


@both_loops
@both_clients
def test_an_answer_comes_byte_for_byte_and_its_connection_is_used_again(client: Client, loop: str) -> None:
    async def trial() -> None:
        async with serving(always(ANSWER)) as server, upstream(client, server.url) as provider:
            for _ in range(3):
                assert await ask(provider, call(b"hello")) == (200, b'{"ok":true}')
            assert server.bodies == [b"hello"] * 3
            assert len(server.wires) == 1

    run(trial(), loop)


@both_clients
def test_the_request_goes_out_as_one_with_the_key_and_asks_for_nothing_packed(client: Client) -> None:
    async def trial() -> list[bytes]:
        async with serving(always(ANSWER)) as server, upstream(client, server.url) as provider:
            await ask(provider, call(b"12345"))
            line, *headers = server.heads[0].lower().removesuffix(b"\r\n\r\n").split(b"\r\n")
            assert line == b"post /v1/chat/completions http/1.1"
            assert b"host: 127.0.0.1:%d" % server.port in headers
            return headers

    headers = run(trial())
    for header in (
        b"authorization: bearer " + KEY.encode(),
        b"accept-encoding: identity",
        b"content-length: 5",
        b"content-type: application/json",
    ):
        assert headers.count(header) == 1


@both_clients
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ANSWER, id="length"),
        pytest.param(CHUNKED + chunk(b'{"ok":') + chunk(b"true}") + chunk(b""), id="chunks"),
        pytest.param(CHUNKED + chunk(b'{"ok":true}')[:-2] + b"\r\n0\r\ntrailer: x\r\n\r\n", id="trailer"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + b'{"ok":true}', id="until the end of the connection"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\n" + b'{"ok":true}', id="HTTP/1.0"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER, id="100"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 2 + ANSWER, id="103"),
    ],
)
@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_every_framing_is_read_however_the_network_cut_it(client: Client, answer: bytes, cut: int) -> None:
    pieces = [answer[start : start + cut] for start in range(0, len(answer), cut)]

    async def trial() -> None:
        async with serving(once(*pieces)) as server, upstream(client, server.url) as provider:
            assert await ask(provider, call()) == (200, b'{"ok":true}')

    run(trial())


@both_clients
@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_an_answer_without_a_body_has_ended_at_its_head(client: Client, status: bytes) -> None:  # U42
    async def trial() -> tuple[int, bytes]:
        async with (
            serving(always(b"HTTP/1.1 " + status + b"\r\n\r\n")) as server,
            upstream(client, server.url) as provider,
        ):
            return await ask(provider, call())

    assert run(trial()) == (int(status[:3]), b"")


@both_clients
def test_a_redirect_is_an_answer_and_the_key_stays_here(client: Client) -> None:  # U42, S19
    async def trial() -> None:
        async with serving(always(ANSWER)) as other:
            moved = whole(status=b"301 Moved", more=b"location: %s\r\n" % other.url.encode())
            async with serving(always(moved)) as server, upstream(client, server.url) as provider:
                assert (await ask(provider, call()))[0] == 301
            assert other.wires == []

    run(trial())


@both_clients
def test_headers_are_given_as_they_came_with_their_names_in_lower_case(client: Client) -> None:  # U47
    async def trial() -> list[tuple[bytes, bytes]]:
        more = b"X-Odd: A\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\n"
        async with serving(always(whole(more=more))) as server, upstream(client, server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            await rest_of(exchange)
            return list(exchange.headers)

    assert run(trial()) == [
        (b"content-type", b"application/json"),
        (b"x-odd", b"A"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"content-length", b"11"),
    ]


async def _mute(wire: Wire) -> None:
    await wire.request()
    await wire.gone()


async def _reset_after_request(wire: Wire) -> None:
    await wire.request()
    wire.reset()


def _reset_after(*pieces: bytes) -> Script:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(*pieces)
        await asyncio.sleep(0.01)
        wire.reset()

    return script


def _heads(number: int, size: int) -> bytes:
    return b"".join(b"x-%d: %s\r\n" % (index, b"v" * size) for index in range(number))


BOMB = gzip.compress(bytes(1 << 20))


@both_loops
@both_clients
@pytest.mark.parametrize(
    ("script", "kind", "before"),
    [
        pytest.param(_reset_after_request, "reset", b"", id="U8: reset before any header"),
        pytest.param(once(), "reset", b"", id="closed without a word"),
        pytest.param(once(b"HTTP/1.1 200 OK\r\nx: 1"), "reset", b"", id="closed within the headers"),
        pytest.param(_reset_after(ANSWER[:-4]), "reset", ANSWER[-11:-4], id="U11: reset within the body"),
        pytest.param(
            once(whole(b"abc").replace(b"length: 3", b"length: 9")), "reset", b"abc", id="U46: too long"
        ),
        pytest.param(once(CHUNKED + chunk(b"one")), "reset", b"one", id="U12: cut between chunks"),
        pytest.param(
            once(whole(more=b"content-encoding: gzip\r\n", body=BOMB)),
            "invalid_response",
            b"",
            id="U45: packed",
        ),
        pytest.param(
            once(whole(more=b"content-encoding: gzip, gzip\r\n", body=BOMB)),
            "invalid_response",
            b"",
            id="U45: packed twice",
        ),
        pytest.param(once(whole(more=_heads(1, 300_000))), "invalid_response", b"", id="U44: 300 KB header"),
        pytest.param(once(whole(more=_heads(500, 8))), "invalid_response", b"", id="U44: 500 headers"),
        pytest.param(once(whole(more=_heads(90, 760))), "invalid_response", b"", id="90 headers of 67 KB"),
        pytest.param(once(b"SSH-2.0-OpenSSH\r\n\r\n"), "invalid_response", b"", id="not HTTP"),
        pytest.param(once(CHUNKED + b"zz\r\nabc\r\n"), "invalid_response", b"", id="no chunk size"),
        pytest.param(
            once(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd"),
            "invalid_response",
            b"",
            id="two lengths",
        ),
        pytest.param(
            once(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n" + chunk(b"abc") + chunk(b"")),
            "invalid_response",
            b"",
            id="a transfer-encoding we did not ask for",
        ),
    ],
)
def test_a_broken_answer_fails_by_its_kind_after_the_bytes_that_came(
    client: Client, loop: str, script: Script, kind: str, before: bytes
) -> None:
    async def trial() -> None:
        async with serving(script) as server, upstream(client, server.url) as provider:
            failure, got = await failure_of(provider, call())
            assert (failure.kind, got, failure.sent) == (kind, before, True)
            assert len(server.bodies) == 1  # a request that went out on a fresh connection is never repeated
            assert KEY not in str(failure)
            await until(lambda: server.open == 0)

    run(trial(), loop)


@both_clients
def test_of_an_answer_longer_than_its_length_only_that_length_is_read(client: Client) -> None:  # U46
    async def trial() -> None:
        longer = whole(b"abcdef").replace(b"length: 6", b"length: 3")
        async with serving(once(longer)) as server, upstream(client, server.url) as provider:
            assert await ask(provider, call()) == (200, b"abc")
            await until(lambda: server.open == 0)

    run(trial())


@both_clients
def test_a_switch_of_protocols_is_no_answer(client: Client) -> None:
    async def trial() -> None:
        switch = b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
        async with serving(once(switch)) as server, upstream(client, server.url) as provider:
            failure, _ = await failure_of(provider, call())
            assert failure.kind == "invalid_response"

    run(trial())


@both_loops
@both_clients
def test_a_refused_connection_says_so_and_nothing_was_sent(client: Client, loop: str) -> None:  # U1
    async def trial() -> None:
        with socket.socket() as unused:  # bound, and not listening
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            async with upstream(client, url) as provider:
                failure, _ = await failure_of(provider, call())
                assert (failure.kind, failure.sent) == ("connect_refused", False)

    run(trial(), loop)


@both_clients
def test_a_name_that_does_not_exist_is_a_failure_to_resolve(client: Client) -> None:  # U4
    async def trial() -> None:
        # A label over 63 characters cannot be asked for: the system refuses it without a network.
        async with upstream(client, f"http://{'a' * 60}.invalid:1/v1") as provider:
            failure, _ = await failure_of(provider, call(connect=5))
            assert (failure.kind, failure.sent) == ("resolve", False)

    run(trial())


@both_loops
@both_clients
def test_a_dead_idle_connection_is_replaced_without_anybody_noticing(
    client: Client, loop: str
) -> None:  # U10
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(ANSWER)
        if wire.number == 0:
            await wire.reader.read(1)  # closes with the next request on its way
            wire.reset()
        else:
            await wire.request()
            await wire.say(ANSWER)

    async def trial() -> None:
        async with serving(script) as server, upstream(client, server.url) as provider:
            for _ in range(3):
                assert (await ask(provider, call()))[0] == 200
            assert len(server.wires) == 2

    run(trial(), loop)


@both_clients
def test_a_provider_that_always_breaks_used_connections_is_asked_twice_and_no_more(client: Client) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        if wire.number == 0:
            await wire.say(ANSWER)
            await wire.request()
        wire.reset()

    async def trial() -> None:
        async with serving(script) as server, upstream(client, server.url) as provider:
            assert (await ask(provider, call()))[0] == 200
            failure, _ = await failure_of(provider, call())
            assert (failure.kind, failure.sent) == ("reset", True)
            assert len(server.bodies) == 3

    run(trial())


@both_clients
def test_an_early_answer_of_a_provider_that_reads_on_is_delivered(client: Client) -> None:
    async def script(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.say(whole(b"too large", status=b"413 Content Too Large"))
        await wire.gone()

    async def trial() -> None:
        async with serving(script) as server, upstream(client, server.url) as provider:
            assert await ask(provider, call(bytes(8 << 20))) == (413, b"too large")

    run(trial())


@both_loops
@both_clients
@pytest.mark.parametrize("size", [0, 1, 8_192, 8_193, 524_288, 524_289, 3_000_001])
def test_a_body_of_any_size_arrives_whole(client: Client, loop: str, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)

    async def trial() -> None:
        async with serving(always(ANSWER)) as server, upstream(client, server.url) as provider:
            for _ in range(2):
                assert (await ask(provider, call(body[:size])))[0] == 200
            assert server.bodies == [body[:size]] * 2
            assert len(server.wires) == 1

    run(trial(), loop)


def _stream(*events: bytes) -> Script:
    """These events, then silence."""

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED, *(chunk(event) for event in events))
        await wire.gone()

    return script


async def _drip(wire: Wire) -> None:
    await wire.request()
    await wire.say(CHUNKED)
    while True:
        await wire.say(chunk(b"."))
        await asyncio.sleep(0.01)


@both_loops
@both_clients
@pytest.mark.parametrize(
    ("script", "limits", "kind", "before"),
    [
        # The request, what comes before the silence, and each drop have to come in time on a busy machine too.
        pytest.param(_mute, {"first_token": 0.3}, "first_token_timeout", b"", id="U28: no head"),
        pytest.param(
            _stream(b"role"),
            {"first_token": 0.3, "idle": 0.02},
            "first_token_timeout",
            b"role",
            id="U28: no content",
        ),
        pytest.param(
            _mute, {"idle": 0.02, "total": 0.4}, "total_timeout", b"", id="a whole answer may take long"
        ),
        pytest.param(_stream(b"{", b'"a'), {"idle": 0.3}, "idle_timeout", b'{"a', id="a whole answer stalls"),
        pytest.param(_drip, {"idle": 0.25, "total": 0.4}, "total_timeout", None, id="U31: drip"),
    ],
)
def test_each_deadline_ends_the_exchange_and_closes_the_connection(
    client: Client, loop: str, script: Script, limits: dict[str, Any], kind: str, before: bytes | None
) -> None:
    async def trial() -> None:
        async with serving(script) as server, upstream(client, server.url) as provider:
            failure, got = await failure_of(provider, call(**limits))
            assert (failure.kind, failure.sent) == (kind, True)
            assert before is None or got == before
            await until(lambda: server.open == 0)

    run(trial(), loop)


@both_loops
@both_clients
def test_after_the_first_token_a_stream_is_held_to_the_idle_limit(client: Client, loop: str) -> None:  # U30
    async def trial() -> None:
        async with serving(_stream(b"one", b"two")) as server, upstream(client, server.url) as provider:
            exchange = provider.open(call(first_token=3, idle=0.1, total=4))
            await exchange.head()
            got = await exchange.more()
            exchange.first_token()
            started = asyncio.get_running_loop().time()
            while len(got) < 6:
                got += await exchange.more()
            assert got == b"onetwo"
            with pytest.raises(UpstreamFailure, match="idle_timeout"):
                await in_time(exchange.more(), 1)
            assert asyncio.get_running_loop().time() - started > 0.05
            await until(lambda: server.open == 0)

    run(trial(), loop)


@both_clients
def test_a_slow_reader_is_no_fault_of_the_provider(client: Client) -> None:
    event = b"x" * 16_384

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED)
        for _ in range(640):
            await wire.say(chunk(event))
        await wire.say(chunk(b""))

    async def trial() -> None:
        async with serving(script) as server, upstream(client, server.url) as provider:
            exchange = provider.open(call(idle=0.2))
            await exchange.head()
            await asyncio.sleep(0.5)  # more than twice the idle limit, without reading
            assert len(await rest_of(exchange)) == 640 * len(event)
            assert server.open <= 1

    run(trial())


Moment = Literal["at once", "asked", "head", "body"]


@both_loops
@both_clients
@pytest.mark.parametrize("moment", ["at once", "asked", "head", "body"])
def test_a_cancelled_exchange_closes_its_connection_and_raises_why(
    client: Client, loop: str, moment: Moment
) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        if moment in ("head", "body"):
            await wire.say(CHUNKED)
        if moment == "body":
            await wire.say(chunk(b"one"))
        await wire.gone()

    async def trial() -> None:
        async with serving(script) as server, upstream(client, server.url) as provider:
            exchange = provider.open(call())
            if moment != "at once":
                await until(lambda: len(server.bodies) == 1)
            if moment in ("head", "body"):
                await exchange.head()
            waiting = asyncio.ensure_future(exchange.more() if moment == "body" else exchange.head())
            if moment == "body":
                assert await waiting == b"one"
                waiting = asyncio.ensure_future(exchange.more())
            await asyncio.sleep(0)
            exchange.cancel(ClientLeft())
            exchange.cancel(ValueError("too late"))
            if moment != "head":
                with pytest.raises(ClientLeft):
                    await waiting
            for late in (exchange.head, exchange.more):
                with pytest.raises(ClientLeft):
                    await late()
            await until(lambda: server.open == 0)

    run(trial(), loop)


@both_clients
def test_a_call_that_would_not_be_one_request_is_refused(client: Client) -> None:  # S28
    async def trial() -> None:
        async with serving(always(ANSWER)) as server, upstream(client, server.url) as provider:
            for wrong in (
                call(headers=((b"x", b"1\r\ny: 2"),)),
                call(headers=((b"x", b"1\n"),)),
                call(headers=((b"x", b"1\r"),)),
                call(headers=((b"x\r", b"1"),)),
                call(headers=((b"x", b"\0"),)),
                call(headers=((b"content-length", b"1"),)),
                call(headers=((b"Transfer-Encoding", b"chunked"),)),
                call(headers=((b"Authorization", b"x"),)),
                call(path="/a b"),
                call(path="/a\r\nx: y"),
                call(path="http://elsewhere/"),
            ):
                with pytest.raises(ValueError):
                    provider.open(wrong)
            assert server.wires == []

    run(trial())


@both_clients
def test_proxies_of_the_environment_are_not_used(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:  # S18
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    async def trial() -> tuple[int, bytes]:
        async with serving(always(ANSWER)) as server, upstream(client, server.url) as provider:
            return await ask(provider, call())

    assert run(trial())[0] == 200


@both_clients
def test_a_closed_upstream_ends_what_is_under_way_and_a_retired_one_lets_it_end(client: Client) -> None:
    async def slow(wire: Wire) -> None:
        while True:
            await wire.request()
            await wire.say(CHUNKED, chunk(b"one"))
            await asyncio.sleep(0.02)
            await wire.say(chunk(b"two") + chunk(b""))

    async def trial() -> None:
        async with serving(slow) as server, upstream(client, server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            provider.retire()
            assert await rest_of(exchange) == b"onetwo"
            await until(lambda: server.open == 0)
        async with serving(slow) as server, upstream(client, server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            await provider.close()
            with pytest.raises(Exception, match="reset"):
                await rest_of(exchange)
            await until(lambda: server.open == 0)

    run(trial())
