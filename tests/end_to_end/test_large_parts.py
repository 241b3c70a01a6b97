"""The parts of docker-compose.yml, started by hand: two gateways over one PostgreSQL and one Redis, and the pages.

The gateways run with deploy/faregate.toml; only addresses, the data folder, a budget and prices are the test's.
"""

import asyncio
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from faregate.cli import main
from ledger.store import open_ledger
from pricing.money import PICO_PER_USD, usd_text
from tests.end_to_end.faulty import run
from tests.end_to_end.harness import PRICES, PROVIDER_KEY, SECRETS
from tests.end_to_end.raw import CHAT
from tests.end_to_end.served import Starter, free_ports, starter
from tests.fakes.provider import FakeProvider, Prices
from tests.gateway.shared_state.redis_server import Server, start, stop
from tests.ledger.conftest import a_database
from tests.ledger.postgres import postgres_server

REPO = Path(__file__).parents[2]
OUTPUT = 64
BODY = json.dumps(
    {"model": "standard", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": OUTPUT}
).encode()
WORST_CASE = len(BODY) * 3_125_000 + OUTPUT * 10_000_000
"""What is held for the body: every byte a token of the dearest input, and the whole output."""

pytestmark = pytest.mark.slow  # PostgreSQL alone takes seconds to start


@pytest.fixture(scope="module")
def postgres() -> Generator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture
def ledger_url(postgres: str) -> Generator[str]:
    with a_database(postgres) as url:
        yield url


@dataclass(kw_only=True)
class Gateway:
    """One `faregate serve`."""

    config: Path
    port: int
    admin_port: int
    pid: int = 0

    async def ready(self) -> tuple[int, list[str]]:
        """What /ready says: the status, and why not."""
        answer = await self._get("/ready")
        return answer.status_code, answer.json()["because"]

    async def metric(self, line: str) -> float:
        """One sample of /metrics, by its name and labels."""
        text = (await self._get("/metrics")).text
        found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
        assert found is not None, line
        return float(found[1])

    async def ask(self, key: str) -> httpx.Response:
        """One chat request."""
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
            return await http.post(f"http://127.0.0.1:{self.port}{CHAT}", content=BODY, headers=headers)

    async def _get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
            return await http.get(f"http://127.0.0.1:{self.admin_port}{path}")


@dataclass(kw_only=True)
class Parts:
    """Everything that runs."""

    folder: Path
    environ: Mapping[str, str]
    provider: FakeProvider
    starter: Starter
    gateways: list[Gateway]
    redis: Server

    async def start(self) -> None:
        """Start the gateways; they take connections when this returns."""
        for one in self.gateways:
            one.pid = await self.starter.start(one.config, one.port)

    async def stop(self) -> None:
        """SIGTERM to each; each exits 0 and has told the ledger everything."""
        for one in self.gateways:
            assert await self.starter.stop(one.pid) == 0


def config_text(provider_url: str, data: Path, port: int, admin_port: int, limit: int) -> str:
    """deploy/faregate.toml with what a test must say differently."""
    text = (REPO / "deploy/faregate.toml").read_text()
    changes = {
        r'"0\.0\.0\.0:8080"': f'"127.0.0.1:{port}"',
        r'"0\.0\.0\.0:8081"': f'"127.0.0.1:{admin_port}"',
        r'"/var/lib/faregate"': f'"{data}"',
        r'base_url = "https://api\.openai\.com/v1"': f'base_url = "{provider_url}"',
        r"limit_usd = 500\.00": f"limit_usd = {usd_text(limit)}",
    }
    for before, after in changes.items():
        text, times = re.subn(before, after, text)
        assert times == 1, before
    rates = ", ".join(f'{rate} = "{price}"' for rate, price in PRICES.items())
    for name in ("terra", "luna"):
        text += f'[[prices]]\ndeployment = "{name}"\nfrom = 2026-01-01\nsource = "a test"\nrates = {{ {rates} }}\n'
    return text


@asynccontextmanager
async def parts(
    folder: Path, ledger_url: str, *, gateways: int = 2, limit: int = 500 * PICO_PER_USD
) -> AsyncGenerator[Parts]:
    """A provider, a Redis, and gateways that are not started yet."""
    prices = Prices(
        input=PRICES["input"],
        input_cached=PRICES["input_cached"],
        cache_write=PRICES["cache_write_5m"],
        output=PRICES["output"],
    )
    redis_port, *ports = free_ports(1 + 2 * gateways)
    redis = start(folder, redis_port)
    environ = {
        **SECRETS,
        "LEDGER_URL": ledger_url,
        "REDIS_URL": redis.url,
        "OPENAI_API_KEY": PROVIDER_KEY,
        "FAREGATE_NAME_ATTEMPTS": "1",
    }
    try:
        async with FakeProvider(default_prices=prices) as provider, starter(environ) as starts:
            made: list[Gateway] = []
            for n in range(gateways):
                port, admin_port = ports[2 * n : 2 * n + 2]
                config = folder / f"faregate-{n}.toml"
                config.write_text(
                    config_text(provider.base_url, folder / f"data-{n}", port, admin_port, limit)
                )
                made.append(Gateway(config=config, port=port, admin_port=admin_port))
            yield Parts(
                folder=folder,
                environ=environ,
                provider=provider,
                starter=starts,
                gateways=made,
                redis=redis,
            )
    finally:
        stop(redis)


async def command(monkeypatch: pytest.MonkeyPatch, made: Parts, *arguments: str) -> int:
    """A command of ours beside the running gateways, with their environment."""
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    return await asyncio.to_thread(main, list(arguments))


async def create_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made: Parts) -> str:
    """`faregate keys create`, as the compose file's head says it."""
    capsys.readouterr()
    config = str(made.gateways[0].config)
    assert await command(monkeypatch, made, "keys", "create", "--config", config, "--team", "search") == 0
    return capsys.readouterr().out.strip()


