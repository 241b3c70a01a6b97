"""Starts the targets and measures them: CPU of the whole process tree a good request, latency, memory.

CPU is the scheduler's own count of nanoseconds over all living threads. After a load it is read only once
the target has become idle, so that work put off (a batch for the database) counts with its requests.
"""

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOCK_PORT = 9100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kind of load: how the mock answers, which body is sent, by how many callers at once."""

    body: str
    callers: int
    mock: Mapping[str, float]
    load: tuple[str, ...] = ()
    held: bool = False  # memory is what is measured; once is enough

    @property
    def most(self) -> int:
        """Requests of one measure at most."""
        return 1_000 if self.held else 40_000


CELLS: Mapping[str, Cell] = {
    "json-1k-c1": Cell(body="1k", callers=1, mock={"ttft": 0, "gap": 0, "chunks": 64, "size": 256}),
    "json-1k-c32": Cell(body="1k", callers=32, mock={"ttft": 0, "gap": 0, "chunks": 64, "size": 256}),
    "json-20k-c32": Cell(body="20k", callers=32, mock={"ttft": 0, "gap": 0, "chunks": 64, "size": 2048}),
    "json-400k-c32": Cell(body="400k", callers=32, mock={"ttft": 0, "gap": 0, "chunks": 64, "size": 2048}),
    "sse-16-c32": Cell(body="1k-s", callers=32, mock={"ttft": 0, "gap": 4, "chunks": 16, "size": 128}),
    "sse-256-c32": Cell(body="1k-s", callers=32, mock={"ttft": 0, "gap": 4, "chunks": 256, "size": 2048}),
    "hold-1000": Cell(
        body="1k-s",
        callers=1_000,
        mock={"ttft": 3_000, "gap": 400, "chunks": 4, "size": 64},
        load=("-t", "60"),
        held=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is measured, and how it is started."""

    name: str
    port: int
    command: tuple[str, ...] = ()  # empty: the mock itself
    cwd: str = "."
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: tuple[str, ...] = ()
    path: str = "/v1/chat/completions"


def read_targets(path: Path, words: Mapping[str, str]) -> dict[str, Target]:
    """The targets of a file, their {words} filled in."""
    targets: dict[str, Target] = {}
    for name, entry in json.loads(path.read_text()).items():
        targets[name] = Target(
            name=name,
            port=entry["port"],
            command=tuple(part.format(**words) for part in entry.get("cmd", [])),
            cwd=entry.get("cwd", ".").format(**words),
            environment={key: value.format(**words) for key, value in entry.get("env", {}).items()},
            headers=tuple(header.format(**words) for header in entry.get("headers", [])),
            path=entry.get("path", "/v1/chat/completions"),
        )
    return targets


# --- reading /proc


