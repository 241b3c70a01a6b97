"""`faregate prices check`: whether prices can be meant."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

from faregate.prices.source import prices_here, say
from pricing.price_checks import Finding, check_rows
from pricing.published import BOOK, OWN_ORIGIN, PriceFile, load_book, read_price_file


def run(args: argparse.Namespace) -> int:
    """Check, print, and give the exit code."""
    if args.file is not None:
        path = Path(args.file)
        if not path.is_file():
            return say(f"{args.file} is no file")
        files = {args.file: read_price_file(path, origin=OWN_ORIGIN)}
    else:
        prices = prices_here(args)
        if prices is None:
            return 2
        files = {f"book/{path.name}": read_price_file(path) for path in sorted(BOOK.glob("*.toml"))}
        if prices.config is not None and prices.config.gateway.price_file is not None:
            path = Path(prices.config.gateway.price_file)
            files[str(path)] = read_price_file(path, origin=OWN_ORIGIN)
    today = datetime.now(UTC).date()
    known = load_book()
    found = {name: check_rows(file.rows, today=today, known=known) for name, file in files.items()}
    problems = {name: file.problems for name, file in files.items() if file.problems}
    if args.json:
        print(json.dumps(_facts(files, problems, found), ensure_ascii=False))
    else:
        _print(files, problems, found, yes=args.yes)
    stops = {"refused"} if args.yes else {"refused", "asked"}
    return 1 if problems or any(one.level in stops for each in found.values() for one in each) else 0


def _facts(
    files: dict[str, PriceFile], problems: dict[str, tuple[str, ...]], found: dict[str, tuple[Finding, ...]]
) -> dict[str, object]:
    return {
        "rows": sum(len(file.rows) for file in files.values()),
        "problems": [
            {"file": name, "message": problem} for name, each in problems.items() for problem in each
        ],
        "findings": [
            {
                "file": name,
                "level": one.level,
                "provider": one.provider,
                "model": one.model,
                "from": one.version,
                "field": one.field,
                "message": one.message,
            }
            for name, each in found.items()
            for one in each
        ],
    }


def _print(
    files: dict[str, PriceFile],
    problems: dict[str, tuple[str, ...]],
    found: dict[str, tuple[Finding, ...]],
    *,
    yes: bool,
) -> None:
    for name, each in problems.items():
        for problem in each:
            print(f"refused  {name}: {problem}")
    for name, findings in found.items():
        for one in findings:
            print(f"{one.level:8} {name}: {one.text}")
    rows = sum(len(file.rows) for file in files.values())
    levels = [one.level for each in found.values() for one in each]
    refused = levels.count("refused") + sum(len(each) for each in problems.values())
    asked = levels.count("asked")
    if refused or asked:
        print()
    print(f"{rows} rows: {refused} refused, {asked} asked, {levels.count('noted')} noted")
    if asked and not yes:
        print("what is asked and meant: say confirmed = true in the row, or --yes here")
