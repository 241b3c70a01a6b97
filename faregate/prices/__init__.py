"""`faregate prices`: what a model costs and since when, and whether prices can be meant."""

import argparse
from typing import Any

_EXAMPLE = """\
example:
  faregate prices show claude-sonnet-4-5
  faregate prices show o3 --at 2025-06-09
  faregate prices check
"""

_SHOW_EXAMPLE = """\
example:
  faregate prices show gpt-5.6-luna
  faregate prices show o3 --at 2025-06-09
  faregate prices show deepseek-v4-pro --at 2026-11-27T06:30 --json

A name is found as it stands or without a date at its end, never by its beginning.

exit codes: 0 there is a price, 1 there is none, 2 wrong use
"""

_CHECK_EXAMPLE = """\
example:
  faregate prices check
  faregate prices check faregate.prices.toml
  faregate prices check new.toml --yes

exit codes: 0 nothing is strange (or --yes: it is meant), 1 something is, 2 wrong use
"""

_IMPORT_EXAMPLE = """\
example:
  faregate prices import genai-prices
  faregate prices import genai-prices --provider openai --model gpt-5-mini
  faregate prices import genai-prices --provider mistral --apply

The list comes with the extra `prices` and is read from there: nothing is fetched.

exit codes: 0 nothing is new, or it was appended, 1 there are differences or something strange, 2 wrong use
"""


def register(subparsers: Any) -> None:
    """Add the commands."""
    parser = subparsers.add_parser(
        "prices",
        help="show and check prices",
        description="Reads the book of published prices that comes with the program, and the prices of "
        "faregate.toml, which win over it.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="prices_command", metavar="COMMAND", required=True)
    _register_show(commands)
    _register_check(commands)
    _register_import(commands)


def _register_show(commands: Any) -> None:
    parser = commands.add_parser(
        "show",
        help="what a model costs, and since when",
        description="Prints every rate of a model that holds at a moment, with its source, and when it changed.",
        epilog=_SHOW_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL", help="a model's name, or a deployment of faregate.toml")
    parser.add_argument("--at", metavar="TIME", type=_moment, help="a day or a moment, UTC; default: now")
    parser.add_argument("--provider", metavar="P", help="only this provider's price")
    _add_common(parser)
    parser.set_defaults(run=_run_show)


def _register_check(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="whether prices can be meant",
        description="Looks for slips: a price a thousand times the one before, a cached token dearer than a fresh "
        "one, a rate that was lost, dollars per token for dollars per million.",
        epilog=_CHECK_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a file of prices; default: the program's book, and the prices of faregate.toml if it is here",
    )
    parser.add_argument("--yes", action="store_true", help="what is only asked is meant")
    _add_common(parser)
    parser.set_defaults(run=_run_check)


def _register_import(commands: Any) -> None:
    parser = commands.add_parser(
        "import",
        help="what another list publishes, beside these prices",
        description="Compares the prices here with those of another list, prints what is new and what differs, and "
        "with --apply appends rows to a file of your own. No row of any file is changed.",
        epilog=_IMPORT_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("list", choices=["genai-prices"], help="the list")
    parser.add_argument(
        "--provider", metavar="P", action="append", help="only this provider's; may be repeated"
    )
    parser.add_argument("--model", metavar="MODEL", action="append", help="only this model; may be repeated")
    parser.add_argument("--apply", action="store_true", help="append the rows")
    parser.add_argument("--yes", action="store_true", help="what is only asked is meant")
    parser.add_argument("--out", metavar="FILE", help="your file of prices; default: ./faregate.prices.toml")
    _add_common(parser)
    parser.set_defaults(run=_run_import)


def _add_common(parser: Any) -> None:
    parser.add_argument("--config", metavar="FILE", help="default: ./faregate.toml if it is here")
    parser.add_argument("--json", action="store_true", help="print facts as JSON")


def _run_show(args: argparse.Namespace) -> int:
    from faregate.prices.show import run

    return run(args)


def _run_check(args: argparse.Namespace) -> int:
    from faregate.prices.check import run

    return run(args)


def _run_import(args: argparse.Namespace) -> int:
    from faregate.prices.importing import run

    return run(args)


def _moment(text: str) -> Any:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no day or moment; write 2026-11-29 or 2026-11-29T08:00"
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