def _tree(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                children = Path(f"/proc/{one}/task/{thread}/children").read_text().split()
                waiting += [int(child) for child in children]
    return found


def cpu_seconds(pid: int) -> float:
    """What the tree's living threads have used."""
    total = 0
    for one in _tree(pid):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                with contextlib.suppress(OSError):
                    total += int(Path(f"/proc/{one}/task/{thread}/schedstat").read_text().split()[0])
    return total / 1e9


def memory_kb(pid: int) -> int:
    """The tree's proportional set size."""
    total = 0
    for one in _tree(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total


def cpu_once_idle(pid: int, *, at_most_seconds: float = 3.0) -> float:
    """The CPU used, once the tree used less than a millisecond in 60."""
    used, until = cpu_seconds(pid), time.monotonic() + at_most_seconds
    while time.monotonic() < until:
        time.sleep(0.06)
        now = cpu_seconds(pid)
        if now - used < 0.001:
            return now
        used = now
    return used


# --- running


class Bench:
    """The mock and the targets, running. Use `running`."""

    def __init__(self, tools: Path, seconds: float, say: Callable[[str], None]) -> None:
        self.tools = tools
        self.seconds = seconds
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.targets: dict[str, Target] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self._say = say
        self._mock: subprocess.Popen[bytes] | None = None

    def start(self, targets: Mapping[str, Target]) -> None:
        """Start the mock and every target; one that is not ready in time is left out and said."""
        ours, theirs = _pins()
        self._mock = subprocess.Popen([*ours, str(self.tools / "mock"), str(MOCK_PORT)])
        if not _answers(MOCK_PORT, 5):
            raise SystemExit(f"the mock provider does not answer on port {MOCK_PORT}: is the port taken?")
        for name, target in targets.items():
            self.targets[name] = target
            if not target.command:
                self.processes[name] = self._mock
                continue
            with (self.tools / f"{name}.log").open("w") as log:
                self.processes[name] = subprocess.Popen(
                    [*theirs, *target.command],
                    cwd=target.cwd,
                    env={**os.environ, **target.environment},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            if not _answers(target.port, 30, self.processes[name]):
                self._say(
                    f"{name} does not answer on port {target.port}: left out; see {self.tools / name}.log"
                )
                self._end([self.processes.pop(name)])
                del self.targets[name]

    def stop(self) -> None:
        own = [process for process in self.processes.values() if process is not self._mock]
        self._end(own)
        self.processes.clear()
        if self._mock is not None:
            self._mock.terminate()
            self._mock.wait(5)

    def _end(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(5)

    def round(
        self, number: int, cells: Sequence[str], *, label: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Every cell on every target, the order of the targets shuffled."""
        for name in cells:
            cell = CELLS[name]
            if cell.held and number > 0:
                continue
            _set_mock(cell.mock)
            order = list(self.targets.values())
            random.shuffle(order)
            for target in order:
                yield self._measure(target, name, cell, number) | ({"cell": label} if label else {})

    def _measure(self, target: Target, name: str, cell: Cell, number: int) -> dict[str, Any]:
        pid = self.processes[target.name].pid
        base = memory_kb(pid) if cell.held else None
        count = 1_000 if cell.held else self._size(target, name, cell)
        line = self._load(target, cell, count, pid)
        good = max(1, line["ok"])
        line |= {"target": target.name, "cell": name, "round": number, "asked": count}
        line["us_cpu_ns"] = 1e6 * line["cpu_s"] / good
        if base is not None:
            line["pss_base_kb"] = base
        self._say(
            f"round {number}  {name:14} {target.name:12} {line['us_cpu_ns']:7.0f} us  "
            f"{line.get('rps', 0):6.0f}/s  p50 {line.get('p50', 0) / 1e3:.1f} ms  "
            f"{line['ok']}/{count} good  {line['problem'][:90]}"
        )
        return line

    def _size(self, target: Target, name: str, cell: Cell) -> int:
        """How many requests take about the wished time; measured once, after a warm-up."""
        known = self._sizes.get((target.name, name))
        if known is None:
            pid = self.processes[target.name].pid
            self._load(target, cell, max(cell.callers, 24), pid)
            rate = self._load(target, cell, max(3 * cell.callers, 48), pid).get("rps", 0)
            known = max(3 * cell.callers, min(cell.most, int(rate * self.seconds)))
            self._sizes[target.name, name] = known
        return known

    def _load(self, target: Target, cell: Cell, count: int, pid: int) -> dict[str, Any]:
        command = [
            str(self.tools / "load"),
            "-p",
            str(target.port),
            "-n",
            str(count),
            "-c",
            str(cell.callers),
        ]
        command += ["-b", str(self.tools / "bodies" / f"{cell.body}.json"), "-u", target.path]
        for header in target.headers:
            command += ["-H", header]
        command += cell.load or ("-t", "25")
        peak, stop = [0], threading.Event()

        def sample() -> None:
            while not stop.wait(0.4):
                peak[0] = max(peak[0], memory_kb(pid))

        sampler = threading.Thread(target=sample)
        if cell.held:
            sampler.start()
        before = cpu_once_idle(pid)
        done = subprocess.run([*_pins()[0], *command], capture_output=True, text=True, check=False)
        after = cpu_once_idle(pid)
        stop.set()
        if cell.held:
            sampler.join()
        try:
            line: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            line = {"ok": 0}
        now = memory_kb(pid)
        return line | {
            "cpu_s": after - before,
            "pss_peak_kb": max(peak[0], now),
            "problem": done.stderr[:300],
        }


@contextlib.contextmanager
def running(
    tools: Path, targets: Mapping[str, Target], *, seconds: float, say: Callable[[str], None]
) -> Generator[Bench]:
    """A bench whose targets are up; they are ended at the end, however it comes."""
    bench = Bench(tools, seconds, say)
    try:
        bench.start(targets)
        yield bench
    finally:
        bench.stop()


def seconds_to_first_answer(target: Target, tools: Path, body: bytes) -> float | None:
    """From starting the process to its first good answer. None: none within 20 s. The mock must be up."""
    headers = dict(header.split(": ", 1) for header in target.headers) | {"content-type": "application/json"}
    begun = time.monotonic()
    with (tools / "start.log").open("w") as log:
        process = subprocess.Popen(
            [*_pins()[1], *target.command],
            cwd=target.cwd,
            env={**os.environ, **target.environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        while time.monotonic() < begun + 20 and process.poll() is None:
            connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=5)
            try:
                connection.request("POST", target.path, body, headers)
                if connection.getresponse().status == 200:
                    return time.monotonic() - begun
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.01)
        return None
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(15)


def _pins() -> tuple[list[str], list[str]]:
    """Prefixes that keep the mock and the load on one core and the target on another, where possible."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 or not shutil.which("taskset"):
        return [], []
    return ["taskset", "-c", str(cores[0])], ["taskset", "-c", str(cores[1])]


def _set_mock(settings: Mapping[str, float]) -> None:
    query = "&".join(f"{key}={value:g}" for key, value in settings.items())
    url = f"http://127.0.0.1:{MOCK_PORT}/__cfg?{query}"
    with urllib.request.urlopen(urllib.request.Request(url, method="POST", data=b""), timeout=5) as answer:
        answer.read()


def _answers(port: int, seconds: float, process: "subprocess.Popen[bytes] | None" = None) -> bool:
    """Whether anything that speaks HTTP is there, before the time is up or the process has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and (process is None or process.poll() is None):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2):
                return True
        except (urllib.error.HTTPError, http.client.RemoteDisconnected, ConnectionResetError):
            return True
        except OSError:
            time.sleep(0.05)
    return False


if __name__ == "__main__":
    sys.exit("run benchmarks/run.py")
