"""A caller of the fake provider that shows the bytes as they came, and plays with both."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from tests.fakes.provider import FakeProvider, Prices

PRICES = {
    "m": Prices(input="1.25", input_cached="0.125", output="10"),
    "other": Prices(input="3", output="15"),
}
CLOCK = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


class Caller:
    """A caller that shows the bytes as they came."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, provider: FakeProvider) -> "Caller":
        return cls(*await asyncio.open_connection(provider.host, provider.port))

    def ask(
        self, body: object = None, *, path: str = "/v1/chat/completions", method: str = "", **headers: str
    ) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1", "host: fake"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(content)}", "", ""]
        self.writer.write("\r\n".join(lines).encode() + content)

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = raw.strip().split("\r\n")
        return int(first.split(" ")[1]), dict(line.lower().split(": ", 1) for line in lines)

    async def pieces(self) -> list[bytes]:
        """The chunks of a chunked body, to its end."""
        made: list[bytes] = []
        while size := int(await self.reader.readline(), 16):
            made.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return made

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        status, headers = await self.head()
        if "content-length" in headers:
            return status, headers, await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, b"".join(await self.pieces())
        return status, headers, await self.reader.read()

    async def until_reset(self) -> bytes:
        """What comes before the connection is reset."""
        got = b""
        try:
            while piece := await self.reader.read(65_536):
                got += piece
        except ConnectionResetError:
            return got
        raise AssertionError("the connection came to an orderly end")

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello " * 40}]} | more


def streamed(**more: Any) -> dict[str, Any]:
    return chat(stream=True, stream_options={"include_usage": True}, **more)


def with_provider(play: Callable[[FakeProvider, Caller], Awaitable[None]], **settings: Any) -> None:
    """Run a play against a provider, with one caller connected; nothing may take more than ten seconds."""

    async def run() -> None:
        async with FakeProvider(prices=PRICES, now=lambda: CLOCK, **settings) as provider:
            caller = await Caller.to(provider)
            try:
                await asyncio.wait_for(play(provider, caller), 10)
            finally:
                await caller.close()

    asyncio.run(run())


def payloads(body: bytes) -> list[Any]:
    """The JSON of each event but [DONE], for the plain spelling."""
    lines = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def text_of(body: bytes) -> str:
    choices = [c for one in payloads(body) for c in one["choices"]]
    return "".join(c["delta"].get("content") or "" for c in choices)
