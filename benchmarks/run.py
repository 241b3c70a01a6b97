"""Measures Faregate beside nginx, the Python floor and the passthrough unit U, in one interleaved run.

Builds its tools, starts everything on loopback, prints a table with its conditions and keeps the lines in
benchmarks/results/. Faregate runs with everything on: keys, 100 rules, a budget, prices, deadlines, metering
and the durable spool.

    make bench                              # about five minutes
    python benchmarks/run.py --quick        # a look
    python benchmarks/run.py --check        # exit 1 if a goal is missed by more than 15 %
    python benchmarks/run.py --only floor,passthrough --cells json-1k-c32 --rounds 1 --seconds 0.3
"""

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a file: the repository is not on the path yet
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bodies import write_bodies
from benchmarks.measure import CELLS, Target, read_targets, running, seconds_to_first_answer
from benchmarks.table import Finding, findings, text_of, verdict_of

HERE = Path(__file__).resolve().parent
REPO = HERE.parent
TOOLS = REPO / "run" / "bench"
RULES_IN_FILE = re.compile(r"^\[\[rules\]\]\n(?:[^\[\n].*\n)+\n?", re.MULTILINE)
DEFAULT_CELLS = ("json-1k-c32", "json-20k-c32", "json-400k-c32", "sse-16-c32", "sse-256-c32", "hold-1000")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    build()
    bin_folder = str(Path(sys.executable).parent)
    words = {"tools": str(TOOLS), "bench": str(HERE), "repo": str(REPO), "py": bin_folder, "key": ""}
    targets = read_targets(HERE / "refs.json", words)
    only = set(options.only.split(",")) if options.only else None
    if not shutil.which("nginx"):
        del targets["nginx"]
        print("nginx is not installed: its row is missing (on Debian: apt-get install nginx-light)")
    ours = only is None or "faregate" in only
    if ours:
        words["key"] = new_key(HERE / "bench.toml", words)
        targets |= read_targets(HERE / "targets.json", words)
    if only is not None:
        targets = {name: target for name, target in targets.items() if name in only}
    lines: list[dict[str, Any]] = [conditions()]
    with running(TOOLS, targets, seconds=options.seconds, say=print) as bench:
        for number in range(options.rounds):
            lines += bench.round(number, options.cells)
    if ours:
        lines += rules_lines(words, options)
        lines += start_lines(targets["faregate"], 1 if options.quick else 3)
    lines.append({"kind": "conditions", "load average at the end": _load_average()})
    path = save(lines)
    print("\n" + text_of(lines) + "\n")
    found = findings(lines)
    if ours:
        print(verdict_of(found) + "\n")
    print(f"Saved as {path.relative_to(REPO)}.")
    return _exit_code(found) if options.check else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two short rounds")
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed by more than 15 %%")
    parser.add_argument("--rounds", type=int, help="how often each cell is measured on each target (5)")
    parser.add_argument("--seconds", type=float, help="about how long each measure takes (0.8)")
    parser.add_argument("--only", default="", help="these targets, with commas between")
    parser.add_argument("--cells", default=",".join(DEFAULT_CELLS), help="these cells, with commas between")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (0.4 if options.quick else 0.8)
    options.cells = options.cells.split(",")
    unknown = [cell for cell in options.cells if cell not in CELLS]
    if unknown:
        parser.error(f"no cell called {', '.join(unknown)}; there are: {', '.join(CELLS)}")
    return options


def _exit_code(found: Sequence[Finding]) -> int:
    missed = [one for one in found if not one.met]
    for one in missed:
        print(f"missed: {one.what}: {one.value} (goal {one.goal}, slack 15 %)", file=sys.stderr)
    return 1 if missed else 0


def build() -> None:
    """Compile the mock and the load generator and write the bodies, into run/bench."""
    (TOOLS / "nginx").mkdir(parents=True, exist_ok=True)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        sys.exit("The benchmarks need a C compiler (on Debian: apt-get install gcc libc6-dev)")
    for name in ("mock", "load"):
        source, made = HERE / f"{name}.c", TOOLS / name
        if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
            subprocess.run([compiler, "-O2", "-w", "-o", str(made), str(source)], check=True)
    write_bodies(TOOLS / "bodies")


