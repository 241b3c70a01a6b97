"""What the same tokens would have cost elsewhere: an upper bound of what a route saved.

It is a bound and not a saving, because another model would have used other tokens.
"""

from datetime import datetime

from pricing.cost import cost_of
from pricing.money import PicoUsd
from pricing.sheet import PriceBook
from pricing.usage import Reading, Usage


def same_tokens(usage: Usage, book: PriceBook, *, model: str, at: datetime) -> PicoUsd | None:
    """The tokens of one answer at a baseline's prices of that moment; None: it has none.

    At its plain rates and long-context steps; service tiers, and tools that a baseline may not have, are left out.
    """
    tokens = Reading(
        usage=Usage(
            input_uncached=usage.input_uncached,
            input_cached=usage.input_cached,
            cache_write_5m=usage.cache_write_5m,
            cache_write_1h=usage.cache_write_1h,
            input_audio=usage.input_audio,
            input_audio_cached=usage.input_audio_cached,
            input_image=usage.input_image,
            output_text=usage.output_text,
            output_reasoning=usage.output_reasoning,
            output_audio=usage.output_audio,
            output_image=usage.output_image,
        ),
        source="provider",
    )
    return cost_of(tokens, book, requested_model=model, started_at=at, completed_at=at).total
