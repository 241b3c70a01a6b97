"""What the same tokens would have cost elsewhere: an upper bound of what a route saved.

It is a bound and not a saving, because another model would have used other tokens.
"""

from datetime import datetime

from pricing.cost import cost_of_tokens
from pricing.money import PicoUsd
from pricing.sheet import PriceBook
from pricing.usage import Usage


def same_tokens(usage: Usage, book: PriceBook, *, model: str, at: datetime) -> PicoUsd | None:
    """The tokens of one answer at a baseline's prices of that moment; None: it has none.

    At its plain rates and long-context steps; service tiers, and tools that a baseline may not have, are left out.
    """
    return cost_of_tokens(usage, book, model=model, at=at).total
