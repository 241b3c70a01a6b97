"""A gateway before two fake providers that fail on demand, and what must be true of it after every fault."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar, cast

import httpx
import pytest
import uvloop

from gateway.journal import Journal
from gateway.serving import ServingLimits
from gateway.upstream import Upstream
from ledger.store import open_ledger
from tests.end_to_end.harness import PRICES, PROVIDER_KEY, Running, gateway, toml
from tests.fakes.provider import FakeProvider, Pace, Prices, TlsKind

T = TypeVar("T")
Client = Literal["own", "httpx"]

CANARY_PROMPT = "canary-prompt-7f3a: say hello."
CANARY_ANSWER = "canary-answer-text"
ALONE = {"standard": ["a"]}
both_clients = pytest.mark.parametrize("kind", ["own", "httpx"])
own_first = pytest.mark.parametrize("kind", ["own", pytest.param("httpx", marks=pytest.mark.slow)])
"""Where what is tested does not depend on the client, the second one is left to the long suite."""


def run(work: Coroutine[Any, Any, T], *, within_seconds: float = 15.0) -> T:
    """Run it to its end on the loop of the product, but not for ever."""

    async def limited() -> T:
        return await asyncio.wait_for(work, within_seconds)

    return uvloop.run(limited())


@dataclass(kw_only=True)
class Answer:
    """One answer as it came over the wire."""

    status: int
    headers: httpx.Headers
    body: bytes
    whole: bool = True  # False: the connection closed before the body's end

    @property
    def attempts(self) -> int:
        """How many upstream attempts it says were made."""
        return int(self.headers["x-faregate-attempts"])

    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    def error(self) -> tuple[int, str, str]:
        """Status, type and code of an error."""
        error = self.json()["error"]
        assert isinstance(error["message"], str)
        return self.status, error["type"], error["code"]

    @property
    def events(self) -> list[Any]:
        """The payloads of a stream's events; `[DONE]` as text."""
        text = self.body.decode().replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
        payloads: list[str] = []
        for event in text.split("\n\n"):
            lines = [line[5:].removeprefix(" ") for line in event.split("\n") if line.startswith("data:")]
            if lines:
                payloads.append("\n".join(lines))
        return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]

    def stream_error(self) -> tuple[str, str]:
        """Type and code of the error that ended a stream, which was not ended as if it were whole."""
        assert self.status == 200
        assert not self.whole
        assert "[DONE]" not in self.events
        error = self.events[-1]["error"]
        return error["type"], error["code"]

    def text(self) -> str:
        """All content of a stream or of a whole answer's first choice."""
        if not self.headers["content-type"].startswith("text/event-stream"):
            return self.json()["choices"][0]["message"]["content"]
        return "".join(
            choice["delta"].get("content") or ""
            for event in self.events
            if event != "[DONE]" and "error" not in event
            for choice in event["choices"]
        )

    def roles(self) -> int:
        """How many of a stream's events announce the role."""
        return self.body.count(b'"role":"assistant"')


