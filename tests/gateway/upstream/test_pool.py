"""The connections of our own client: who gets which, how many there are, what a cancelled request leaves."""

import asyncio
import random

import pytest

from gateway.upstream import ClientLeft, UpstreamFailure
from gateway.upstream.own import OwnUpstream
from tests.gateway.upstream.servers import (
    CHUNKED,
    Server,
    Wire,
    always,
    ask,
    both_loops,
    call,
    chunk,
    failure_of,
    own,
    rest_of,
    run,
    serving,
    until,
    whole,
)
from tests.patience import in_time

ANSWER = whole(b'{"ok":true}')


class Gate:
    """A script that holds every answer until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def __call__(self, wire: Wire) -> None:
        while True:
            await wire.request()
            await self.opened.wait()
            await wire.say(whole(b"%d" % wire.number))


def test_the_connection_used_last_is_used_first() -> None:
    async def trial() -> None:
        gate = Gate()
        async with serving(gate) as server, own(server.url) as provider:
            exchanges = [provider.open(call()) for _ in range(3)]
            await until(lambda: len(server.bodies) == 3)
            gate.opened.set()
            for exchange in exchanges:
                await exchange.head()
            last = b""
            for exchange in exchanges:
                last = await rest_of(exchange)
            for _ in range(4):
                assert (await ask(provider, call()))[1] in (b"0", b"1", b"2")
            answers = {(await ask(provider, call()))[1] for _ in range(4)}
            assert len(answers) == 1
            assert last
            assert provider.standing().idle == 3

    run(trial())


@both_loops
def test_at_the_cap_a_request_waits_for_a_connection_and_gets_it(loop: str) -> None:
    async def trial() -> None:
        gate = Gate()
        async with serving(gate) as server, own(server.url, max_connections=2) as provider:
            exchanges = [provider.open(call(b"%d" % number)) for number in range(6)]
            await until(lambda: len(server.bodies) == 2)
            assert provider.standing().waiting == 4
            assert [exchange.sent for exchange in exchanges] == [True] * 2 + [False] * 4
            gate.opened.set()
            for exchange in exchanges:
                await exchange.head()
                await rest_of(exchange)
            assert sorted(server.bodies) == [b"0", b"1", b"2", b"3", b"4", b"5"]
            assert server.bodies[2:] == [b"2", b"3", b"4", b"5"]  # in the order they came
            assert len(server.wires) == 2

    run(trial(), loop)


@both_loops
def test_a_request_that_waited_in_vain_says_so_within_a_second(loop: str) -> None:
    async def trial() -> None:
        gate = Gate()
        async with serving(gate) as server, own(server.url, max_connections=1) as provider:
            first = provider.open(call())
            failure, _ = await in_time(failure_of(provider, call()), 1.0)
            assert (failure.kind, failure.sent) == ("pool_exhausted", False)
            gate.opened.set()
            await first.head()
            assert (await ask(provider, call()))[0] == 200

    run(trial(), loop)


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstream.pool.MAX_WAITING", 3)

    async def trial() -> None:
        async with serving(Gate()) as server, own(server.url, max_connections=1) as provider:
            for _ in range(4):
                provider.open(call())
            failure, _ = await failure_of(provider, call())
            assert failure.kind == "pool_exhausted"
            assert provider.standing().waiting == 3

    run(trial())


@both_loops
def test_room_made_by_a_broken_or_cancelled_request_goes_to_who_waits(loop: str) -> None:
    async def script(wire: Wire) -> None:
        body = await wire.request()
        if body == b"break":
            wire.reset()
        elif body == b"hang":
            await wire.gone()
        else:
            await wire.say(ANSWER)

    async def trial() -> None:
        async with serving(script) as server, own(server.url, max_connections=1) as provider:
            broken = provider.open(call(b"break"))
            hanging = provider.open(call(b"hang"))
            left = provider.open(call(b"never"))
            good = provider.open(call(b"good"))
            left.cancel(ClientLeft())
            assert provider.standing().waiting == 2
            with pytest.raises(UpstreamFailure, match="reset"):
                await broken.head()
            await until(lambda: b"hang" in server.bodies)
            hanging.cancel(ClientLeft())
            await good.head()
            assert await rest_of(good) == b'{"ok":true}'
            assert server.bodies == [b"break", b"hang", b"good"]

    run(trial(), loop)


@both_loops
def test_an_unused_connection_is_closed_after_a_while(loop: str) -> None:
    async def trial() -> None:
        async with (
            serving(always(ANSWER)) as server,
            own(server.url, idle_connection_seconds=0.05) as provider,
        ):
            await ask(provider, call())
            assert provider.standing().idle == 1
            await until(lambda: server.open == 0)
            assert provider.standing().idle == 0
            assert (await ask(provider, call()))[0] == 200
            assert len(server.wires) == 2

    run(trial(), loop)


async def _echo(wire: Wire) -> None:
    """Answers with the request's own words, whole or as a stream, a moment later."""
    dice = random.Random(wire.number)
    while True:
        body = await wire.request()
        await asyncio.sleep(dice.random() * 0.004)
        if body.startswith(b"stream"):
            await wire.say(CHUNKED, *[chunk(body)] * 3, chunk(b""))
        else:
            await wire.say(whole(body))


def _is_own(answer: bytes, body: bytes) -> bool:
    return answer == (body * 3 if body.startswith(b"stream") else body)


@both_loops
@pytest.mark.parametrize("max_connections", [8, 1000])
def test_requests_cancelled_at_any_moment_leave_nothing_behind(
    loop: str, max_connections: int
) -> None:  # limit 13
    dice = random.Random(7)
    good = left = 0

    async def one(provider: OwnUpstream, number: int) -> None:
        nonlocal good, left
        kind = dice.choice(("stream", "whole"))
        body = b"%s %d " % (kind.encode(), number) + b"x" * dice.choice((0, 100, 20_000, 700_000))
        exchange = provider.open(call(body))
        patience = dice.choice((None, 0.0, dice.random() * 0.01))

        async def read() -> bytes:
            await exchange.head()
            return await rest_of(exchange)

        reading = asyncio.ensure_future(read())
        if patience is not None:
            await asyncio.sleep(patience)
            exchange.cancel(ClientLeft())
        try:
            assert _is_own(await reading, body)
            good += 1
        except ClientLeft:
            left += 1

    async def trial() -> None:
        async with serving(_echo) as server, own(server.url, max_connections=max_connections) as provider:
            for start in range(0, 300, 30):
                await asyncio.gather(*(one(provider, start + number) for number in range(30)))
            assert good > 50
            assert left > 50
            assert good + left == 300
            await until(lambda: _is_quiet(provider, server))
            assert await ask(provider, call(b"after")) == (200, b"after")

    run(trial(), loop, within_seconds=20)


def _is_quiet(provider: OwnUpstream, server: Server) -> bool:
    standing = provider.standing()
    return standing.in_use == standing.opening == standing.waiting == 0 and server.open == standing.idle
