"""The most a request may cost, to be held before it is sent."""

from datetime import datetime

from pricing.money import PicoUsd
from pricing.rates import RATE_NAMES, Rates
from pricing.sheet import Row, Sheet

_INPUT = tuple(index for index, name in enumerate(RATE_NAMES) if not name.startswith("output"))
_OUTPUT = tuple(index for index, name in enumerate(RATE_NAMES) if name.startswith("output"))
_AUDIO = frozenset({"input_audio", "input_audio_cached", "output_audio"})


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
    dearest: int | None = None
    for rates in _possible(row, input_tokens, service_tier):
        dear_input = _dearest(rates, _INPUT, has_audio)
        dear_output = _dearest(rates, _OUTPUT, has_audio)
        if dear_input is None or (dear_output is None and max_output_tokens):
            return None
        tokens = input_tokens * dear_input + choices * max_output_tokens * (dear_output or 0)
        dearest = tokens if dearest is None else max(dearest, tokens)
    if dearest is None:
        return None
    fees = row.fees.per_request
    for by_value in row.fees.per_request_by.values():
        fees += max(by_value.values(), default=0)
    numerator, denominator = max(
        ((1, 1), *row.multipliers.values()), key=lambda factor: factor[0] / factor[1]
    )
    unit = row.scale * denominator
    return PicoUsd(-(-(dearest * numerator + fees * denominator) // unit))


def _possible(row: Row, input_tokens: int, service_tier: str | None) -> list[Rates]:
    """The rates of every combination of blocks that the answer may turn out to have."""
    tiers: list[str | None] = [None]
    if service_tier == "auto":
        tiers += row.tiers
    elif service_tier is not None and service_tier in row.tiers:
        tiers.append(service_tier)
    found: list[Rates] = []
    for tier in tiers:
        own = None if tier is None else row.tiers[tier].step
        step = own or row.step
        for window in range(-1, len(row.windows)):
            for is_long in (False, True):
                if is_long and (step is None or not step.reached_by(input_tokens)):
                    continue
                found.append(row.rates_of(window=window, batch=False, service_tier=tier, is_long=is_long))
    return found


def _dearest(rates: Rates, buckets: tuple[int, ...], has_audio: bool) -> int | None:
    per_bucket = [
        rates.per_bucket[index]
        for index in buckets
        if index not in rates.lacking and (has_audio or RATE_NAMES[index] not in _AUDIO)
    ]
    return max(per_bucket, default=None)
