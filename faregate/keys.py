"""`faregate keys create|list|revoke`: the keys that applications ask with."""

import argparse
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from faregate.secrets_file import STAND_IN_LEDGERS

if TYPE_CHECKING:
    from gateway.config import Config
    from ledger.store import Ledger, StoredKey

_EXAMPLE = """\
examples:
  faregate keys create --team search --application receipts --tiers fast small
  faregate keys list
  faregate keys revoke key_1f2e3d4c5b6a

A key is printed once and kept only as a keyed hash. A running gateway knows a new or revoked key within 2 seconds.
"""

_CREATE_EXAMPLE = """\
examples:
  faregate keys create --team search
  faregate keys create --team search --application receipts --tiers fast small --requests-per-minute 600

The key alone is on standard output, so that it can be piped to where secrets are kept.
"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "keys",
        help="create, list and revoke the keys of applications",
        description="The keys that applications ask with: a team, and what it may reach.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    create = verbs.add_parser(
        "create",
        help="print a new key, once",
        description="Prints a new key, once.",
        epilog=_CREATE_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    create.add_argument("--team", required=True, metavar="NAME", help="who pays")
    create.add_argument(
        "--application", metavar="NAME", help="what it is for; else requests may say so themselves"
    )
    create.add_argument(
        "--tiers", nargs="+", metavar="TIER", help="what it may reach; default: what its team may"
    )
    create.add_argument("--regions", nargs="+", metavar="REGION", help="where its requests may be answered")
    create.add_argument(
        "--requests-per-minute", type=_positive, metavar="N", help="default: no limit of its own"
    )
    create.add_argument(
        "--tokens-per-minute", type=_positive, metavar="N", help="default: no limit of its own"
    )
    create.set_defaults(run=_saying_what_is_away(run_create))

    listing = verbs.add_parser(
        "list",
        help="the keys, without their secrets",
        description="Prints one line a key, oldest first, the revoked too.",
        epilog="example:\n  faregate keys list --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    listing.add_argument("--json", action="store_true", help="one JSON line a key")
    listing.set_defaults(run=_saying_what_is_away(run_list))

    revoke = verbs.add_parser(
        "revoke",
        help="let a key open nothing any more",
        description="Takes a key back, for good. Running gateways know within 2 seconds.",
        epilog="example:\n  faregate keys revoke key_1f2e3d4c5b6a",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    revoke.add_argument("key_id", metavar="KEY_ID", help="the public id that `keys list` shows")
    revoke.set_defaults(run=_saying_what_is_away(run_revoke))

    for verb in (create, listing, revoke):
        verb.add_argument(
            "--config", metavar="FILE", default="faregate.toml", help="default: ./faregate.toml"
        )


def _saying_what_is_away(work: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The same work; a ledger that cannot be read is a sentence, and its address is not in it."""

    def run(args: argparse.Namespace) -> int:
        from gateway.app import StartFailed
        from ledger.store import LedgerAway, LedgerTooNew, NotALedgerUrl

        try:
            return work(args)
        except (LedgerAway, LedgerTooNew, NotALedgerUrl, StartFailed) as wrong:
            print(f"faregate keys: the ledger cannot be used: {wrong}", file=sys.stderr)
            return 2

    return run


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def run_create(args: argparse.Namespace) -> int:
    """Print a new key on standard output, alone."""
    config = _config(args.config)
    if config is None:
        return 1
    unknown = sorted(set(args.tiers or ()) - set(config.policy.tiers))
    if unknown:
        known = ", ".join(config.policy.tiers)
        print(
            f"faregate keys: no tier {', '.join(unknown)} in {args.config}; it has {known}", file=sys.stderr
        )
        return 2
    from gateway.keys import create_key

    with _ledgers_of(config) as ledgers:
        created = create_key(
            ledgers[0],
            config.gateway.key_secret,
            team=args.team,
            application=args.application,
            tiers=args.tiers,
            regions=args.regions,
            requests_per_minute=args.requests_per_minute,
            tokens_per_minute=args.tokens_per_minute,
        )
        row = next(row for row in ledgers[0].list_keys() if row.key_id == created.key_id)
        for other in ledgers[1:]:
            other.add_key(row)
    print(created.key)
    print(f"{created.key_id}: a key of team {args.team}; it is shown only now", file=sys.stderr)
    if args.team not in config.teams:
        print(
            f"note: {args.config} has no [teams.{args.team}], so no limits but the key's own", file=sys.stderr
        )
    return 0


