"""`faregate dashboard`: the finance pages in a browser, on this machine only. They read the ledger and nothing else."""

import argparse
import sys
from ipaddress import ip_address
from typing import Any

_EXAMPLE = """\
example:
  faregate dashboard
  faregate dashboard --ledger sqlite:///.faregate/ledger.db --port 8502

The pages have no login yet, so they listen on a loopback address only. Show them to others through something that
asks who they are: an SSH tunnel, or a proxy with a login.

exit codes: 2 wrong use; else those of the pages' server, which runs until it is stopped
"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "dashboard",
        help="the finance pages in a browser",
        description="Starts the finance pages: spend by day, team, application, tier, deployment and token class, "
        "and every request with its reason and its price lines. They read the ledger and nothing else.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", default="faregate.toml", help="default: ./faregate.toml")
    parser.add_argument(
        "--ledger",
        metavar="URL",
        help="default: FAREGATE_DASHBOARD_LEDGER, else the ledger of the configuration; a URL with a password "
        "belongs in the environment, where others on this machine cannot read it",
    )
    parser.add_argument("--port", metavar="PORT", type=int, default=8501, help="default: 8501")
    parser.add_argument("--host", metavar="ADDRESS", help="a loopback address; default: 127.0.0.1")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Become the pages' server; comes back only when that cannot be."""
    import os
    from importlib.util import find_spec

    from dashboard.place import LEDGER

    if args.host is not None and not is_loopback(args.host):
        return _refuse(
            f"--host {args.host} is not a loopback address: the pages have no login yet, so anybody who reaches them "
            "reads every number. Leave --host away and put a tunnel or a proxy with a login in front."
        )
    if not 0 < args.port < 65536:
        return _refuse(f"--port {args.port} is not a port (1 to 65535)")
    if find_spec("streamlit") is None or find_spec("altair") is None:
        return _refuse("the pages need more packages: pip install 'faregate[dashboard]'")
    url = args.ledger or os.environ.get(LEDGER) or _ledger_of(args.config)
    if url is None:
        return 2
    host = args.host or os.environ.get("STREAMLIT_SERVER_ADDRESS") or "127.0.0.1"
    if not is_loopback(host):
        print(
            f"warning: STREAMLIT_SERVER_ADDRESS={host}: the pages have no login; whoever reaches that address reads "
            "every number (a container's port must be published on a loopback address)",
            file=sys.stderr,
            flush=True,
        )
    command = command_of(host, args.port)
    os.execve(command[0], command, environment_of(url, dict(os.environ)))  # noqa: S606 - our own words
    raise AssertionError("execve does not come back")


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def command_of(host: str, port: int) -> list[str]:
    """The server's command line. No secret is in it: others on this machine can read it."""
    import dashboard

    script = f"{dashboard.__path__[0]}/app.py"
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.showEmailPrompt": "false",
        "server.enableStaticServing": "false",
        "browser.gatherUsageStats": "false",
        "browser.serverAddress": "localhost" if not is_loopback(host) else host,
        "client.toolbarMode": "minimal",
        # Red is for what is bad. One colour for both, and the pages would no longer follow the reader's dark mode.
        "theme.light.primaryColor": "#2f6fab",
        "theme.dark.primaryColor": "#6aa9e0",
        # An error's text could hold a value of the ledger's or its address; it goes to the log, not to the page.
        "client.showErrorDetails": "none",
    }
    return [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        script,
        *(f"--{name}={value}" for name, value in options.items()),
    ]


def environment_of(url: str, environ: dict[str, str]) -> dict[str, str]:
    """The server's environment: the ledger's URL, and where our packages are."""
    import os
    from pathlib import Path

    import dashboard
    from dashboard.place import LEDGER

    root = str(Path(dashboard.__path__[0]).parent)
    before = environ.get("PYTHONPATH")
    paths = root if not before else f"{root}{os.pathsep}{before}"
    return {**environ, LEDGER: url, "PYTHONPATH": paths}


def _ledger_of(path: str) -> str | None:
    from faregate import secrets_file
    from gateway.app import ledger_url_of
    from gateway.config import ConfigProblems, load

    try:
        return ledger_url_of(load(path, secrets_file.environment(path), needs_secrets=False))
    except ConfigProblems as wrong:
        for problem in wrong.problems:
            print(problem, file=sys.stderr)
        print(f"\n{path} does not say which ledger to show; --ledger URL does without it", file=sys.stderr)
        return None


def _refuse(why: str) -> int:
    print(why, file=sys.stderr)
    return 2
