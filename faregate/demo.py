"""`faregate demo`: gateway and dashboard over a made-up week of traffic, in a ledger of its own, marked as made up."""

import argparse
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faregate import secrets_file
from faregate.run import (
    KEY_FILE,
    SIMULATED,
    Dashboard,
    add_dashboard_options,
    banner,
    ensure_key,
    prepare_files,
    print_event,
    print_receipt,
)

if TYPE_CHECKING:
    from gateway.app import Started
    from gateway.config import Config
    from ledger.store import Ledger

SEED = 7
_BATCH = 500

_NOTICE = (
    "  *** MADE UP: a week of invented traffic, in a ledger of its own. What you send now is answered ***",
    "  *** by a SIMULATED provider: no model is asked. `make run` starts the real thing.              ***",
)

_EXAMPLE = """\
example:
  faregate demo                          (or `make demo`)

Ctrl-C stops it. Nothing of it reaches your own ledger.
"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "demo",
        help="the same as `run` on a made-up week of traffic",
        description="Starts gateway and dashboard on a made-up week of traffic, in a ledger of its own, marked as made "
        "up on every page. The simulated provider answers; no model is asked.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", metavar="FILE", default="faregate.toml", help="made from the example if absent"
    )
    add_dashboard_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fill the ledger, start, and stay until Ctrl-C."""
    config_path = Path(args.config)
    prepare_files(config_path)

    import uvloop

    from gateway.app import StartFailed
    from gateway.config import ConfigProblems

    try:
        return uvloop.run(_run(args, config_path))
    except ConfigProblems as wrong:
        for problem in wrong.problems:
            print(problem, file=sys.stderr)
        return 1
    except StartFailed as problem:
        print(f"faregate demo: {problem}", file=sys.stderr)
        return 1


async def _run(args: argparse.Namespace, path: Path) -> int:
    from faregate import simulated
    from gateway.app import Options, data_dir_of, run_gateway
    from gateway.config import load, switched_on

    # No real provider is asked here, whatever keys are set.
    environ = {**os.environ, **dict.fromkeys(provider_variables(path), "")}
    environ = secrets_file.environment(path, {name: value for name, value in environ.items() if value})
    config = load(path, environ)
    folder = data_dir_of(config) / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    stand_in = await simulated.serve("127.0.0.1", 0, api_key=SIMULATED)
    ledger_url = f"sqlite:///{folder.parent / secrets_file.DEMO_LEDGER}"
    dashboard = Dashboard(args, ledger_url=ledger_url, folder=folder)

    def prepare(ledger: "Ledger", config: "Config") -> None:
        fill(ledger)
        ensure_key(ledger, config.gateway.key_secret, folder.parent / KEY_FILE)

    def listening(started: "Started") -> None:
        key = (folder.parent / KEY_FILE).read_text(encoding="utf-8").strip()
        print(
            banner(
                started,
                key,
                notice=_NOTICE,
                providers=["  none is asked in a demonstration, whatever keys are set"],
                dashboard_port=dashboard.port,
            ),
            flush=True,
        )
        dashboard.start()

    try:
        return await run_gateway(
            str(path),
            environ,
            Options(
                transform=lambda config: switched_on(
                    config, base_url=stand_in.base_url, api_key=SIMULATED, because="simulated"
                ),
                ledger_url=ledger_url,
                spool_dir=folder / "spool",
                mark="made-up",
                simulated=True,
                receipt=print_receipt,
                event=print_event,
                log_fd=None,
                listening=listening,
                prepare=prepare,
            ),
        )
    finally:
        dashboard.stop()
        await stand_in.close()


def provider_variables(path: Path) -> list[str]:
    """The variables that the file takes providers' keys from."""
    from gateway.config import load

    config = load(path, os.environ, needs_secrets=False)
    return [provider.api_key_env for provider in config.providers.values() if provider.api_key_env]


def fill(ledger: "Ledger") -> None:
    """Write the made-up week, ending now."""
    from faregate.made_up_week import entries
    from ledger.rows import Books

    batch: list[Books] = []
    for admitted, closed in entries(SEED, datetime.now(UTC)):
        batch.append(Books(admitted, closed))
        if len(batch) == _BATCH:
            ledger.append(batch)
            batch = []
    if batch:
        ledger.append(batch)
