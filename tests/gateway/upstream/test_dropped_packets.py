"""A provider whose packets are dropped: nothing refuses, nothing answers."""

import asyncio
import socket
import threading

import pytest

from tests.gateway.upstream.servers import Client, both_clients, both_loops, call, failure_of, run, upstream


@pytest.mark.slow
@both_loops
@both_clients
def test_a_connect_that_hangs_ends_at_its_limit_and_leaves_nothing(client: Client, loop: str) -> None:  # U3
    async def trial(url: str) -> None:
        async with upstream(client, url) as provider:
            started = asyncio.get_running_loop().time()
            failure, _ = await failure_of(provider, call(connect=2.0))
            assert (failure.kind, failure.sent) == ("connect_timeout", False)
            assert 1.9 < asyncio.get_running_loop().time() - started < 2.3
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    # The queue of a listener that never accepts is full: the kernel drops the next one's packets.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers: list[socket.socket] = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        before = threading.active_count()
        run(trial(f"http://127.0.0.1:{listener.getsockname()[1]}"), loop)
        assert threading.active_count() <= before
        for filler in fillers:
            filler.close()