def run_list(args: argparse.Namespace) -> int:
    """One line a key."""
    config = _config(args.config)
    if config is None:
        return 1
    import json
    from datetime import UTC, datetime

    with _ledgers_of(config) as ledgers:
        rows = sorted(_known(ledgers).values(), key=lambda row: (row.created_at_ms, row.key_id))
    for row in rows:
        facts = {
            "key_id": row.key_id,
            "team": row.team,
            "application": row.application,
            "tiers": None if row.tiers is None else sorted(row.tiers),
            "regions": None if row.regions is None else sorted(row.regions),
            "requests_per_minute": row.requests_per_minute,
            "tokens_per_minute": row.tokens_per_minute,
            "created_at": datetime.fromtimestamp(row.created_at_ms / 1000, UTC).isoformat(timespec="seconds"),
            "revoked": row.revoked_at_ms is not None,
        }
        if args.json:
            print(json.dumps(facts))
        else:
            tiers = "any tier" if facts["tiers"] is None else ", ".join(sorted(row.tiers or ()))
            state = "revoked" if facts["revoked"] else "open"
            print(f"{row.key_id}  {row.team:<16} {row.application or '-':<16} {tiers:<24} {state}")
    if not rows and not args.json:
        print("no keys yet: `faregate keys create --team NAME` makes one")
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    """Revoke one key."""
    config = _config(args.config)
    if config is None:
        return 1
    import time

    now_ms = time.time_ns() // 1_000_000
    with _ledgers_of(config) as ledgers:
        done = False
        rows = (row for ledger in ledgers for row in ledger.list_keys() if row.key_id == args.key_id)
        row = next(rows, None)
        if row is not None:
            for ledger in ledgers:
                # The machine's own key has an id in each ledger, and is one key all the same.
                ids = [known.key_id for known in ledger.list_keys() if known.key_hash == row.key_hash]
                if not ids:
                    ledger.add_key(row)  # else a later start would let the same key in again
                for key_id in ids or [row.key_id]:
                    done = ledger.revoke_key(key_id, now_ms) or done
    if not done:
        print(f"faregate keys: no open key {args.key_id}; `faregate keys list` shows them", file=sys.stderr)
        return 1
    print(f"{args.key_id} opens nothing any more; running gateways know within 2 seconds")
    return 0


@contextmanager
def _ledgers_of(config: "Config") -> "Generator[list[Ledger]]":
    """The file's ledger, and those of a simulated gateway and of a demonstration where there are any.

    A key holds in all of them: it stays good when a provider is switched on.
    """
    from gateway.app import data_dir_of, open_ledger_of

    folder = data_dir_of(config)
    with ExitStack() as stack:
        ledgers = [stack.enter_context(open_ledger_of(config))]
        for name in STAND_IN_LEDGERS:
            if (folder / name).exists():
                ledgers.append(stack.enter_context(open_ledger_of(config, f"sqlite:///{folder / name}")))
        yield ledgers


def _known(ledgers: "list[Ledger]") -> "dict[str, StoredKey]":
    """Every key once, by its hash, as the first ledger that knows it has it."""
    return {row.key_hash: row for ledger in reversed(ledgers) for row in ledger.list_keys()}


def _config(path: str) -> "Config | None":
    from faregate.secrets_file import environment
    from gateway.config import ConfigProblems, load

    try:
        return load(path, environment(path))
    except ConfigProblems as wrong:
        for problem in wrong.problems:
            print(problem, file=sys.stderr)
        return None
