"""The command `faregate`: one module a command, loaded when its help or its work is needed."""

import argparse
import sys
from importlib import import_module

from faregate import __version__

COMMANDS = {
    "run": "run",
    "demo": "demo",
    "serve": "serve",
    "check": "check",
    "explain": "explain",
    "keys": "keys",
    "ledger": "ledger_commands",
    "prices": "prices",
    "meter": "meter",
    "dashboard": "dashboard",
    "health": "health",
}
"""Command -> module of this package; each has `register(subparsers)`, and what it registers sets `run`."""

_EPILOG = """\
examples:
  faregate check                       test ./faregate.toml, print what each model name leads to
  faregate serve                       the gateway, for a service manager
  faregate keys create --team search   a key for an application, printed once
  faregate ledger list --since 2026-11-01 --json

exit codes: 0 clean, 1 findings, 2 wrong use
"""


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole command line, or as much of it as one command needs."""
    top = argparse.ArgumentParser(
        prog="faregate",
        description="A cost and routing gateway for LLM APIs: change the base URL, see what each answer cost.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"faregate {__version__}")
    subparsers = top.add_subparsers(metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        if only in (None, name):
            import_module(f"faregate.{module}").register(subparsers)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run a command and give its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    first = argv[0] if argv else None
    args = parser(first if first in COMMANDS else None).parse_args(argv)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
