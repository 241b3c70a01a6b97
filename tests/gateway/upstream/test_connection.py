"""Our own client's connection: what may follow an answer, what is bounded, what one read brings."""

import asyncio
from collections.abc import Iterator
from itertools import repeat

import pytest

from gateway.upstream import ClientLeft, UpstreamFailure
from gateway.upstream.exchange import HIGH_WATER
from tests.gateway.upstream.servers import (
    CHUNKED,
    KEY,
    Client,
    Wire,
    always,
    ask,
    both_clients,
    both_loops,
    call,
    chunk,
    failure_of,
    once,
    own,
    rest_of,
    run,
    serving,
    until,
    upstream,
    whole,
)

ANSWER = whole(b'{"ok":true}')


@both_loops
def test_an_early_answer_is_delivered_although_the_provider_closes_on_our_body(loop: str) -> None:  # U51
    async def script(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.say(whole(b"too large", status=b"413 Content Too Large"))

    async def trial() -> None:
        async with serving(script) as server, own(server.url) as provider:
            for _ in range(5):
                assert await ask(provider, call(bytes(8 << 20))) == (413, b"too large")
            await until(lambda: server.open == 0)
            assert provider.standing().idle == provider.standing().in_use == 0

    run(trial(), loop)


@both_loops
@pytest.mark.parametrize(
    "after",
    [
        pytest.param(b"more than its length said", id="U46: a length too short"),
        pytest.param(whole(b"poison"), id="a second answer"),
        pytest.param(whole(b"poison")[:2], id="the begin of a second answer"),
    ],
)
def test_an_answer_ends_where_its_length_says_and_what_follows_is_never_anybody_elses(
    loop: str, after: bytes
) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(ANSWER + after)
        await wire.request()
        await wire.say(whole(b"poison"))

    async def trial() -> None:
        async with serving(script) as server, own(server.url) as provider:
            for _ in range(3):
                assert await ask(provider, call()) == (200, b'{"ok":true}')
                assert provider.standing().idle == 0
            assert len(server.wires) == 3

    run(trial(), loop)


@both_loops
def test_bytes_that_come_unasked_close_an_idle_connection(loop: str) -> None:
    idle = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(ANSWER)
        if wire.number == 0:
            await idle.wait()
            await wire.say(whole(b"poison"))
        await wire.request()
        await wire.say(ANSWER)

    async def trial() -> None:
        async with serving(script) as server, own(server.url) as provider:
            await ask(provider, call())
            assert provider.standing().idle == 1
            idle.set()
            await until(lambda: provider.standing().idle == 0)
            assert await ask(provider, call()) == (200, b'{"ok":true}')
            assert await ask(provider, call()) == (200, b'{"ok":true}')
            assert len(server.wires) == 2

    run(trial(), loop)


@pytest.mark.parametrize("how", [b"connection: close\r\n", b"Connection: Close\r\n"])
def test_a_connection_that_the_provider_means_to_close_is_not_kept(how: bytes) -> None:
    async def trial() -> None:
        async with serving(always(whole(more=how))) as server, own(server.url) as provider:
            await ask(provider, call())
            assert provider.standing().idle == 0
            await until(lambda: server.open == 0)

    run(trial())


def test_a_whole_answer_in_one_read_needs_one_look() -> None:
    async def trial() -> None:
        async with serving(always(ANSWER)) as server, own(server.url) as provider:
            for _ in range(2):
                exchange = provider.open(call())
                await exchange.head()
                assert await exchange.more() == b'{"ok":true}'
                assert exchange.ended

    run(trial())


def test_all_that_one_read_brought_comes_in_one_piece() -> None:
    events = [b"data: %d\n\n" % number for number in range(64)]

    async def trial() -> None:
        answer = CHUNKED + b"".join(chunk(event) for event in events) + chunk(b"")
        async with serving(always(answer)) as server, own(server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            assert await exchange.more() == b"".join(events)
            assert exchange.ended

    run(trial())


@both_loops
@both_clients
def test_a_reader_that_stands_still_stops_the_provider(client: Client, loop: str) -> None:  # limit 15
    size = 64 << 20
    sent = 0

    async def script(wire: Wire) -> None:
        nonlocal sent
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size >> 16):
            await wire.say(bytes(1 << 16))
            sent += 1 << 16

    async def trial() -> None:
        nonlocal sent
        async with serving(script) as server, upstream(client, server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.05)
            assert sent < 16 << 20  # what the kernel holds
            total = len(await exchange.more())
            assert total <= HIGH_WATER + (256 << 10)  # one read over the mark
            while not exchange.ended:
                total += len(await exchange.more())
            assert total == size

    run(trial(), loop)


@both_loops
def test_a_large_body_waits_for_the_provider_and_not_in_our_memory(loop: str) -> None:
    async def script(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.1)
        await wire.reader.readexactly(24 << 20)
        await wire.say(ANSWER)

    async def trial() -> None:
        async with serving(script) as server, own(server.url) as provider:
            exchange = provider.open(call(bytes(24 << 20)))
            await until(lambda: exchange.connection is not None)
            assert exchange.connection is not None
            await asyncio.sleep(0.05)
            assert exchange.connection.unsent_in_transport() <= 1 << 20
            await exchange.head()
            assert await rest_of(exchange) == b'{"ok":true}'
            assert provider.standing().idle == 1

    run(trial(), loop)


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        pytest.param(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", id="informational answers"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n", id="headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: ", b"y" * 1000, id="one header"),
        pytest.param(b"HTTP/1.1 200 ", b"O" * 1000, id="a reason"),
        pytest.param(CHUNKED + chunk(b"one") + b"0\r\n", b"x: y\r\n", id="trailers"),
        pytest.param(CHUNKED + chunk(b"one") + b"0\r\nx: ", b"y" * 1000, id="one trailer"),
        pytest.param(CHUNKED + chunk(b"one") + b"5;", b"x" * 1000, id="a chunk extension"),
    ],
)
def test_what_never_ends_and_brings_nothing_is_refused(begin: bytes, more: bytes) -> None:  # limit 16
    told = 0

    def pieces() -> Iterator[bytes]:
        nonlocal told
        for piece in repeat(more * (1 + 16_000 // len(more))):
            told += len(piece)
            yield piece

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(begin)
        for piece in pieces():
            await wire.say(piece)

    async def trial() -> None:
        async with serving(script) as server, own(server.url) as provider:
            failure, got = await failure_of(provider, call())
            assert failure.kind == "invalid_response"
            assert got in (b"", b"one")
            await until(lambda: server.open == 0)
            assert told < 32 << 20

    run(trial())


@pytest.mark.parametrize("pieces", [3, 400])
def test_large_pieces_with_nothing_between_them_are_no_framing_without_a_body(pieces: int) -> None:
    piece = bytes(250_000)

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED)
        for _ in range(pieces):
            head, tail = chunk(piece)[:-2], chunk(piece)[-2:]
            await wire.say(head)
            await wire.say(tail)
        await wire.say(chunk(b""))

    async def trial() -> None:
        async with serving(script) as server, own(server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            total = 0
            while not exchange.ended:
                total += len(await exchange.more())
            assert total == pieces * len(piece)

    run(trial())


def test_a_used_connection_that_dies_long_after_the_request_did_not_die_of_idleness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.upstream.connection.RESEND_SECONDS", 0.02)

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(ANSWER)
        await wire.request()
        await asyncio.sleep(0.05)

    async def trial() -> None:
        async with serving(script) as server, own(server.url) as provider:
            await ask(provider, call())
            failure, _ = await failure_of(provider, call())
            assert (failure.kind, failure.sent) == ("reset", True)
            assert len(server.bodies) == 2

    run(trial())


def test_not_every_word_is_http() -> None:
    async def trial() -> None:
        async with serving(once(b"SSH-2.0-OpenSSH\r\n")) as server, own(server.url) as provider:
            failure, _ = await failure_of(provider, call())
            assert str(failure) == "invalid_response: not an HTTP/1.1 answer"

    run(trial())


def test_trailers_do_not_come_among_the_headers() -> None:
    async def trial() -> None:
        answer = CHUNKED + chunk(b"one") + b"0\r\nset-cookie: late\r\n\r\n"
        async with serving(always(answer)) as server, own(server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            assert await rest_of(exchange) == b"one"
            assert [name for name, _ in exchange.headers] == [b"content-type", b"transfer-encoding"]

    run(trial())


def test_who_cancels_what_is_over_changes_nothing() -> None:
    async def trial() -> None:
        async with serving(once(CHUNKED + chunk(b"one"))) as server, own(server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            await until(lambda: exchange.over)
            exchange.cancel(ClientLeft())
            assert await exchange.more() == b"one"
            with pytest.raises(UpstreamFailure, match="reset"):
                await exchange.more()
        async with serving(always(ANSWER)) as server, own(server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            await rest_of(exchange)
            exchange.cancel(ClientLeft())
            assert await exchange.more() == b""
            assert provider.standing().idle == 1

    run(trial())


def test_who_leaves_with_an_answer_unread_does_not_read_it_later() -> None:
    async def trial() -> None:
        async with serving(always(ANSWER)) as server, own(server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            exchange.cancel(ClientLeft())
            with pytest.raises(ClientLeft):
                await exchange.more()
            assert provider.standing().idle == 1  # the answer was whole: its connection is fit for another

    run(trial())


def test_bytes_before_a_fault_in_the_same_read_are_given_out_first() -> None:
    async def trial() -> None:
        answer = CHUNKED + chunk(b"one") + chunk(b"two") + b"zz\r\n"
        async with serving(once(answer)) as server, own(server.url) as provider:
            exchange = provider.open(call())
            await exchange.head()
            assert await exchange.more() == b"onetwo"
            with pytest.raises(UpstreamFailure, match="invalid_response"):
                await exchange.more()
            with pytest.raises(UpstreamFailure, match="invalid_response"):
                await exchange.more()

    run(trial())


@pytest.mark.parametrize("earlier", [0.05, 5.0])
def test_each_exchange_on_a_warm_connection_has_its_own_deadline(earlier: float) -> None:
    async def script(wire: Wire) -> None:
        for _ in range(2):
            await wire.request()
            await wire.say(ANSWER)
        await wire.request()
        await wire.gone()

    async def trial() -> None:
        loop = asyncio.get_running_loop()
        async with serving(script) as server, own(server.url) as provider:
            await ask(provider, call())
            await ask(provider, call(total=earlier))
            begun = loop.time()
            failure, _ = await failure_of(provider, call(total=0.2))
            assert failure.kind == "total_timeout"
            assert 0.19 <= loop.time() - begun < 2
            assert len(server.wires) == 1

    run(trial())


@pytest.mark.parametrize("closes", [True, False])
def test_a_request_that_was_sent_again_still_has_its_deadline(closes: bool) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        if wire.number == 0:
            await wire.say(ANSWER)
            await wire.request()
            if closes:
                return
        await wire.gone()

    async def trial() -> None:
        async with serving(script) as server, own(server.url) as provider:
            await ask(provider, call())
            failure, _ = await failure_of(provider, call(total=0.2))
            assert failure.kind == "total_timeout"
            assert len(server.wires) == 1 + closes

    run(trial())


@both_clients
def test_an_exchange_shows_neither_key_nor_body(client: Client) -> None:
    async def trial() -> None:
        async with serving(always(ANSWER)) as server, upstream(client, server.url) as provider:
            exchange = provider.open(call(b"prompt"))
            shown = [repr(exchange)]
            await exchange.head()
            shown.append(repr(exchange))
            await rest_of(exchange)
            assert not [word for word in (KEY, "prompt", "true") if word in "".join(shown)]

    run(trial())


def test_a_flood_of_different_headers_is_sent_as_it_is_and_not_kept() -> None:
    async def trial() -> None:
        async with serving(always(ANSWER)) as server, own(server.url) as provider:
            for number in range(600):
                await ask(provider, call(headers=((b"x-title", b"%d" % number),)))
            assert provider.heads_kept <= 256
            assert [b"x-title: %d\r\n" % n in head for n, head in enumerate(server.heads)] == [True] * 600

    run(trial())


def test_a_head_that_was_sent_before_is_sent_with_the_length_of_this_body() -> None:
    async def trial() -> None:
        async with serving(always(ANSWER)) as server, own(server.url) as provider:
            headers = [(b"content-type", b"application/json")]
            for body in (b"one", b"fourteen bytes", b""):
                await ask(provider, call(body, headers=tuple(headers)))
            assert server.bodies == [b"one", b"fourteen bytes", b""]
            await ask(provider, call(path="/other", headers=tuple(headers)))
            assert server.heads[-1].startswith(b"POST /v1/other HTTP/1.1\r\n")

    run(trial())
