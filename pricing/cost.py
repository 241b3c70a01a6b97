"""What one answer cost: its tokens times the rates that held, plus fees.

    cost = sum of count x rate x multiplier + fees

Rates are whole pico-dollars per token, so the sum is exact. Only three things can leave a fraction of a
pico-dollar: a published rate with more than six decimals, a multiplier, and a provider's own figure. Then the
total is rounded half to even, once, with the flag `rounded`.

The five parts always add up to the total. Where the total was rounded, or where the provider's own figure is
booked in place of ours (`provider_cost = "prefer"`), the total is shared out in proportion to our parts, what is
left over by largest remainder; if ours are all zero, the provider's figure is a fee.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, cast

import msgspec

from pricing.money import PICO_PER_USD, PicoUsd
from pricing.price_row import Fees, Row
from pricing.rates import Rates
from pricing.sheet import PriceBook, moment_of
from pricing.usage import BUCKETS, Reading, Usage

MISMATCH_PICO_USD = 100_000
"""A provider's own figure that is further from ours than this (0.0000001 USD) is flagged."""

UNMETERED = "unmetered"
"""The flag of an answer whose form is not known: what it used, and so what it cost, nobody knows."""

_NO_FLAGS: frozenset[str] = frozenset()
_UNPRICED = frozenset({"unpriced"})
_NOTHING = PicoUsd(0)


class Cost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Dollars of one answer, by class; the classes add up to the total."""

    total: PicoUsd | None  # None: unpriced
    input_uncached: PicoUsd = _NOTHING  # audio and images that no cache served are in here
    input_cached: PicoUsd = _NOTHING  # cached audio too
    cache_write: PicoUsd = _NOTHING
    output: PicoUsd = _NOTHING
    fees: PicoUsd = _NOTHING  # per request, per tool, and one provider's further token counts
    priced_as: str | None = None  # the sheet's name
    price_version: str | None = None  # the `from` of its row, as it was written
    rate_set: str | None = None  # the blocks that applied, joined by "+"
    price_id: str | None = None
    flags: frozenset[str] = _NO_FLAGS
    provider_cost_usd: Decimal | None = None  # the provider's own figure, booked or not


class TokensCost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What some tokens cost, and by which row of a price book."""

    total: PicoUsd | None  # None: unpriced
    price_id: str | None


# Whole numbers in, whose products are money: a call of PicoUsd for each of them takes as long as all the rest.
_cost = cast("Callable[..., Cost]", Cost)
_tokens_cost = cast("Callable[..., TokensCost]", TokensCost)


class _Sum(NamedTuple):
    """A cost before it is rounded: each part is so many `unit`ths of a pico-dollar."""

    parts: tuple[int, int, int, int, int]
    unit: int
    flags: frozenset[str]


def cost_of(
    reading: Reading,
    book: PriceBook,
    *,
    requested_model: str,
    started_at: datetime,
    completed_at: datetime,
    requested_service_tier: str | None = None,
    batch: bool = False,
) -> Cost:
    """Price one answer.

    `started_at` chooses the dated row; windows go by it or by `completed_at`, as the sheet says. The service
    tier is the answer's; only if it names none, the requested one. An answer that nothing is billed for
    (`source` "none") costs 0, priced or not; one that is `UNMETERED` has no cost.
    """
    is_free = reading.source == "none"
    if is_free and UNMETERED in reading.flags:
        return Cost(total=None, flags=_UNPRICED, provider_cost_usd=reading.provider_cost_usd)
    found = book.find(reading.model, requested_model)
    row = None if found is None else found[1].row_at(started_at)
    if found is None or row is None:
        return Cost(
            total=_NOTHING if is_free else None,
            flags=_NO_FLAGS if is_free else _UNPRICED,
            provider_cost_usd=reading.provider_cost_usd,
        )
    usage = reading.usage
    rates = row.rates_for(
        started_at=started_at,
        completed_at=completed_at,
        batch=batch,
        service_tier=reading.service_tier or requested_service_tier,
        input_tokens=usage.input_total,
    )
    if is_free:
        return Cost(
            total=_NOTHING,
            priced_as=found[0],
            price_version=row.version,
            rate_set=rates.rate_set,
            price_id=row.price_id,
            provider_cost_usd=reading.provider_cost_usd,
        )
    if (
        rates.simple is not None
        and usage.is_simple
        and row.fees.are_none
        and reading.provider_cost_usd is None
        and (reading.inference_geo is None or not row.multipliers)
    ):
        return _simple_cost(usage, rates, rates.simple, row, priced_as=found[0])
    exact = _sum_of(usage, rates, row, inference_geo=reading.inference_geo, fee_keys=reading.fee_keys)
    if exact is None:
        return Cost(total=None, flags=_UNPRICED, provider_cost_usd=reading.provider_cost_usd)
    total, parts, flags = _booked(exact, reading.provider_cost_usd, prefer=row.provider_cost == "prefer")
    return Cost(
        total=PicoUsd(total),
        input_uncached=PicoUsd(parts[0]),
        input_cached=PicoUsd(parts[1]),
        cache_write=PicoUsd(parts[2]),
        output=PicoUsd(parts[3]),
        fees=PicoUsd(parts[4]),
        priced_as=found[0],
        price_version=row.version,
        rate_set=rates.rate_set,
        price_id=row.price_id,
        flags=flags,
        provider_cost_usd=reading.provider_cost_usd,
    )


