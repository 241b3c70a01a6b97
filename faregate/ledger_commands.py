"""`faregate ledger list` and `verify`: what was written down, and whether it adds up."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from faregate.secrets_file import STAND_IN_LEDGERS

if TYPE_CHECKING:
    from datetime import datetime

    from ledger.store import Ledger

_EXAMPLE = """\
example:
  faregate ledger list --since 2026-11-01 --json
  faregate ledger list --since 2026-11-29T08:00 --until 2026-11-29T09:00 --limit 20
  faregate ledger verify
"""

_LIST_EXAMPLE = """\
example:
  faregate ledger list --since 2026-11-01 --json
  faregate ledger list --since 2026-11-29T08:00 --until 2026-11-29T09:00 --limit 20

Moments are UTC unless they say otherwise. A request is listed when its books are closed.
"""

_VERIFY_EXAMPLE = """\
example:
  faregate ledger verify
  faregate ledger verify --rebuild

exit codes: 0 all of it adds up, 1 something does not (it is listed), 2 wrong use
"""


def register(subparsers: Any) -> None:
    """Add the commands."""
    parser = subparsers.add_parser(
        "ledger",
        help="list or verify what was written down",
        description="Reads the ledger: attempts with their tokens and costs, and whether it all adds up.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="ledger_command", metavar="COMMAND", required=True)

    listing = commands.add_parser(
        "list",
        help="attempts, one a line",
        description="Prints attempts of closed requests, oldest first.",
        epilog=_LIST_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    listing.add_argument("--since", metavar="TIME", required=True, type=_moment, help="a day or a moment")
    listing.add_argument("--until", metavar="TIME", type=_moment, help="before this day or moment")
    listing.add_argument("--limit", metavar="N", type=_count, help="at most so many")
    _add_common(listing)
    listing.set_defaults(run=run_list)

    checking = commands.add_parser(
        "verify",
        help="whether the ledger adds up",
        description="Builds the totals from the rows and compares them, requests with their attempts, and costs "
        "with their parts. Lists everything that differs.",
        epilog=_VERIFY_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    checking.add_argument("--rebuild", action="store_true", help="first build the totals again from the rows")
    _add_common(checking)
    checking.set_defaults(run=run_verify)


def _add_common(parser: Any) -> None:
    parser.add_argument("--config", metavar="FILE", default="faregate.toml", help="default: ./faregate.toml")
    parser.add_argument("--ledger", metavar="URL", help="this ledger instead of the configured one")
    parser.add_argument("--json", action="store_true", help="print facts as JSON")


def run_list(args: argparse.Namespace) -> int:
    """Print attempts."""
    import json
    from itertools import chain

    from ledger.store import LedgerAway

    ledger = _opened(args)
    if ledger is None:
        return 2
    try:
        attempts = ledger.attempts(since=args.since, until=args.until, limit=args.limit)
        first = next(attempts, None)  # they may be millions: never all at once
        if first is None:
            _say_of_others(args)
        else:
            attempts = chain([first], attempts)
        if args.json:
            for attempt in attempts:
                print(json.dumps(attempt, ensure_ascii=False))
        else:
            for line in table(attempts):
                print(line)
    except LedgerAway as wrong:
        return _say(f"the ledger cannot be used: {wrong}")
    except BrokenPipeError:  # a reader such as `head` has seen enough
        sys.stderr.close()
    finally:
        ledger.close()
    return 0


def run_verify(args: argparse.Namespace) -> int:
    """Print what does not add up."""
    import json

    from ledger.store import LedgerAway
    from ledger.verify import rebuild_totals, verify

    ledger = _opened(args)
    if ledger is None:
        return 2
    try:
        if args.rebuild:
            rebuild_totals(ledger)
        findings = verify(ledger)
    except LedgerAway as wrong:
        return _say(f"the ledger cannot be used: {wrong}")
    finally:
        ledger.close()
    if args.json:
        print(json.dumps({"ok": not findings, "findings": findings}, ensure_ascii=False))
    elif findings:
        print("\n".join(findings))
        print(f"\n{len(findings)} finding{'' if len(findings) == 1 else 's'}")
    else:
        print("the ledger adds up")
    return 1 if findings else 0


_COLUMNS = ("began (UTC)", "request", "n", "team", "deployment", "state", "input", "cached", "output", "USD")
_NUMBERS = {"n", "input", "cached", "output", "USD"}


def table(attempts: Any) -> list[str]:
    """Attempts for a person: input is all input, cached the part of it that a cache served."""
    from datetime import UTC, datetime

    from pricing.money import usd_text
    from pricing.usage import INPUT_BUCKETS, OUTPUT_BUCKETS

    rows: list[tuple[str, ...]] = [_COLUMNS]
    for attempt in attempts:
        began = datetime.fromtimestamp(attempt["started_at_ms"] / 1000, UTC)
        cost = attempt["cost_pico_usd"]
        mark = "~" if attempt["state"] == "estimated" else ""
        rows.append(
            (
                f"{began:%Y-%m-%d %H:%M:%S}",
                attempt["request_id"],
                str(attempt["n"]),
                attempt["team"],
                attempt["deployment"],
                attempt["state"],
                f"{sum(attempt[name] for name in INPUT_BUCKETS):,}",
                f"{attempt['input_cached'] + attempt['input_audio_cached']:,}",
                f"{sum(attempt[name] for name in OUTPUT_BUCKETS):,}",
                "unpriced" if cost is None else mark + usd_text(cost),
            )
        )
    if len(rows) == 1:
        return ["no attempts of closed requests in this time"]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    return [
        "  ".join(
            cell.rjust(width) if name in _NUMBERS else cell.ljust(width)
            for name, cell, width in zip(_COLUMNS, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _opened(args: argparse.Namespace) -> "Ledger | None":
    """The ledger that is meant; None: there is none, and that was said."""
    from pathlib import Path

    from ledger.store import LedgerAway, LedgerTooNew, NotALedgerUrl, open_ledger

    url = args.ledger or _configured(args.config)
    if url is None:
        return None
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        _say(
            f"there is no ledger at {url.removeprefix('sqlite:///')} yet: the gateway makes it when it starts"
        )
        _say_of_others(args)
        return None
    try:
        return open_ledger(url)
    except (LedgerAway, LedgerTooNew, NotALedgerUrl) as wrong:
        _say(f"the ledger cannot be used: {wrong}")
        return None


def _say_of_others(args: argparse.Namespace) -> None:
    """Where else to look: what `make run` does without a provider's key is in a ledger of its own."""
    from pathlib import Path

    url = None if args.ledger else _configured(args.config)
    if url is None or not url.startswith("sqlite:///"):
        return
    folder = Path(url.removeprefix("sqlite:///")).parent
    for name in STAND_IN_LEDGERS:
        if (folder / name).exists():
            _say(f"another ledger is here: --ledger sqlite:///{folder / name}")


def _configured(path: str) -> str | None:
    from faregate.secrets_file import environment
    from gateway.config import ConfigProblems, load

    try:
        settings = load(path, environment(path), needs_secrets=False).gateway
    except ConfigProblems as wrong:
        for problem in wrong.problems:
            _say(str(problem))
        return None
    return settings.ledger_url or f"sqlite:///{settings.data_dir}/ledger.db"


def _say(text: str) -> int:
    print(text, file=sys.stderr)
    return 2


def _moment(text: str) -> "datetime":
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no day or moment; write 2026-11-29 or 2026-11-29T08:00"
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)
