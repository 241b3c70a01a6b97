"""A gateway to test from outside: our own data listener on a free port, before providers of the test's choice."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gateway.app import Options, Process
from gateway.config import load
from gateway.flow import DataApp
from gateway.keys import create_key
from gateway.recorder import Recorder
from gateway.serving import Listener, ServingHooks, ServingLimits, ServingSettings, address_of, bind
from ledger.spool import Spool
from ledger.store import Ledger, open_ledger

SECRETS = {"FAREGATE_KEY_SECRET": "k" * 32, "FAREGATE_ADMIN_SECRET": "a" * 32}
PROVIDER_KEY = "sk-provider-canary-0123456789abcdef"

PRICES = {"input": "2.50", "input_cached": "0.25", "cache_write_5m": "3.125", "output": "10.00"}


@dataclass(kw_only=True)
class Running:
    """A gateway that answers, and what it writes down."""

    base_url: str  # "http://127.0.0.1:PORT"
    key: str
    process: Process
    ledger: Ledger
    recorder: Recorder
    listener: Listener
    path: Path  # its faregate.toml

    @property
    def headers(self) -> dict[str, str]:
        """What a client sends with every request."""
        return {"authorization": f"Bearer {self.key}", "content-type": "application/json"}

    async def rows(self, table: str = "attempt") -> list[dict[str, Any]]:
        """The rows of a table once everything that is closed is in the ledger, in the order of their writing."""
        while self.recorder.stats().waiting:
            await asyncio.sleep(0.005)
        with self.ledger.reading() as connection:
            order = "admitted_at_ms, id" if table == "request" else "request_id, n"
            result = connection.exec_driver_sql(f"select * from {table} order by {order}")
            return [dict(row) for row in result.mappings()]


def toml(
    providers: Mapping[str, str],
    *,
    dialect: str = "openai",
    tiers: Mapping[str, Sequence[str]] | None = None,
    provider_lines: str = "",
    tier_lines: str = "",
    deployment_lines: Mapping[str, str] | None = None,
    more: str = "",
) -> str:
    """A file with one deployment for each provider (name -> base URL), in one tier `standard` unless told."""
    lines = [
        "schema = 1",
        "[gateway]",
        'listen = "127.0.0.1:0"',
        'admin_listen = "127.0.0.1:1"',
        'key_secret = { env = "FAREGATE_KEY_SECRET" }',
        'admin_secret = { env = "FAREGATE_ADMIN_SECRET" }',
        'default = "standard"',
    ]
    for name, base_url in providers.items():
        lines += [
            f"[providers.{name}]",
            f'dialect = "{dialect}"',
            f'base_url = "{base_url}"',
            'api_key = { env = "PROVIDER_KEY" }',
            provider_lines,
            f"[deployments.{name}]",
            f'provider = "{name}"',
            f'model = "model-{name}"',
            (deployment_lines or {}).get(name, ""),
            "[[prices]]",
            f'deployment = "{name}"',
            "from = 2026-01-01",
            'source = "a test"',
            "rates = { " + ", ".join(f'{rate} = "{price}"' for rate, price in PRICES.items()) + " }",
        ]
    for tier, deployments in (tiers or {"standard": list(providers)}).items():
        lines += [f"[tiers.{tier}]", f"deployments = {json.dumps(list(deployments))}", tier_lines]
    return "\n".join(lines) + "\n" + more


@asynccontextmanager
async def gateway(
    folder: Path,
    text: str,
    *,
    limits: ServingLimits | None = None,
    team: str = "search",
    retry_base_seconds: float = 0.002,
    key_options: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncGenerator[Running]:
    """Start it on a free port, and stop it with everything written down."""
    path = folder / "faregate.toml"
    path.write_text(
        text.replace('default = "standard"', f'default = "standard"\ndata_dir = "{folder}/data"', 1)
    )
    variables = {**SECRETS, "PROVIDER_KEY": PROVIDER_KEY, "FAREGATE_NAME_ATTEMPTS": "1", **(environ or {})}
    config = load(path, variables)
    (folder / "data").mkdir(exist_ok=True)
    ledger = open_ledger(f"sqlite:///{folder / 'data' / 'ledger.db'}")
    recorder = Recorder(ledger, Spool(folder / "data" / "spool"), pause_seconds=0.01)
    recorder.start()
    process = Process(str(path), variables, config, ledger, recorder, Options(log_fd=None))
    process.services.retry_base_seconds = retry_base_seconds
    key = create_key(ledger, config.gateway.key_secret, team=team, **(key_options or {})).key
    process.key_watch.look()
    await process.load_limits()
    socket = bind("127.0.0.1:0")
    settings = ServingSettings(limits=limits or ServingLimits())
    listener = Listener(
        DataApp(process.services), socket, settings=settings, hooks=ServingHooks(), lifespan=False
    )
    await listener.start()
    try:
        yield Running(
            base_url=f"http://{address_of(socket)}",
            key=key,
            process=process,
            ledger=ledger,
            recorder=recorder,
            listener=listener,
            path=path,
        )
    finally:
        await listener.stop(0.2)
        await process.close()
        recorder.close()
        ledger.close()


def client(running: Running) -> httpx.AsyncClient:
    """A plain HTTP client with the key."""
    return httpx.AsyncClient(base_url=running.base_url, headers=running.headers, timeout=20, trust_env=False)


def body(**more: Any) -> dict[str, Any]:
    """A small chat request."""
    return {
        "model": "standard",
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 64,
        **more,
    }
