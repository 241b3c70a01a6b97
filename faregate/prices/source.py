"""Which prices the commands look at: the published ones, and what faregate.toml says if it is here."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from gateway.config import Config
from pricing.sheet import PriceBook

DEFAULT_CONFIG = "faregate.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """All prices there are here."""

    book: PriceBook  # what is published: the program's, with the rows of `price_file`
    config: Config | None  # None: there is no file


def prices_here(args: argparse.Namespace) -> Prices | None:
    """The prices that `--config` means; None: it cannot be used, and that was said."""
    from faregate.secrets_file import environment
    from gateway.config import ConfigProblems, load
    from pricing.published import load_book

    path = args.config or DEFAULT_CONFIG
    if args.config is None and not Path(path).exists():
        return Prices(book=load_book(), config=None)
    try:
        config = load(path, environment(path), needs_secrets=False)
    except ConfigProblems as wrong:
        for problem in wrong.problems:
            say(str(problem))
        return None
    return Prices(book=load_book(own=config.gateway.price_file), config=config)


def say(text: str) -> int:
    """Tell a person what went wrong; gives the exit code of wrong use."""
    print(text, file=sys.stderr)
    return 2
