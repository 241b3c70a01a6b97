"""The most a request may cost, to be held before it is sent."""

from datetime import datetime

from pricing.money import PicoUsd
from pricing.sheet import PriceBook, Sheet, moment_of


def worst_case_at_ms(
    book: PriceBook,
    model: str,
    input_tokens: int,
    max_output_tokens: int,
    choices: int = 1,
    *,
    at_ms: int,
    service_tier: str | None = None,
    has_audio: bool = True,
) -> PicoUsd | None:
    """The `worst_case` of a model in a book, which may have no price for it; `at_ms` is in milliseconds since 1970."""
    price = book.plain_price(None, model, at_ms)
    if (
        price is not None
        and input_tokens <= price.most_input
        and not has_audio
        and not price.has_multipliers
        and (service_tier is None or service_tier not in price.tiers)
    ):
        return PicoUsd(
            input_tokens * price.dearest_input + choices * max_output_tokens * price.dearest_output
        )
    found = book.find(None, model)
    if found is None:
        return None
    return worst_case(
        found[1],
        input_tokens,
        max_output_tokens,
        choices,
        at=moment_of(at_ms),
        service_tier=service_tier,
        has_audio=has_audio,
    )


def worst_case(
    sheet: Sheet,
    input_tokens: int,
    max_output_tokens: int,
    choices: int = 1,
    *,
    at: datetime,
    service_tier: str | None = None,
    has_audio: bool = True,
) -> PicoUsd | None:
    """An upper bound of what a request that starts at `at` costs; None: the sheet has no price then.

    `input_tokens` and `max_output_tokens` (of one choice) must be upper bounds themselves. Every input token is
    counted at the dearest kind of input (a cache write, say), every output token at the dearest kind of output.
    Windows may change while the answer comes and a service tier may be refused, so all windows, the plain rates
    and the tier asked for are looked at; a tier of "auto" may turn out to be any. A long-context step counts if
    so much input can reach it. `has_audio` False: neither side can have audio tokens, so their rates do not count.

    Not in the bound: tools, one provider's further counts, batch, and reasoning that a provider bills beside the
    most output it was told.
    """
    row = sheet.row_at(at)
    if row is None:
        return None
    dearest = row.dearest(input_tokens=input_tokens, service_tier=service_tier, has_audio=has_audio)
    if dearest.lacks_input or (dearest.lacks_output and max_output_tokens):
        return None
    output_tokens = choices * max_output_tokens
    tokens = max([input_tokens * each_in + output_tokens * each_out for each_in, each_out in dearest.pairs])
    fees, unit = row.fees.per_request, row.scale
    for by_value in row.fees.per_request_by.values():
        fees += max(by_value.values(), default=0)
    amount = tokens + fees
    if row.multipliers:
        numerator, denominator = max(
            ((1, 1), *row.multipliers.values()), key=lambda factor: factor[0] / factor[1]
        )
        amount = tokens * numerator + fees * denominator
        unit *= denominator
    return PicoUsd(-(-amount // unit))
