"""`faregate run` as a person starts it: a process of its own in an empty folder, and `faregate keys` beside it."""

import json
import os
import queue
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from dashboard.place import LEDGER
from faregate.cli import main
from faregate.run import dashboard_command, dashboard_environment

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "faregate.example.toml"
NOT_OURS = re.compile(r"_API_KEY$|^FAREGATE_|^LEDGER_URL$|^REDIS_URL$|_proxy$", re.IGNORECASE)
PATIENCE_SECONDS = 60.0  # on a machine with much else to do; nothing waits this long on a good day


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    assert isinstance(port, int)
    return port


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not NOT_OURS.search(name)}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **changes}


class Running:
    """A started `faregate run`, and what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._coming: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._coming.put(line.rstrip("\n"))
        self._coming.put(None)

    def until(self, wanted: Callable[[str], object]) -> str:
        """The next line that is wanted. All that are read are kept in `lines`."""
        while True:
            line = self._coming.get(timeout=PATIENCE_SECONDS)
            assert line is not None, "\n".join(["it ended before it said that:", *self.lines])
            self.lines.append(line)
            if wanted(line):
                return line

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def base_url(self) -> str:
        found = re.search(r"base URL +(\S+)", self.text)
        assert found
        return found[1]

    @property
    def key(self) -> str:
        found = re.search(r"OPENAI_API_KEY=(\S+)", self.text)
        assert found
        return found[1]

    @property
    def cpu_seconds(self) -> float:
        """What it has computed so far: unlike the time that passed, no business of its neighbours."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def interrupt(self) -> int:
        """Ctrl-C; gives the exit code once everything it said was read."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=PATIENCE_SECONDS)
        self._reader.join()
        while (line := self._coming.get_nowait()) is not None:
            self.lines.append(line)
        return code

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def running(folder: Path, environ: Mapping[str, str]) -> Generator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-m", "faregate", "run", "--no-dashboard"],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    found = Running(process)
    try:
        found.until(lambda line: line.startswith("Receipts:"))
        yield found
    finally:
        found.end()


def printed_request(text: str) -> httpx.Request:
    """The `curl` line of the banner, as the request it sends."""
    begin = text.index("  curl ")
    words = shlex.split(text[begin : text.index("\n\n", begin)].replace("\\\n", " "))
    url = next(word for word in words if word.startswith("http"))
    headers = dict(words[at + 1].split(": ", 1) for at in range(len(words)) if words[at] == "-H")
    return httpx.Request("POST", url, headers=headers, content=words[words.index("-d") + 1])


def printed_program(text: str) -> str:
    """The Python snippet of the banner, as it stands there."""
    begin = text.index("\n\n", text.index("or in Python")) + 2
    return text[begin : text.index("\n\n", begin)]


def is_receipt(line: str) -> bool:
    return re.match(r"\d{3}  ", line) is not None


def modes(folder: Path) -> dict[str, int]:
    found = {".": folder.stat().st_mode & 0o777}
    for path in folder.rglob("*"):
        found[str(path.relative_to(folder))] = path.stat().st_mode & 0o777
    return found


def test_the_dashboards_ledger_is_on_no_command_line() -> None:
    url = "postgresql://faregate:password@db/ledger"

    environ = dashboard_environment(url, {"PATH": "/bin", LEDGER: "another"})

    assert environ == {"PATH": "/bin", LEDGER: url}
    assert not [word for word in dashboard_command(8501) if word.startswith("postgresql:")]
    assert "--ledger" not in dashboard_command(8501)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = EXAMPLE.read_text(encoding="utf-8")
    for port in ("127.0.0.1:8080", "127.0.0.1:8081"):
        assert port in text
        text = text.replace(port, f"127.0.0.1:{free_port()}")
    (tmp_path / "faregate.toml").write_text(text, encoding="utf-8")
    return tmp_path


def until(status: Callable[[], int], wanted: int) -> float:
    """Ask again and again until it is so; the seconds that were waited, without what a busy machine adds."""
    pause = threading.Event()
    waited = 0.0
    while (found := status()) != wanted:
        assert waited < PATIENCE_SECONDS, found
        pause.wait(0.5)  # more than 20 wrong keys a minute are answered by 429
        waited += 0.5
    return waited


def test_a_first_start_is_simulated_and_a_second_with_a_providers_key_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for name in filter(NOT_OURS.search, list(os.environ)):
        monkeypatch.delenv(name)

    def keys(*words: str) -> tuple[str, str]:
        assert main(["keys", *words]) == 0
        said = capsys.readouterr()
        return said.out, said.err

    with running(folder, environment()) as first, httpx.Client(trust_env=False) as client:
        assert "*** SIMULATED: no provider key is set" in first.text
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", first.base_url)
        assert first.key.startswith("fg-")
        assert "  off  openai       OPENAI_API_KEY is not set" in first.lines

        # what it prints can be pasted
        answer = client.send(printed_request(first.text))
        assert answer.status_code == 200
        assert answer.headers["x-faregate-simulated"]
        assert answer.json()["choices"][0]["message"]["content"]
        program = printed_program(first.text)
        assert program.startswith("from openai import OpenAI\n")
        compile(program, "pasted", "exec")
        assert f'base_url="{first.base_url}", api_key="{first.key}"' in program
        receipt = first.until(is_receipt)
        assert re.fullmatch(
            r'200  fast -> luna  \d+ in \+ \d+ out  \$0\.\d+  rule "interactive chat"  terra would be \$0\.\d+',
            receipt,
        )

        # what it keeps is for its owner alone
        for name, mode in modes(folder / ".faregate").items():
            kind = 0o700 if (folder / ".faregate" / name).is_dir() else 0o600
            assert (name, oct(mode)) == (name, oct(kind))

        # keys are made and revoked beside it
        made, about = keys("create", "--team", "search", "--application", "receipts", "--tiers", "small")
        key = made.strip()
        key_id = about.split(":", 1)[0]
        asked = {"model": "small", "messages": [{"role": "user", "content": "Hello"}]}

        def status() -> int:
            return client.post(
                f"{first.base_url}/chat/completions",
                headers={"authorization": f"Bearer {key}"},
                json=asked,
            ).status_code

        assert until(status, 200) < 5
        listed, _ = keys("list", "--json")
        rows = {row["key_id"]: row for row in map(json.loads, listed.splitlines())}
        assert len(rows) == 2  # its own and the new one
        assert rows[key_id]["tiers"] == ["small"]
        assert rows[key_id]["revoked"] is False
        assert key not in listed
        keys("revoke", key_id)
        assert until(status, 401) < 5

        # a saved file is taken, or it says why not
        path = folder / "faregate.toml"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("[tiers.fast]", "[tiers.fast]\npurpos = 1"), encoding="utf-8")
        first.until(lambda line: line == "the saved file is not taken; the version in force stays:")
        assert "tiers.fast.purpos is unknown; did you mean purpose?" in first.until(bool)
        path.write_text(text, encoding="utf-8")

        assert first.interrupt() == 0
        assert first.lines[-1] == "stopped; everything is written down"

    # a provider's key switches it on: the same key then opens the real thing
    path = folder / "faregate.toml"
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    path.write_text(path.read_text().replace("https://api.mistral.ai/v1", nobody), encoding="utf-8")
    with (
        running(folder, environment(MISTRAL_API_KEY="sk-canary")) as second,
        httpx.Client(trust_env=False) as client,
    ):
        assert second.cpu_seconds <= 3
        assert second.key == first.key
        assert second.base_url == first.base_url
        assert "SIMULATED" not in second.text
        assert f"  on   mistral      {nobody}" in second.lines
        assert "  off  openai       OPENAI_API_KEY is not set" in second.lines
        answer = client.post(
            f"{second.base_url}/chat/completions",
            headers={"authorization": f"Bearer {second.key}"},
            json={"model": "mistral-large", "messages": [{"role": "user", "content": "Hello"}]},
        )
        assert answer.status_code == 502
        assert answer.headers["x-faregate-error"] == "upstream_unreachable"
        assert "x-faregate-simulated" not in answer.headers
        assert second.until(is_receipt).startswith("502  pinned -> mistral-large")
        assert second.interrupt() == 0
        assert "sk-canary" not in second.text
