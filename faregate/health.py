"""`faregate health`: asks a running gateway whether it is ready; for containers that have no shell tools."""

import argparse
import sys
from typing import Any


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "health",
        help="ask a running gateway whether it is ready",
        description="Asks the admin listener of a running gateway whether it is ready. Exit code 0: it is.",
        epilog="example:\n  faregate health --address 127.0.0.1:8081\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", default="127.0.0.1:8081", help="of the admin listener"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask once."""
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(args.address, timeout=3)
    try:
        connection.request("GET", "/ready")
        status = connection.getresponse().status
    except (OSError, HTTPException, ValueError) as problem:
        print(f"faregate health: {args.address} does not answer: {problem}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    print("ready" if status == 200 else "not ready")
    return 0 if status == 200 else 1
