"""What the same tokens would have cost elsewhere: an upper bound of what a route saved.

It is a bound and not a saving, because another model would have used other tokens.
"""

from datetime import datetime

from pricing.cost import cost_of_tokens
from pricing.money import PicoUsd
from pricing.sheet import PriceBook, moment_of
from pricing.usage import Reading, Usage


def same_tokens(usage: Usage, book: PriceBook, *, model: str, at: datetime) -> PicoUsd | None:
    """The tokens of one answer at a baseline's prices of that moment; None: it has none.

    At its plain rates and long-context steps; service tiers, and tools that a baseline may not have, are left out.
    """
    return cost_of_tokens(usage, book, model=model, at=at).total


def same_tokens_at_ms(reading: Reading, book: PriceBook, *, model: str, at_ms: int) -> PicoUsd | None:
    """`same_tokens` as one answer had; the moment is in milliseconds since 1970."""
    usage = reading.usage
    if reading.is_plain:
        price = book.plain_price(None, model, at_ms)
        if price is not None:
            uncached, cached = usage.input_uncached, usage.input_cached
            if uncached + cached <= price.most_input:
                return PicoUsd(
                    uncached * price.input_uncached
                    + cached * price.input_cached
                    + usage.output_text * price.output_text
                    + usage.output_reasoning * price.output_reasoning
                )
    return same_tokens(usage, book, model=model, at=moment_of(at_ms))