def new_key(config: Path, words: Mapping[str, str]) -> str:
    """A key for the team `bench`, in the ledger of that configuration. Its data folder begins empty."""
    found = re.search(r'^data_dir\s*=\s*"([^"]+)"', config.read_text(), re.MULTILINE)
    if found is None:
        sys.exit(f"{config} names no data_dir")
    shutil.rmtree(REPO / found[1], ignore_errors=True)
    environment = read_targets(HERE / "targets.json", words)["faregate"].environment
    command = [f"{words['py']}/faregate", "keys", "create", "--config", str(config), "--team", "bench"]
    made = subprocess.run(
        command, cwd=REPO, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        sys.exit(f"faregate keys create failed ({made.returncode}):\n{made.stderr}")
    return made.stdout.strip()


def with_rules(text: str, count: int, port: int) -> str:
    """The benchmark's configuration with that many rules, on other ports, with a data folder of its own."""
    last = "" if count == 0 else RULES_IN_FILE.findall(text)[-1]
    lines = [
        f'[[rules]]\nname = "rule {n}"\n'
        f'when = {{ application = "app-{n}", input_tokens = {{ at_least = {n} }} }}\ntier = "fast"\n'
        for n in range(count - 1)
    ]
    text = RULES_IN_FILE.sub("", text)
    text = text.replace("127.0.0.1:9400", f"127.0.0.1:{port}").replace(
        "127.0.0.1:9401", f"127.0.0.1:{port + 1}"
    )
    text = text.replace('"run/bench/data"', f'"run/bench/data-{count}"')
    return text + "\n" + "\n".join(lines) + "\n" + last


def rules_lines(words: dict[str, str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The 1 KB cell with 10 and with 1,000 rules, interleaved."""
    template = (HERE / "bench.toml").read_text()
    targets: dict[str, Target] = {}
    for count, port in ((10, 9410), (1_000, 9420)):
        config = TOOLS / f"rules-{count}.toml"
        config.write_text(with_rules(template, count, port))
        own = words | {"key": new_key(config, words)}
        entry = read_targets(HERE / "targets.json", own)["faregate"]
        command = tuple(str(config) if part.endswith("bench.toml") else part for part in entry.command)
        targets[f"rules-{count}"] = Target(
            name=f"rules-{count}",
            port=port,
            command=command,
            cwd=entry.cwd,
            environment=entry.environment,
            headers=entry.headers,
        )
    lines: list[dict[str, Any]] = []
    with running(TOOLS, targets, seconds=options.seconds, say=print) as bench:
        for number in range(max(3, options.rounds)):
            lines += bench.round(number, ["json-1k-c32"], label="rules")
    return lines


def start_lines(target: Target, times: int) -> list[dict[str, Any]]:
    """How long a start takes until the first answer."""
    body = (TOOLS / "bodies" / "1k.json").read_bytes()
    lines: list[dict[str, Any]] = []
    with running(TOOLS, {}, seconds=0, say=print):
        for number in range(times):
            seconds = seconds_to_first_answer(target, TOOLS, body)
            print(f"start to first answer: {'none' if seconds is None else f'{seconds:.2f} s'}")
            if seconds is not None:
                lines.append({"cell": "start", "target": target.name, "round": number, "seconds": seconds})
    return lines


def conditions() -> dict[str, Any]:
    """What the numbers depend on."""
    names = ("faregate", "uvicorn", "uvloop", "httptools", "msgspec", "litestar")
    versions = [f"{name} {_version(name)}" for name in names]
    if shutil.which("nginx"):
        told = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=False).stderr
        versions.append(f"nginx {told.strip().rpartition('/')[2]}")
    return {
        "kind": "conditions",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": _revision(),
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(versions),
        "load average at the start": _load_average(),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return "unknown"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _load_average() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def save(lines: Sequence[Mapping[str, Any]]) -> Path:
    """Keep the lines in a file of their own."""
    name = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H-%M-%S.jsonl")
    path = HERE / "results" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


if __name__ == "__main__":
    sys.exit(main())
