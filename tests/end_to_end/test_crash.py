"""`kill -9` under load: nothing that was answered is lost, nothing is counted twice, what was in flight is seen."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from gateway.keys import create_key
from ledger.store import open_ledger
from ledger.verify import verify
from tests.end_to_end.faulty import run
from tests.end_to_end.harness import PRICES, PROVIDER_KEY, SECRETS, toml
from tests.end_to_end.raw import CHAT
from tests.end_to_end.served import Starter, free_ports, starter
from tests.fakes.provider import FakeProvider, Pace, Prices

CLIENTS = 8
ENVIRON = {**SECRETS, "PROVIDER_KEY": PROVIDER_KEY, "FAREGATE_NAME_ATTEMPTS": "1"}


@dataclass(kw_only=True)
class Load:
    """Clients that ask as fast as they are answered, and remember which answers they had whole."""

    url: str
    key: str
    answered: dict[str, int] = field(default_factory=dict[str, int])  # request id -> how often
    enough: asyncio.Condition = field(default_factory=asyncio.Condition)
    asked: int = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for n in range(CLIENTS):
                group.create_task(self._ask_on(n))

    async def until(self, more: int) -> None:
        """Wait for so many more whole answers."""
        goal = len(self.answered) + more
        async with self.enough:
            await self.enough.wait_for(lambda: len(self.answered) >= goal)

    async def _ask_on(self, n: int) -> None:
        headers = {"authorization": f"Bearer {self.key}"}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=20, trust_env=False) as http:
            while True:
                self.asked += 1
                body = {
                    "model": "standard",
                    "messages": [{"role": "user", "content": f"{n}: say hello {self.asked}."}],
                    "max_tokens": 64,
                    "stream": self.asked % 2 == 0,
                }
                try:
                    answer = await http.post(CHAT, content=json.dumps(body))
                except httpx.TransportError:
                    await asyncio.sleep(0.005)  # nobody is there until the next one has started
                    continue
                assert answer.status_code == 200, answer.text
                if body["stream"]:
                    assert answer.content.endswith(b"data: [DONE]\n\n")
                request_id = answer.headers["x-request-id"]
                self.answered[request_id] = self.answered.get(request_id, 0) + 1
                async with self.enough:
                    self.enough.notify_all()


@dataclass(kw_only=True)
class Scene:
    """What a crash needs."""

    folder: Path
    provider: FakeProvider
    starter: Starter
    load: Load
    config: Path
    port: int

    async def start(self) -> int:
        """A gateway over the same data."""
        return await self.starter.start(self.config, self.port)


@asynccontextmanager
async def scene(folder: Path) -> AsyncGenerator[Scene]:
    """A provider, a file, a key, and something that starts gateways."""
    prices = Prices(
        input=PRICES["input"],
        input_cached=PRICES["input_cached"],
        cache_write=PRICES["cache_write_5m"],
        output=PRICES["output"],
    )
    pace = Pace(first_token_seconds=0.002, gap_seconds=0.001)
    async with FakeProvider(default_prices=prices, pace=pace) as provider, starter(ENVIRON) as starts:
        port, admin_port = free_ports(2)
        text = toml({"a": provider.base_url})
        text = text.replace("127.0.0.1:0", f"127.0.0.1:{port}").replace(
            "127.0.0.1:1", f"127.0.0.1:{admin_port}", 1
        )
        text = text.replace("[gateway]", f'[gateway]\ndata_dir = "{folder}/data"', 1)
        config = folder / "faregate.toml"
        config.write_text(text)
        (folder / "data").mkdir()
        ledger = open_ledger(f"sqlite:///{folder}/data/ledger.db")
        key = create_key(ledger, SECRETS["FAREGATE_KEY_SECRET"], team="search").key
        ledger.close()
        yield Scene(
            folder=folder,
            provider=provider,
            starter=starts,
            load=Load(url=f"http://127.0.0.1:{port}", key=key),
            config=config,
            port=port,
        )


async def kill_again_and_again(made: Scene, times: int, random: Random) -> None:
    """Under load, at random moments; then one more start, which ends in an orderly way."""
    load = asyncio.create_task(made.load.run())
    for _ in range(times):
        pid = await made.start()
        await unless_ended(load, made.load.until(random.randint(0, 40)))
        await asyncio.sleep(random.uniform(0.0, 0.02))
        await made.starter.kill(pid)
    load.cancel()
    await asyncio.wait([load])
    await made.provider.no_open_requests()
    assert await made.starter.stop(await made.start()) == 0


async def unless_ended(load: asyncio.Task[None], waiting: Coroutine[Any, Any, None]) -> None:
    """Wait, but not for the answers of a load that ended over a bad one."""
    task = asyncio.create_task(waiting)
    done, _ = await asyncio.wait({task, load}, return_when=asyncio.FIRST_COMPLETED)
    if load in done:
        task.cancel()
        load.result()
    await task


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    ledger = open_ledger(f"sqlite:///{folder}/data/ledger.db")
    try:
        with ledger.reading() as connection:
            return [dict(row) for row in connection.exec_driver_sql(f"select * from {table}").mappings()]
    finally:
        ledger.close()


def assert_the_books_are_right(made: Scene) -> dict[str, int]:
    """Every request in its place; how many ended how."""
    ledger = open_ledger(f"sqlite:///{made.folder}/data/ledger.db")
    assert verify(ledger) == []
    ledger.close()
    requests = {row["id"]: row for row in rows(made.folder, "request")}
    attempts = {f"{row['request_id']}.{row['n']}": row for row in rows(made.folder, "attempt")}
    bill = made.provider.bill()

    assert set(made.load.answered.values()) == {1}
    assert not set(made.load.answered) - set(requests)  # none lost
    assert {requests[one]["state"] for one in made.load.answered} == {"answered"}
    assert not set(bill) - set(attempts)  # what a provider saw has a row
    for name, row in attempts.items():
        if row["state"] == "settled":
            assert row["cost_pico_usd"] == bill[name]
        else:  # in flight when its process ended, or when its client had lost the process before
            assert (row["state"], row["failure"]) == ("estimated", "interrupted"), row
            assert row["cost_pico_usd"] > 0
            assert requests[row["request_id"]]["state"] == "failed"
    assert sum(row["cost_pico_usd"] for row in requests.values()) == sum(
        row["cost_pico_usd"] for row in attempts.values()
    )
    (total,) = rows(made.folder, "(select sum(requests) as requests from day_total)")
    assert total["requests"] == len(requests)
    left = [path for path in (made.folder / "data" / "spool").iterdir() if path.name.startswith("refused")]
    assert left == []
    states = [row["state"] for row in requests.values()]
    return {state: states.count(state) for state in set(states)}


def test_three_kills_under_load_lose_nothing_and_double_nothing(tmp_path: Path) -> None:  # limit 5
    async def work() -> None:
        async with scene(tmp_path) as made:
            await kill_again_and_again(made, 3, Random(1))
            found = assert_the_books_are_right(made)
            assert found["answered"] >= len(made.load.answered) > 0
            assert found["failed"] > 0  # in flight at a kill: the clients never rest

    run(work(), within_seconds=60)


@pytest.mark.slow
def test_a_hundred_kills_under_load_lose_nothing_and_double_nothing(tmp_path: Path) -> None:  # limit 5
    async def work() -> None:
        async with scene(tmp_path) as made:
            await kill_again_and_again(made, 100, Random(2))
            assert_the_books_are_right(made)

    run(work(), within_seconds=300)
