"""One row of a price sheet: what a model costs from one moment on.

The blocks of a row apply in this order: windows, batch, service tier, long context; each replaces the rates it
names and leaves the others. Of several long-context steps all that are reached apply, the shortest first. A batch
or a service tier may bring steps of its own, which then stand in place of the row's; a tier's before a batch's.
"""

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pricing.rates import Dearest, Rates

RATE_DECIMALS = 6
"""Of a rate in dollars per million tokens that is whole pico-dollars a token."""

USD_DECIMALS = 12
MOST_DECIMALS = 24

Clock = Literal["request_start", "response_end"]
ProviderCost = Literal["prefer", "record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The rates that one part of a sheet names, in pico-dollars per token times the row's scale."""

    rates: Mapping[str, int]
    extra: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A span of the day, in seconds since midnight UTC; it may wrap past midnight."""

    name: str
    days: frozenset[int]  # 1 is Monday
    from_: int
    to: int  # exclusive
    block: Block

    def holds_at(self, moment: datetime) -> bool:
        """True if the moment, whose own UTC day counts, lies in the window."""
        if moment.isoweekday() not in self.days:
            return False
        second = moment.hour * 3600 + moment.minute * 60 + moment.second
        if self.from_ < self.to:
            return self.from_ <= second < self.to
        return second >= self.from_ or second < self.to


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Rates for the whole request once its input is long."""

    threshold: int
    at_or_above: bool
    block: Block

    @property
    def least(self) -> int:
        """The smallest input that pays these rates."""
        return self.threshold + (not self.at_or_above)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What one kind of service costs: the batch interface, or a service tier of the provider."""

    block: Block
    steps: tuple[
        Step, ...
    ]  # its own long-context rates, the shortest first; if there are any, the row's do not apply


@dataclass(frozen=True, slots=True, kw_only=True)
class Fees:
    """Dollars that do not depend on tokens: pico-dollars times the row's scale."""

    per_request: int
    per_request_by: Mapping[str, Mapping[str, int]]  # by a field of the usage object
    tools: Mapping[str, int]  # per unit of a tool

    @property
    def are_none(self) -> bool:
        """True if an answer without tools has no fee."""
        return not self.per_request and not self.per_request_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a sheet said from one moment on."""

    from_: datetime | None  # None: always
    version: str | None  # `from` as it was written
    price_id: str | None
    scale: int
    clock: Clock
    base: Block
    windows: tuple[Window, ...]
    batch: Service | None
    tiers: Mapping[str, Service]
    steps: tuple[Step, ...]  # the shortest first
    multipliers: Mapping[str, tuple[int, int]]  # by inference_geo: numerator, denominator
    fees: Fees
    provider_cost: ProviderCost | None
    source: str | None = None  # where the price stands
    checked_on: str | None = None  # the day on which somebody last read it there
    confirmed: bool = False  # somebody said that what looks strange in it is meant
    free: bool = False  # somebody said that rates of 0 are meant
    # as many entries as the row has combinations of blocks
    _rates: dict[tuple[int, bool, str | None, int], Rates] = field(
        default_factory=dict[tuple[int, bool, str | None, int], Rates], repr=False, compare=False
    )
    # as many entries as it has service tiers and long-context thresholds, times two
    _dearest: dict[tuple[str | None, bool, int], Dearest] = field(
        default_factory=dict[tuple[str | None, bool, int], Dearest], init=False, repr=False, compare=False
    )
    _lengths: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Know the smallest inputs at which long-context rates begin, in order."""
        steps = [*self.steps, *(step for tier in self.tiers.values() for step in tier.steps)]
        object.__setattr__(self, "_lengths", tuple(sorted({step.least for step in steps})))

    def rates_for(
        self,
        *,
        started_at: datetime,
        completed_at: datetime,
        batch: bool,
        service_tier: str | None,
        input_tokens: int,
    ) -> Rates:
        """The rates of one answer."""
        window = -1
        if self.windows:
            moment = started_at if self.clock == "request_start" else completed_at
            moment = moment.astimezone(UTC)
            for index, candidate in enumerate(self.windows):
                if candidate.holds_at(moment):
                    window = index
                    break
        if service_tier is not None and service_tier not in self.tiers:
            service_tier = None
        batch = batch and self.batch is not None
        length = 0
        for step in self.steps_of(batch=batch, service_tier=service_tier):
            if input_tokens < step.least:
                break
            length += 1
        found = self._rates.get((window, batch, service_tier, length))
        if found is not None:
            return found
        return self.rates_of(window=window, batch=batch, service_tier=service_tier, length=length)

    def rates_of(self, *, window: int, batch: bool, service_tier: str | None, length: int) -> Rates:
        """The rates under these blocks, which must be in the row.

        `window` counts from 0, -1 is none; `length` is how many of the steps are reached.
        """
        key = (window, batch, service_tier, length)
        found = self._rates.get(key)
        if found is None:
            found = self._rates[key] = self._join(window, batch, service_tier, length)
        return found

    def steps_of(self, *, batch: bool, service_tier: str | None) -> tuple[Step, ...]:
        """The long-context steps of an answer that was served so; the blocks must be in the row."""
        if service_tier is not None and self.tiers[service_tier].steps:
            return self.tiers[service_tier].steps
        if batch and self.batch is not None and self.batch.steps:
            return self.batch.steps
        return self.steps

    def dearest(self, *, input_tokens: int, service_tier: str | None, has_audio: bool) -> Dearest:
        """The dearest rates among all blocks that may apply to an answer, at any time of day.

        The plain rates are among them, since a service tier may be refused; a tier of "auto" may turn out to be any.
        """
        if service_tier is not None and service_tier != "auto" and service_tier not in self.tiers:
            service_tier = None
        length = bisect_right(self._lengths, input_tokens)  # how many of the thresholds are reached
        key = (service_tier, has_audio, length)
        found = self._dearest.get(key)
        if found is None:
            found = Dearest.of(self._possible(input_tokens, service_tier), has_audio=has_audio)
            self._dearest[key] = found
        return found

    def _possible(self, input_tokens: int, service_tier: str | None) -> list[Rates]:
        """The rates of every combination of blocks that the answer may turn out to have."""
        tiers: list[str | None] = [None]
        if service_tier == "auto":
            tiers += self.tiers
        elif service_tier is not None:
            tiers.append(service_tier)
        found: list[Rates] = []
        for tier in tiers:
            steps = self.steps_of(batch=False, service_tier=tier)
            reached = sum(step.least <= input_tokens for step in steps)
            for window in range(-1, len(self.windows)):
                found += [
                    self.rates_of(window=window, batch=False, service_tier=tier, length=length)
                    for length in range(reached + 1)
                ]
        return found

    def as_text(self) -> str:
        """All that answers are priced by, as JSON in the form of the price book, amounts as decimal texts.

        Rows that price alike from the same moment on have the same text, however their amounts were written and
        whoever checked them.
        """
        return json.dumps(self.as_table(), ensure_ascii=False, sort_keys=True)

    def as_table(self) -> dict[str, Any]:
        """The same as plain values."""
        return _plain_row(self)

    def _join(self, window: int, batch: bool, service_tier: str | None, length: int) -> Rates:
        rates, extra = dict(self.base.rates), dict(self.base.extra)
        names: list[str] = []

        def put(name: str, block: Block) -> None:
            names.append(name)
            rates.update(block.rates)
            extra.update(block.extra)

        if window >= 0:
            put(self.windows[window].name, self.windows[window].block)
        if batch and self.batch is not None:
            put("batch", self.batch.block)
        if service_tier is not None:
            put(service_tier, self.tiers[service_tier].block)
        steps = self.steps_of(batch=batch, service_tier=service_tier)[:length]
        for step in steps:
            put("long_context", step.block)
        if len(steps) > 1:
            del names[1 - len(steps) :]  # said once
        return Rates.of(rates, extra=extra, scale=self.scale, rate_set="+".join(names) or "base")


def _plain_row(row: Row) -> dict[str, Any]:
    beyond = len(str(row.scale)) - 1  # decimals that the scale adds

    def rates(block: Block) -> dict[str, Any]:
        decimals = RATE_DECIMALS + beyond
        plain: dict[str, Any] = {name: _decimal_text(rate, decimals) for name, rate in block.rates.items()}
        if block.extra:
            plain["extra"] = {kind: _decimal_text(rate, decimals) for kind, rate in block.extra.items()}
        return plain

    def long_context(steps: tuple[Step, ...]) -> dict[str, Any]:
        plain = [
            {
                "threshold": step.threshold,
                "applies": "at_or_above" if step.at_or_above else "above",
                "rates": rates(step.block),
            }
            for step in steps
        ]
        return {"long_context": plain[0] if len(plain) == 1 else plain} if plain else {}

    def service(kind: Service) -> dict[str, Any]:
        return {"rates": rates(kind.block), **long_context(kind.steps)}

    def usd(fees: Mapping[str, int]) -> dict[str, str]:
        return {name: _decimal_text(fee, USD_DECIMALS + beyond) for name, fee in fees.items()}

    plain: dict[str, Any] = {"from": row.version, "rates": rates(row.base)}
    if row.windows:
        plain["clock"] = row.clock
        plain["windows"] = [
            {
                "name": window.name,
                "days": sorted(window.days),
                "from": _time_text(window.from_),
                "to": _time_text(window.to),
                "rates": rates(window.block),
            }
            for window in row.windows
        ]
    if row.batch is not None:
        plain["batch"] = service(row.batch)
    if row.tiers:
        plain["service_tiers"] = {name: service(tier) for name, tier in row.tiers.items()}
    plain |= long_context(row.steps)
    if row.multipliers:
        plain["multipliers"] = {
            "inference_geo": {
                # Exact: a factor was read from a decimal with no more decimals than these.
                place: _decimal_text(numerator * 10**MOST_DECIMALS // denominator, MOST_DECIMALS)
                for place, (numerator, denominator) in row.multipliers.items()
            }
        }
    if row.fees.per_request:
        plain["per_request"] = _decimal_text(row.fees.per_request, USD_DECIMALS + beyond)
    if row.fees.per_request_by:
        plain["per_request_by"] = {key: usd(cases) for key, cases in row.fees.per_request_by.items()}
    if row.fees.tools:
        plain["tools"] = usd(row.fees.tools)
    if row.provider_cost is not None:
        plain["provider_cost"] = row.provider_cost
    return plain


def _decimal_text(number: int, decimals: int) -> str:
    """`number` / 10**`decimals`, exactly and without zeros at its end."""
    digits = str(number).zfill(decimals + 1)
    whole, fraction = digits[:-decimals], digits[-decimals:].rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def _time_text(second: int) -> str:
    text = f"{second // 3600:02}:{second // 60 % 60:02}"
    return text if second % 60 == 0 else f"{text}:{second % 60:02}"
