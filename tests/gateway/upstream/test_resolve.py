"""Names and addresses: what is remembered, who waits for whom, which of two addresses wins."""

import asyncio
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest

from gateway.upstream.resolve import (
    NEXT_ADDRESS_SECONDS,
    Endpoint,
    ResolveProblem,
    Resolver,
    connect,
    look_up,
    taking_turns,
)
from tests.gateway.upstream.servers import always, ask, both_loops, call, failure_of, own, run, serving, whole


def v4(number: int, port: int = 80) -> Endpoint:
    return Endpoint(socket.AF_INET, (f"127.0.0.{number}", port))


def v6(number: int) -> Endpoint:
    return Endpoint(socket.AF_INET6, (f"::{number}", 80, 0, 0))


class Names:
    """A name service with a script."""

    def __init__(self, *answers: Sequence[Endpoint] | OSError) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, host: str, port: int) -> Sequence[Endpoint]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


@contextmanager
def silent() -> Generator[Endpoint]:
    """An address that neither answers nor refuses: a listener whose queue is full."""
    fillers: list[socket.socket] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        try:
            yield Endpoint(socket.AF_INET, (address[0], address[1]))
        finally:
            for filler in fillers:
                filler.close()


@contextmanager
def refusing() -> Generator[Endpoint]:
    """An address that refuses."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield Endpoint(socket.AF_INET, unused.getsockname())


def test_an_answer_is_remembered_and_asked_again_when_it_is_old() -> None:
    names = Names([v4(1)], [v4(2)])

    async def trial() -> None:
        resolver = Resolver("name.test", 80, look_up=names, keep_seconds=0.05)
        assert await resolver.endpoints() == [v4(1)]
        assert await resolver.endpoints() == [v4(1)]
        assert names.asked == 1
        await asyncio.sleep(0.06)
        assert await resolver.endpoints() == [v4(2)]

    run(trial())


@both_loops
def test_a_failed_look_up_is_remembered_for_a_moment_only(loop: str) -> None:  # U4
    names = Names(socket.gaierror(socket.EAI_NONAME, "Name or service not known"), [v4(1)])

    async def trial() -> None:
        resolver = Resolver("name.test", 80, look_up=names, keep_failure_seconds=0.05)
        for _ in range(2):
            with pytest.raises(
                ResolveProblem, match=r"^name\.test does not resolve: Name or service not known"
            ):
                await resolver.endpoints()
        assert names.asked == 1
        await asyncio.sleep(0.06)
        assert await resolver.endpoints() == [v4(1)]

    run(trial(), loop)


def test_no_address_at_all_is_a_failure_too() -> None:
    async def trial() -> None:
        with pytest.raises(ResolveProblem, match="no address"):
            await Resolver("name.test", 80, look_up=Names([])).endpoints()

    run(trial())


def test_an_address_needs_no_name_service() -> None:
    def never(host: str, port: int) -> Sequence[Endpoint]:
        raise AssertionError("asked")

    async def trial() -> None:
        assert await Resolver("127.0.0.1", 80, look_up=never).endpoints() == [v4(1)]
        assert await Resolver("::1", 80, look_up=never).endpoints() == [v6(1)]

    run(trial())


@both_loops
def test_one_look_up_serves_all_who_wait_and_who_leaves_takes_it_from_nobody(loop: str) -> None:
    release = threading.Event()
    asked: list[str] = []

    def slow(host: str, port: int) -> Sequence[Endpoint]:
        asked.append(host)
        release.wait(5)
        return [v4(1)]

    async def trial() -> None:
        resolver = Resolver("name.test", 80, look_up=slow)
        waiting = [asyncio.ensure_future(resolver.endpoints()) for _ in range(5)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        await asyncio.sleep(0)
        release.set()
        assert await asyncio.gather(*waiting[1:]) == [[v4(1)]] * 4
        assert waiting[0].cancelled()
        assert asked == ["name.test"]

    run(trial(), loop)


def test_a_name_server_that_does_not_answer_holds_up_one_request_and_no_other() -> None:  # U4
    release = threading.Event()

    def mute(host: str, port: int) -> Sequence[Endpoint]:
        release.wait(5)
        return []

    async def trial() -> None:
        async with serving(always(whole())) as server, own(server.url) as healthy:
            async with own("http://name.test/v1", look_up=mute) as provider:
                failing = asyncio.ensure_future(failure_of(provider, call(connect=0.1)))
                assert (await ask(healthy, call()))[0] == 200
                failure, _ = await failing
                assert (failure.kind, failure.sent) == ("resolve", False)
                assert provider.standing().opening == 0
            release.set()

    run(trial())


def test_the_system_is_asked_for_addresses_of_both_families() -> None:
    found = look_up("localhost", 80)
    assert v4(1) in found


@pytest.mark.parametrize(
    ("found", "order"),
    [
        ([], []),
        ([v4(1)], [v4(1)]),
        ([v6(1), v6(2), v4(1)], [v6(1), v4(1), v6(2)]),
        ([v4(1), v6(1), v6(2)], [v4(1), v6(1), v6(2)]),
    ],
)
def test_families_take_turns_and_the_first_stays_first(found: list[Endpoint], order: list[Endpoint]) -> None:
    assert taking_turns(found) == order


@both_loops
@pytest.mark.parametrize("dead", [silent, refusing])
def test_a_dead_first_address_costs_a_moment(
    loop: str, dead: Callable[[], AbstractContextManager[Endpoint]]
) -> None:  # U5
    assert NEXT_ADDRESS_SECONDS <= 0.3

    async def trial() -> None:
        with dead() as first:
            async with serving(always(whole(more=b"connection: close\r\n"))) as server:
                names = Names([first, v4(1, server.port)])
                async with own("http://name.test/v1", look_up=names) as provider:
                    for _ in range(2):
                        assert (await ask(provider, call(connect=1.0)))[0] == 200

    run(trial(), loop)


def test_the_address_that_answered_comes_first_while_it_is_remembered() -> None:
    async def trial() -> None:
        resolver = Resolver("name.test", 80, look_up=Names([v4(1), v4(2), v4(3)]))
        resolver.prefer((await resolver.endpoints())[1])
        assert await resolver.endpoints() == [v4(2), v4(1), v4(3)]

    run(trial())


@both_loops
def test_when_every_address_fails_the_first_ones_reason_is_told(loop: str) -> None:
    async def trial() -> None:
        with refusing() as first, refusing() as second, pytest.raises(ConnectionRefusedError):
            await connect([first, second], next_seconds=0.01)

    run(trial(), loop)


@both_loops
def test_who_gives_up_closes_all_that_was_begun(loop: str) -> None:
    async def trial() -> None:
        with silent() as first, silent() as second:
            racing = asyncio.ensure_future(connect([first, second], next_seconds=0.01))
            await asyncio.sleep(0.03)
            racing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await racing
            await asyncio.sleep(0.01)
            assert len(asyncio.all_tasks()) == 1  # unclosed sockets would warn, and a warning is an error

    run(trial(), loop)