def cost_at_ms(
    reading: Reading,
    book: PriceBook,
    *,
    requested_model: str,
    started_ms: int,
    completed_ms: int,
    requested_service_tier: str | None = None,
) -> Cost:
    """`cost_of` an answer that was not made in a batch; the moments are in milliseconds since 1970."""
    if reading.is_plain:
        price = book.plain_price(reading.model, requested_model, started_ms)
        if price is not None:
            usage = reading.usage
            uncached, cached = usage.input_uncached, usage.input_cached
            tier = reading.service_tier or requested_service_tier
            if (
                uncached + cached <= price.most_input
                and cached <= price.most_cached
                and (tier is None or tier not in price.tiers)
            ):
                uncached *= price.input_uncached
                cached *= price.input_cached
                output = (
                    usage.output_text * price.output_text + usage.output_reasoning * price.output_reasoning
                )
                return _cost(
                    total=uncached + cached + output,
                    input_uncached=uncached,
                    input_cached=cached,
                    output=output,
                    priced_as=price.priced_as,
                    price_version=price.version,
                    rate_set=price.rate_set,
                    price_id=price.price_id,
                )
    return cost_of(
        reading,
        book,
        requested_model=requested_model,
        started_at=moment_of(started_ms),
        completed_at=moment_of(completed_ms),
        requested_service_tier=requested_service_tier,
    )


def cost_of_input_at_ms(input_tokens: int, book: PriceBook, *, model: str, at_ms: int) -> TokensCost:
    """`cost_of_tokens` that are all uncached text input; the moment is in milliseconds since 1970."""
    price = book.plain_price(None, model, at_ms)
    if price is not None and input_tokens <= price.most_input:
        return _tokens_cost(total=input_tokens * price.input_uncached, price_id=price.price_id)
    return cost_of_tokens(Usage(input_uncached=input_tokens), book, model=model, at=moment_of(at_ms))


def cost_of_tokens(usage: Usage, book: PriceBook, *, model: str, at: datetime) -> TokensCost:
    """What these tokens cost at the plain rates of one moment; tools and a provider's further counts are left out."""
    found = book.find(None, model)
    row = None if found is None else found[1].row_at(at)
    if row is not None and usage.is_simple and row.fees.are_none:
        rates = row.rates_for(
            started_at=at, completed_at=at, batch=False, service_tier=None, input_tokens=usage.input_total
        )
        if rates.simple is not None:
            plain, cached, text, thought = rates.simple
            total = (
                usage.input_uncached * plain
                + usage.input_cached * cached
                + usage.output_text * text
                + usage.output_reasoning * thought
            )
            return TokensCost(total=PicoUsd(total), price_id=row.price_id)
    if usage.tools or usage.extra:
        usage = Usage(**{bucket: getattr(usage, bucket) for bucket in BUCKETS})
    reading = Reading(usage=usage, source="provider")
    cost = cost_of(reading, book, requested_model=model, started_at=at, completed_at=at)
    return TokensCost(total=cost.total, price_id=cost.price_id)


def _simple_cost(usage: Usage, rates: Rates, simple: tuple[int, ...], row: Row, *, priced_as: str) -> Cost:
    """The cost where there is no fee, no multiplier, no figure of the provider and nothing beyond `SIMPLE_BUCKETS`.

    So it is for most answers: the same as `_sum_of` and `_booked`, without the steps that cannot matter.
    """
    plain, cached, text, thought = simple
    uncached = usage.input_uncached * plain
    from_cache = usage.input_cached * cached
    output = usage.output_text * text + usage.output_reasoning * thought
    # One cast, since a call of PicoUsd for each of them takes as long as all the rest.
    amounts = cast(
        "tuple[PicoUsd, PicoUsd, PicoUsd, PicoUsd]",
        (uncached + from_cache + output, uncached, from_cache, output),
    )
    return Cost(
        total=amounts[0],
        input_uncached=amounts[1],
        input_cached=amounts[2],
        output=amounts[3],
        priced_as=priced_as,
        price_version=row.version,
        rate_set=rates.rate_set,
        price_id=row.price_id,
    )


