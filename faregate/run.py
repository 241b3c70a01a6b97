"""`faregate run`: everything for a first start on one machine; what `make run` calls.

Makes what is missing (the file, the secrets, a key), starts the gateway in this process and the dashboard beside
it, and prints what to paste. Without any provider key the simulated provider answers, in a ledger of its own,
and says so everywhere.
"""

import argparse
import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faregate import secrets_file

if TYPE_CHECKING:
    from gateway.app import Started
    from gateway.config import Config
    from ledger.entry import Admitted, Closed
    from ledger.store import Ledger

TEAM = "local"  # of the key that the first start makes
KEY_FILE = "key"
SIMULATED = "SIMULATED"

_SIMULATED_NOTICE = (
    "  *** SIMULATED: no provider key is set, so a built-in stand-in answers. No model is asked, ***",
    "  *** and every cost is made up. Set a key (see below) and start again for the real thing.  ***",
)

_EXAMPLE = """\
example:
  faregate run                           (or `make run`)
  OPENAI_API_KEY=... faregate run        with a real provider

Ctrl-C drains and stops.
"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "run",
        help="first start on one machine: gateway and dashboard, nothing else needed",
        description=__doc__.split("\n\n")[1] if __doc__ else "",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", metavar="FILE", default="faregate.toml", help="made from the example if absent"
    )
    add_dashboard_options(parser)
    parser.set_defaults(run=run)


def add_dashboard_options(parser: argparse.ArgumentParser) -> None:
    """The options that `run` and `demo` share."""
    parser.add_argument("--dashboard-port", type=int, default=8501, metavar="PORT", help="default: 8501")
    parser.add_argument("--no-dashboard", action="store_true", help="start the gateway alone")
    parser.add_argument(
        "--dashboard-setup", metavar="COMMAND", help="run this first: it installs the dashboard's packages"
    )


def run(args: argparse.Namespace) -> int:
    """Prepare, start, and stay until Ctrl-C."""
    config_path = Path(args.config)
    prepare_files(config_path)
    environ = secrets_file.environment(config_path)

    import uvloop

    from gateway.app import StartFailed
    from gateway.config import ConfigProblems

    try:
        return uvloop.run(_run(args, config_path, environ))
    except ConfigProblems as wrong:
        for problem in wrong.problems:
            print(problem, file=sys.stderr)
        return 1
    except StartFailed as problem:
        print(f"faregate run: {problem}", file=sys.stderr)
        return 1


def prepare_files(config: Path) -> None:
    """The file from the example, the data folder and the secrets, where they are missing."""
    if not config.exists():
        shutil.copyfile(example_file(), config)
        print(f"made {config} from the example; edit it while the gateway runs")
    secrets_file.make(config.parent / secrets_file.FOLDER)


def example_file() -> Path:
    """The example of the file: beside the package in a checkout, inside it when installed."""
    here = Path(__file__).parent
    inside = here / "faregate.example.toml"
    return inside if inside.exists() else here.parent / "faregate.example.toml"


async def _run(args: argparse.Namespace, path: Path, environ: dict[str, str]) -> int:
    from faregate import simulated
    from gateway.app import Options, data_dir_of, run_gateway
    from gateway.config import load, switched_on

    config = load(path, environ)
    folder = data_dir_of(config)
    is_simulated = not any(provider.live for provider in config.providers.values())
    stand_in: simulated.Simulated | None = None
    if is_simulated:
        stand_in = await simulated.serve("127.0.0.1", 0, api_key=SIMULATED)

    def transform(config: "Config") -> "Config":
        if stand_in is None:
            return config
        return switched_on(config, base_url=stand_in.base_url, api_key=SIMULATED, because="simulated")

    if is_simulated:
        ledger_url = f"sqlite:///{folder / secrets_file.SIMULATED_LEDGER}"
    else:
        ledger_url = config.gateway.ledger_url or f"sqlite:///{folder / 'ledger.db'}"
    key_path = folder / KEY_FILE
    dashboard = Dashboard(args, ledger_url=ledger_url, folder=folder)

    def prepare(ledger: "Ledger", config: "Config") -> None:
        ensure_key(ledger, config.gateway.key_secret, key_path)

    def listening(started: "Started") -> None:
        key = key_path.read_text(encoding="utf-8").strip()
        print(
            banner(
                started,
                key,
                notice=_SIMULATED_NOTICE if is_simulated else (),
                providers=provider_lines(config),
                dashboard_port=dashboard.port,
            ),
            flush=True,
        )
        dashboard.start()

    try:
        code = await run_gateway(
            str(path),
            environ,
            Options(
                transform=transform,
                ledger_url=ledger_url,
                spool_dir=folder / ("spool-simulated" if is_simulated else "spool"),
                mark="simulated" if is_simulated else None,
                simulated=is_simulated,
                receipt=print_receipt,
                event=print_event,
                log_fd=None,
                listening=listening,
                prepare=prepare,
            ),
        )
    finally:
        dashboard.stop()
        if stand_in is not None:
            await stand_in.close()
    print("stopped; everything is written down")
    return code


def print_receipt(admitted: "Admitted", closed: "Closed") -> None:
    """One line a request."""
    from faregate.receipt import receipt

    print(receipt(admitted, closed), flush=True)


def print_event(event: str, facts: Mapping[str, object]) -> None:
    """What else there is to know, such as a saved file that is not taken."""
    from faregate.receipt import sentence

    print(sentence(event, facts), flush=True)


def ensure_key(ledger: "Ledger", secret: str, path: Path) -> None:
    """The machine's own key: known to the ledger in use, and made anew when there is none or it was revoked."""
    from gateway.keys import create_key, is_known, is_revoked, keep_key

    key = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    if not key or is_revoked(ledger, secret, key):
        secrets_file.write_private(path, create_key(ledger, secret, team=TEAM).key + "\n")
    elif not is_known(ledger, secret, key):
        keep_key(ledger, secret, key, team=TEAM)