async def until_ready(made: Parts) -> None:
    """Wait for all of them."""
    for one in made.gateways:
        while (await one.ready())[0] != 200:
            await asyncio.sleep(0.05)  # another process; nothing tells us


async def until_known(made: Parts, key: str) -> None:
    """Wait until every gateway knows a key, each looks by itself; each has answered once then."""
    for one in made.gateways:
        while (answer := await one.ask(key)).status_code == 401:
            await asyncio.sleep(0.1)
        assert answer.status_code == 200


async def until_degraded(one: Gateway, value: float) -> None:
    """Wait until a gateway says that Redis is away, or back."""
    while await one.metric('faregate_degraded{dependency="redis"}') != value:
        await asyncio.sleep(0.05)


def rows(ledger_url: str, table: str = "attempt") -> list[dict[str, object]]:
    """A table's rows."""
    ledger = open_ledger(ledger_url)
    try:
        with ledger.reading() as connection:
            return [dict(row) for row in connection.exec_driver_sql(f"select * from {table}").mappings()]
    finally:
        ledger.close()


def test_two_gateways_share_a_budget_and_a_ledger(
    tmp_path: Path,
    ledger_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    limit = 4 * WORST_CASE

    async def work() -> None:
        async with parts(tmp_path, ledger_url, limit=limit) as made:
            await made.start()
            await until_ready(made)
            for one in made.gateways:
                address = f"127.0.0.1:{one.admin_port}"
                assert await command(monkeypatch, made, "health", "--address", address) == 0
            key = await create_key(monkeypatch, capsys, made)
            await until_known(made, key)

            answers = await asyncio.gather(*(one.ask(key) for _ in range(20) for one in made.gateways))
            assert {answer.status_code for answer in answers} <= {200, 429}
            while (
                sum(made.provider.bill().values()) <= limit - WORST_CASE
            ):  # new counters are trusted after a second
                for one in made.gateways:
                    await one.ask(key)
            for one in made.gateways:
                answer = await one.ask(key)
                assert (answer.status_code, answer.json()["error"]["code"]) == (429, "budget_exceeded")
            await made.stop()

            assert await command(monkeypatch, made, "ledger", "verify", "--ledger", ledger_url) == 0
            attempts = {f"{row['request_id']}.{row['n']}": row["cost_pico_usd"] for row in rows(ledger_url)}
            assert attempts == made.provider.bill()
            spent = sum(made.provider.bill().values())
            assert limit - WORST_CASE < spent <= limit
            assert all(list((tmp_path / f"data-{n}" / "spool").iterdir()) == [] for n in range(2))

    run(work(), within_seconds=60)


def test_without_redis_each_gateway_goes_on_from_its_share(
    tmp_path: Path,
    ledger_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def work() -> None:
        async with parts(tmp_path, ledger_url) as made:
            await made.start()
            key = await create_key(monkeypatch, capsys, made)
            await until_known(made, key)
            for one in made.gateways:
                await until_degraded(one, 0.0)
            stop(made.redis)
            for one in made.gateways:
                assert (await one.ask(key)).status_code == 200
                await until_degraded(one, 1.0)
                assert (await one.ask(key)).status_code == 200
                assert (await one.ready())[0] == 200
            made.redis = start(tmp_path, int(made.redis.url.rpartition(":")[2].partition("/")[0]))
            try:
                for one in made.gateways:
                    await until_degraded(one, 0.0)
                    assert (await one.ask(key)).status_code == 200
                await made.stop()
            finally:
                stop(made.redis)
            assert await command(monkeypatch, made, "ledger", "verify", "--ledger", ledger_url) == 0
            assert len(rows(ledger_url)) == len(made.provider.bill())

    run(work(), within_seconds=60)


def test_started_without_postgresql_and_redis_it_becomes_ready_when_they_are_there(  # P10
    ledger_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fg-", dir="/tmp"))  # a socket's path must be short
    before, _, sockets = ledger_url.partition("?host=")
    link = folder / "pg"

    async def work() -> None:
        async with parts(folder, f"{before}?host={link}", gateways=1) as made:
            stop(made.redis)
            await made.start()
            (one,) = made.gateways
            assert await one.ready() == (503, ["ledger"])
            assert await command(monkeypatch, made, "health", "--address", f"127.0.0.1:{one.admin_port}") == 1
            assert await one.metric('faregate_degraded{dependency="ledger"}') == 1.0
            assert (await one.ask("fg-of-nobody")).status_code == 401

            link.symlink_to(sockets)
            made.redis = start(folder, int(made.redis.url.rpartition(":")[2].partition("/")[0]))
            try:
                came_back = time.monotonic()
                await until_ready(made)
                assert time.monotonic() - came_back < 5
                key = await create_key(monkeypatch, capsys, made)
                await until_known(made, key)
                await until_degraded(one, 0.0)
                await made.stop()
            finally:
                stop(made.redis)
            assert len(rows(ledger_url)) == len(made.provider.bill()) == 1
            assert len(rows(ledger_url, "config_version")) == 1

    try:
        run(work(), within_seconds=60)
    finally:
        shutil.rmtree(folder)


def test_the_dashboard_answers_over_postgresql(ledger_url: str) -> None:
    open_ledger(ledger_url).close()
    (port,) = free_ports(1)

    async def work() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "faregate", "dashboard", "--ledger", ledger_url, "--port", str(port)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
                for path in ("/_stcore/health", "/"):
                    answer = await until_answered(http, path, lambda: process.returncode is None)
                    assert answer.status_code == 200
        finally:
            process.terminate()
            await process.wait()

    run(work(), within_seconds=60)


async def until_answered(http: httpx.AsyncClient, path: str, lives: Callable[[], bool]) -> httpx.Response:
    """The first answer of a process that is still starting."""
    while True:
        try:
            return await http.get(path)
        except httpx.ConnectError:
            assert lives()
            await asyncio.sleep(0.1)