def _sum_of(
    usage: Usage, rates: Rates, row: Row, *, inference_geo: str | None, fee_keys: Mapping[str, str]
) -> _Sum | None:
    """None: tokens were used for which the sheet has no rate at all."""
    per_bucket = rates.per_bucket
    flags = _NO_FLAGS
    if not rates.is_complete and any(rates.doubtful(usage)):
        used = [index for index, bucket in enumerate(BUCKETS) if getattr(usage, bucket)]
        if not rates.lacking.isdisjoint(used):
            return None
        flags = frozenset(flag for index in used if (flag := rates.flags[index]) is not None)
    plain, cached, write_5m, write_1h, audio, audio_cached, image, text, thought, spoken, drawn = per_bucket
    uncached = usage.input_uncached * plain + usage.input_audio * audio + usage.input_image * image
    from_cache = usage.input_cached * cached + usage.input_audio_cached * audio_cached
    written = usage.cache_write_5m * write_5m + usage.cache_write_1h * write_1h
    output = (
        usage.output_text * text
        + usage.output_reasoning * thought
        + usage.output_audio * spoken
        + usage.output_image * drawn
    )
    further = fees = 0
    if usage.extra or usage.tools or not row.fees.are_none:
        further, fees, unpriced = _fees(usage, rates, row.fees, fee_keys)
        flags |= unpriced
    if inference_geo is not None and row.multipliers:
        numerator, denominator = row.multipliers.get(inference_geo, (1, 1))
        return _Sum(
            parts=(
                uncached * numerator,
                from_cache * numerator,
                written * numerator,
                output * numerator,
                further * numerator + fees * denominator,
            ),
            unit=rates.scale * denominator,
            flags=flags,
        )
    return _Sum(parts=(uncached, from_cache, written, output, further + fees), unit=rates.scale, flags=flags)


def _fees(
    usage: Usage, rates: Rates, fees: Fees, fee_keys: Mapping[str, str]
) -> tuple[int, int, frozenset[str]]:
    """One provider's further tokens, which a multiplier touches; other fees; what has no price."""
    unpriced: set[str] = set()
    further, total = 0, fees.per_request
    for name, count in usage.extra.items():
        rate = rates.extra.get(name)
        if rate is None and count:
            unpriced.add(f"fee_unpriced:{name}")
        further += count * (rate or 0)
    for name, count in usage.tools.items():
        fee = fees.tools.get(name)
        if fee is None and count:
            unpriced.add(f"fee_unpriced:{name}")
        total += count * (fee or 0)
    for key, by_value in fees.per_request_by.items():
        value = fee_keys.get(key)
        if value is not None and value not in by_value:
            unpriced.add(f"fee_unpriced:{key}")
        total += by_value.get(value, 0) if value is not None else 0
    return further, total, frozenset(unpriced)


def _booked(
    exact: _Sum, provider_usd: Decimal | None, *, prefer: bool
) -> tuple[int, Sequence[int], frozenset[str]]:
    """The total in whole pico-dollars, its parts, and the flags."""
    parts, flags = exact.parts, exact.flags
    amount = sum(parts)
    if provider_usd is None:
        if exact.unit == 1:
            return amount, parts, flags
        return _rounded(amount, exact.unit, parts, flags)
    theirs = Fraction(provider_usd) * PICO_PER_USD
    if abs(theirs - Fraction(amount, exact.unit)) > MISMATCH_PICO_USD:
        flags |= {"cost_mismatch"}
    if prefer:
        return _rounded(theirs.numerator, theirs.denominator, parts, flags | {"provider_cost"})
    return _rounded(amount, exact.unit, parts, flags)


def _rounded(
    numerator: int, denominator: int, weights: Sequence[int], flags: frozenset[str]
) -> tuple[int, Sequence[int], frozenset[str]]:
    """Round half to even and share the total out."""
    total, rest = divmod(numerator, denominator)
    if rest:
        flags |= {"rounded"}
        if 2 * rest > denominator or (2 * rest == denominator and total % 2):
            total += 1
    return total, _shared_out(total, weights), flags


def _shared_out(total: int, weights: Sequence[int]) -> Sequence[int]:
    """Split into whole parts in proportion; what is left goes to the largest remainders, the first of equals."""
    whole = sum(weights)
    if not whole:
        return (0, 0, 0, 0, total)
    split = [divmod(total * weight, whole) for weight in weights]
    parts = [part for part, _ in split]
    order = sorted(range(len(weights)), key=lambda index: -split[index][1])
    for index in order[: total - sum(parts)]:
        parts[index] += 1
    return parts
