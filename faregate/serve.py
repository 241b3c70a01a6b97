"""`faregate serve`: the gateway and its admin listener, until a signal. It never simulates anything."""

import argparse
import sys
from typing import Any

_EXAMPLE = """\
example:
  export FAREGATE_KEY_SECRET=... FAREGATE_ADMIN_SECRET=... OPENAI_API_KEY=...
  faregate serve --config faregate.toml

SIGTERM drains and exits 0; SIGHUP reads the file again at once.
exit codes: 0 stopped, 1 the file is not good or the ledger cannot be opened
"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "serve",
        help="run the gateway",
        description="Runs the gateway and its admin listener in this process. Writes one JSON line a request to "
        "standard output.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", default="faregate.toml", help="default: ./faregate.toml")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    from faregate.secrets_file import environment
    from gateway.app import StartFailed, serve
    from gateway.config import ConfigProblems

    try:
        return serve(args.config, environment(args.config))
    except ConfigProblems as wrong:
        for problem in wrong.problems:
            print(problem, file=sys.stderr)
        return 1
    except StartFailed as problem:
        print(f"faregate serve: {problem}", file=sys.stderr)
        return 1
