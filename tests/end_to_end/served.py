"""`faregate serve` in processes of its own: real ones, forked off one that has imported everything already.

    python tests/end_to_end/served.py

Reads lines: `start CONFIG` forks a process that runs the command and says its number; `kill PID` and `stop PID`
send SIGKILL or SIGTERM, wait for its end, and say how it ended.
"""

import asyncio
import gc
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

NEEDED = (
    "uvloop",
    "faregate.secrets_file",
    "gateway.app",
    "litestar.plugins.attrs",
    "litestar.plugins.pydantic",
    "anyio._backends._asyncio",
)
"""What a gateway imports at its start; imported once here, as it takes longer than most gateways live."""


@dataclass(kw_only=True)
class Starter:
    """Starts and ends gateways."""

    process: asyncio.subprocess.Process

    async def _say(self, line: str) -> int:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line.encode() + b"\n")
        return int(await stdout.readline())

    async def start(self, config: Path, port: int) -> int:
        """Start one and wait until it takes connections; its process id."""
        pid = await self._say(f"start {config}")
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.005)
            else:
                writer.close()
                await writer.wait_closed()
                return pid

    async def kill(self, pid: int) -> None:
        """SIGKILL; it is gone when this returns."""
        assert await self._say(f"kill {pid}") == -signal.SIGKILL

    async def stop(self, pid: int) -> int:
        """SIGTERM; its exit code."""
        return await self._say(f"stop {pid}")


@asynccontextmanager
async def starter(environ: dict[str, str]) -> AsyncGenerator[Starter]:
    """Something that starts gateways with this environment."""
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(root), **environ},
    )
    try:
        yield Starter(process=process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def free_ports(count: int) -> list[int]:
    """Ports that nobody has just now, nor gets by chance.

    They are below those that the system gives to whoever calls: else a call to a gateway that is not up yet can
    have the very port it calls, and reach itself.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.randint(20_000, 32_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        if port not in ports:
            ports.append(port)
    return ports


def main() -> None:
    """Until standard input ends; what still runs then is killed."""
    for name in NEEDED:
        import_module(name)
    faregate = import_module("faregate.cli").main

    running: set[int] = set()
    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        if word == "start":
            if not running and gc.get_freeze_count() == 0:
                import_module("gateway.config").load(argument, os.environ)  # with it the price book is read
                gc.freeze()
            pid = os.fork()
            if pid == 0:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, 0)
                os.dup2(nothing, 1)
                os._exit(faregate(["serve", "--config", argument]))
            running.add(pid)
            print(pid, flush=True)
        else:
            pid = int(argument)
            os.kill(pid, signal.SIGKILL if word == "kill" else signal.SIGTERM)
            running.discard(pid)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