def provider_lines(config: "Config") -> list[str]:
    """Which providers are live, and why the others are not."""
    return [
        f"  on   {provider.name:<12} {provider.base_url}"
        if provider.live
        else f"  off  {provider.name:<12} {provider.off_because}"
        for provider in config.providers.values()
    ]


def banner(
    started: "Started",
    key: str,
    *,
    notice: Sequence[str],
    providers: Sequence[str],
    dashboard_port: int | None,
) -> str:
    """What a person needs to send the first request; `notice` says first what is not real about it."""
    base = f"http://{started.address}/v1"
    lines = ["", *notice, ""] if notice else [""]
    lines += [
        f"Faregate is ready.   base URL  {base}",
        f"                     admin     http://{started.admin_address}/schema",
    ]
    if dashboard_port is not None:
        lines.append(f"                     dashboard http://127.0.0.1:{dashboard_port}  (opens in a moment)")
    lines += ["", "Providers", *providers]
    lines += [
        "",
        "Point an application here: OpenAI SDKs, and what is built on them",
        f"  export OPENAI_BASE_URL={base}",
        f"  export OPENAI_API_KEY={key}",
        "Anthropic SDKs and Claude Code (their own wire comes with the next version)",
        f"  export ANTHROPIC_BASE_URL=http://{started.address}",
        f"  export ANTHROPIC_AUTH_TOKEN={key}",
        "Codex (its Responses wire comes with the next version)",
        f"  export OPENAI_BASE_URL={base} CODEX_API_KEY={key}",
        "",
        "Try it",
        f"  curl -s -w '\\n' {base}/chat/completions -H 'authorization: Bearer {key}' \\",
        "    -H 'content-type: application/json' \\",
        """    -d '{"model": "auto", "messages": [{"role": "user", "content": "Say hello."}]}'""",
        "",
        "or in Python (`pip install openai`)",
        "",  # no indent from here: Python would refuse what is pasted with one
        "from openai import OpenAI",
        f'client = OpenAI(base_url="{base}", api_key="{key}")',
        'answer = client.chat.completions.create(model="auto", messages=[{"role": "user", "content": "Say hello."}])',
        "print(answer.choices[0].message.content)",
        "",
        "Receipts: tier -> deployment, tokens by class, cost, rule, what the baseline would have cost",
    ]
    return "\n".join(lines)


def dashboard_command(port: int | None) -> list[str]:
    """The command line of the dashboard's process. No secret is in it: others on this machine can read it."""
    return [sys.executable, "-m", "faregate", "dashboard", "--port", str(port)]


def dashboard_environment(ledger_url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Its environment: this one's, and the ledger's URL, which may hold a password."""
    from dashboard.place import LEDGER

    return {**environ, LEDGER: ledger_url}


class Dashboard:
    """The dashboard's process: installed after the gateway answers, started when that is done."""

    def __init__(self, args: argparse.Namespace, *, ledger_url: str, folder: Path) -> None:
        self.port: int | None = None if args.no_dashboard else args.dashboard_port
        self._setup: str | None = args.dashboard_setup
        self._ledger_url = ledger_url
        self._log = folder / "dashboard.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Install and start it, beside everything else."""
        if self.port is not None:
            self._task = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> None:
        if self._setup:
            installing = await asyncio.create_subprocess_exec(
                *shlex.split(self._setup),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            if await installing.wait():
                print(
                    "the dashboard's packages could not be installed; the gateway runs on without it",
                    flush=True,
                )
                return
        with os.fdopen(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
            os.fchmod(log.fileno(), 0o600)  # of one that was there already
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603 - our own command; forks and waits for nothing
                dashboard_command(self.port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=dashboard_environment(self._ledger_url, os.environ),
            )
        for _ in range(240):
            await asyncio.sleep(0.25)
            if self._process.poll() is not None:
                print(f"the dashboard stopped; its words are in {self._log}", flush=True)
                return
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                continue
            writer.close()
            print(f"the dashboard is ready: http://127.0.0.1:{self.port}", flush=True)
            return

    def stop(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
