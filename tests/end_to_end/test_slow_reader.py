"""A client that reads slowly costs the gateway next to no memory, and slows its provider (limit 15, scaled)."""

import asyncio
from pathlib import Path

import pytest

from gateway.keys import create_key
from ledger.store import open_ledger
from tests.end_to_end.faulty import run
from tests.end_to_end.harness import PROVIDER_KEY, SECRETS, toml
from tests.end_to_end.raw import CHAT, chat_body, request
from tests.end_to_end.served import free_ports, starter
from tests.fakes.provider import FakeProvider

SIZE = 20_000_000
MOST_KIB = 1024


def resident_kib(pid: int, which: str = "VmHWM") -> int:
    """What the process has in memory now (`VmRSS`), or had at most (`VmHWM`)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(which + ":")).split()[1])


@pytest.mark.slow
def test_a_stream_that_is_not_read_is_not_kept(tmp_path: Path) -> None:  # C7
    async def work() -> None:
        port, admin_port = free_ports(2)
        async with FakeProvider() as provider, starter({**SECRETS, "PROVIDER_KEY": PROVIDER_KEY}) as starts:
            text = toml({"a": provider.base_url}).replace("127.0.0.1:0", f"127.0.0.1:{port}")
            text = text.replace('127.0.0.1:1"', f'127.0.0.1:{admin_port}"', 1)
            text = text.replace("[gateway]", f'[gateway]\ndata_dir = "{tmp_path}/data"', 1)
            (tmp_path / "faregate.toml").write_text(text)
            (tmp_path / "data").mkdir()
            ledger = open_ledger(f"sqlite:///{tmp_path}/data/ledger.db")
            key = create_key(ledger, SECRETS["FAREGATE_KEY_SECRET"], team="search").key
            ledger.close()
            pid = await starts.start(tmp_path / "faregate.toml", port)

            async def stream(tag: str, size: int, *, slow: bool) -> int:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=16_384)
                writer.write(request(chat_body(tag, fault=f"flood:{size}", stream=True), path=CHAT, key=key))
                got, last = 0, b""
                if slow:
                    got += len(await reader.readexactly(10))
                    sent = -1
                    while sent != (sent := provider.requests(tag)[-1].bytes_sent):
                        await asyncio.sleep(0.5)  # until nobody takes any more
                    assert sent < size
                while not last.endswith(b"0\r\n\r\n"):
                    piece = await reader.read(1 << 16)
                    assert piece
                    got += len(piece)
                    last = (last + piece)[-64:]
                writer.close()
                await writer.wait_closed()
                return got

            for n in range(3):  # what a first stream leaves behind is no growth
                await stream(f"warm{n}", SIZE, slow=False)
            before = resident_kib(pid)
            assert await stream("slow", SIZE, slow=True) > SIZE
            assert resident_kib(pid) - before <= MOST_KIB
            assert await starts.stop(pid) == 0

    run(work(), within_seconds=60)