@dataclass(kw_only=True)
class Setting:
    """A gateway, its providers, a client, and what they wrote."""

    running: Running
    a: FakeProvider
    b: FakeProvider
    http: httpx.AsyncClient
    folder: Path
    answers: list[Answer] = field(default_factory=list[Answer])

    async def ask(
        self, *, stream: bool = False, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Answer:
        """One chat request with the canary prompt in it."""
        body: dict[str, Any] = {
            "model": "standard",
            "messages": [{"role": "user", "content": CANARY_PROMPT}],
            "max_tokens": 64,
            **more,
        }
        if stream:
            body["stream"] = True
        return await self.send("/v1/chat/completions", json.dumps(body).encode(), headers=headers)

    async def send(
        self, path: str, body: bytes, *, method: str = "POST", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request of any kind."""
        got = bytearray()
        whole = True
        async with self.http.stream(method, path, content=body, headers=dict(headers or {})) as response:
            try:
                async for piece in response.aiter_raw():
                    got += piece
            except httpx.RemoteProtocolError:
                whole = False
        answer = Answer(status=response.status_code, headers=response.headers, body=bytes(got), whole=whole)
        self.answers.append(answer)
        return answer

    async def attempts(self) -> list[dict[str, Any]]:
        """The attempt rows, in the order they were made."""
        return await self.running.rows("attempt")

    async def states(self) -> list[tuple[str, str, str | None]]:
        """Deployment, state and failure of each attempt."""
        return [(row["deployment"], row["state"], row["failure"]) for row in await self.attempts()]

    async def request_row(self) -> dict[str, Any]:
        """The one request's row."""
        (row,) = await self.running.rows("request")
        return row

    async def log(self) -> list[dict[str, Any]]:
        """The lines of the log so far."""
        self.running.process.journal.close()
        lines = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        return cast("list[dict[str, Any]]", lines)

    async def warnings(self) -> list[tuple[str, str]]:
        """Deployment and failure of each warning about an attempt."""
        return [
            (line["deployment"], line["failure"])
            for line in await self.log()
            if line["event"] == "attempt_failed"
        ]

    def metric(self, name: str) -> int:
        """The sum of a counter's series."""
        text = self.running.process.metrics.render().decode()
        lines = [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines)

    def put_upstream(self, deployment: str, upstream: Upstream) -> Upstream:
        """Reach a deployment another way; the old one is handed back, to be closed."""
        live = self.running.process.services.live
        target = live.targets[deployment]
        live.targets[deployment] = replace(target, upstream=upstream)
        return target.upstream


@asynccontextmanager
async def setting(
    folder: Path,
    *,
    kind: Client = "own",
    dialect: str = "openai",
    alone: bool = False,
    lines: str = "",
    tier: str = "",
    more: str = "",
    urls: Mapping[str, str] | None = None,
    tls: TlsKind | None = None,
    pace: Pace | None = None,
    deployment_lines: Mapping[str, str] | None = None,
    retry_base_seconds: float = 0.002,
    retry_wait_seconds: float = 0.05,
    answer_tokens: int = 8,
    limits: ServingLimits | None = None,
) -> AsyncGenerator[Setting]:
    """Tier `standard` has deployments a, then b (`alone`: only a). `urls` puts something else in their place.

    At the end the books must agree with the providers' bills, nothing may be held or open, and no secret and no
    prompt may stand in anything that was written.
    """
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "data" / "ledger.db").write_bytes(_empty_ledger())
    async with AsyncExitStack() as stack:
        prices = Prices(
            input=PRICES["input"],
            input_cached=PRICES["input_cached"],
            cache_write=PRICES["cache_write_5m"],
            output=PRICES["output"],
        )
        a, b = [
            await stack.enter_async_context(
                FakeProvider(
                    name=name,
                    default_prices=prices,
                    api_key=PROVIDER_KEY,
                    answer_tokens=answer_tokens,
                    pace=pace or Pace(),
                    tls=tls if name == "a" else None,
                )
            )
            for name in ("a", "b")
        ]
        text = toml(
            {"a": a.base_url, "b": b.base_url, **(urls or {})},
            dialect=dialect,
            tiers=ALONE | {"other": ["b"]} if alone else {"standard": ["a", "b"]},
            provider_lines=f'client = "{kind}"\n{lines}',
            tier_lines=tier,
            deployment_lines=deployment_lines,
            more=more,
        )
        if a.ca_file:
            text = text.replace("[deployments.a]", f'ca_file = "{a.ca_file}"\n[deployments.a]', 1)
        async with gateway(folder, text, retry_base_seconds=retry_base_seconds, limits=limits) as running:
            services = running.process.services
            services.retry_wait_seconds = retry_wait_seconds
            log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            stack.callback(os.close, log)
            running.process.journal = Journal(log)
            services.warn = running.process.journal.event
            async with httpx.AsyncClient(
                base_url=running.base_url, headers=running.headers, timeout=20, trust_env=False, verify=False
            ) as http:
                made = Setting(running=running, a=a, b=b, http=http, folder=folder)
                yield made
                await assert_books_agree(running, a, b)
                nothing_is_held(running)
                await made.log()
            no_secrets(made, await running.rows("attempt") + await running.rows("request"))


@cache
def _empty_ledger() -> bytes:
    """An empty ledger's file; making one takes longer than most tests here."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        open_ledger(f"sqlite:///{path}").close()
        return path.read_bytes()


async def assert_books_agree(running: Running, *fakes: FakeProvider) -> None:
    """Each settled row costs what its provider would charge, and what a provider billed has a row."""
    rows = {f"{row['request_id']}.{row['n']}": row for row in await running.rows("attempt")}
    charges = {name: charge for fake in fakes for name, charge in fake.charges.items()}
    for name, row in rows.items():
        if "unmetered" in row["flags"]:
            assert row["cost_pico_usd"] is None
            continue
        assert row["cost_pico_usd"] is not None
        if row["state"] == "settled":
            assert (name, row["cost_pico_usd"]) == (name, charges[name].pico_usd)
        elif row["state"] == "unbilled":
            assert row["cost_pico_usd"] == 0
    assert not set(charges) - set(rows)
    requests = await running.rows("request")
    assert sum(row["cost_pico_usd"] or 0 for row in requests) == sum(
        row["cost_pico_usd"] or 0 for row in rows.values()
    )


def nothing_is_held(running: Running) -> None:
    """Every request is closed, and no money is held for one."""
    assert running.recorder.stats().open == 0
    for standing in running.process.state.standings(0.0):
        assert standing.held == 0


def no_secrets(made: Setting, rows: Sequence[Mapping[str, Any]]) -> None:
    """No key, prompt or answer in a row, in the log, in a metric, in an error or on the disk."""
    running = made.running
    secrets = [PROVIDER_KEY, PROVIDER_KEY[-8:], running.key, CANARY_PROMPT, CANARY_ANSWER]
    written = [
        repr(rows),
        running.process.metrics.render().decode(),
        *(path.read_bytes().decode("latin-1") for path in made.folder.rglob("*") if path.is_file()),
    ]
    for answer in made.answers:
        written.append(repr(answer.headers))
        if answer.status != 200:
            written.append(answer.body.decode())
    for secret in secrets:
        for text in written:
            assert secret not in text


def settled(name: str) -> tuple[str, str, None]:
    """A good attempt, as `Setting.states` shows it."""
    return name, "settled", None
