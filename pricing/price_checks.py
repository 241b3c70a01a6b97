"""Looks for prices that are hardly meant: a slip of the unit, a lost rate, a cached token dearer than a fresh one.

What is refused is wrong or a thousand times off; what is asked may be meant, and `confirmed = true` in the row says
that it is. What is noted needs no answer. Whether a row can be read at all is not checked here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from pricing.money import PICO_PER_USD
from pricing.price_row import Block, Row
from pricing.published import ListedRow
from pricing.sheet import PriceBook

LEAP = 1000
"""A rate that changes by this factor is more likely a slip of the unit than a new price."""

LEAST_USD_PER_MTOK = Fraction(1, 2000)
"""Nobody asks less for a million tokens, but every rate is less where dollars per token were written down."""

MOST_USD_PER_MTOK = 1000
"""Nobody asks more: the dearest published rate is $600."""

STALE_DAYS = 365
"""A price in force that nobody has read for so long is noted."""

_FIRST_DAY = datetime(2020, 6, 1, tzinfo=UTC)  # before it there was no such interface to pay for
_FAR_DAYS = 400
_ALL_CACHE = frozenset({"anthropic", "deepseek", "moonshot", "xai"})
"""Providers whose every chat model reads from a cache at a price of its own, as their pricing pages say
(platform.claude.com, api-docs.deepseek.com, platform.kimi.ai, docs.x.ai; read 2026-12-01)."""

_CHEAPER = frozenset({"batch", "flex"})
_DEARER = frozenset({"priority", "fast", "ultrafast"})

Level = Literal["refused", "asked", "noted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something strange in one row."""

    level: Level
    provider: str
    model: str
    version: str | None  # the row's `from`
    place: str  # in its file
    field: str  # `service_tiers.flex.rates.input`
    message: str

    @property
    def text(self) -> str:
        """The whole in one line."""
        where = self.place or f'"{self.model}"'
        return f"{where} from {self.version or 'always'}: {self.field} {self.message}"


def check_rows(
    listed: Sequence[ListedRow], *, today: date, known: PriceBook | None = None
) -> tuple[Finding, ...]:
    """Everything strange in the rows of one file, in its order; `known` is a book whose rows stand beside them."""
    findings: list[Finding] = []
    last: dict[tuple[str, str], Row] = {}  # the latest in the file so far
    for one in listed:
        key = (one.provider, one.model)
        findings += _out_of_order(one, last.get(key))
        last[key] = one.row
        findings += check_row(one, _others(one, listed, known), today=today)
    return tuple(findings)


def check_row(one: ListedRow, others: Iterable[Row], *, today: date) -> tuple[Finding, ...]:
    """Everything strange in one row; `others` are the other rows of its model."""
    dated = sorted(others, key=_start)
    before = [row for row in dated if _start(row) < _start(one.row)]
    after = [row for row in dated if _start(row) > _start(one.row)]
    notes = _Notes(one)
    if not one.row.confirmed:
        _check_leaps(notes, before[-1] if before else None)
        _check_units(notes)
        _check_shape(notes, before[-1] if before else None)
        _check_blocks(notes)
        _check_fees(notes)
        _check_start(notes, today)
    _check_reading(notes, today, in_force=_is_in_force(one.row, after, today))
    return tuple(notes.findings)


def usd_per_mtok(rate: int, scale: int) -> Fraction:
    """A rate as a row keeps it -> dollars per million tokens."""
    return Fraction(rate * 1_000_000, scale * PICO_PER_USD)


def is_leap(old: Fraction, new: Fraction) -> bool:
    """True if a rate changes so much that it must be confirmed; from or to nothing is no leap."""
    return bool(old and new) and (new >= old * LEAP or new * LEAP <= old)


def decimal_text(amount: Fraction) -> str:
    """An amount that a decimal can say, without zeros at its end."""
    exact = Decimal(amount.numerator) / Decimal(amount.denominator)
    return f"{exact.normalize():f}"


class _Notes:
    """Collects what is found in one row."""

    def __init__(self, one: ListedRow) -> None:
        self.row = one.row
        self.findings: list[Finding] = []
        self.provider = one.provider
        self._one = one

    def add(self, level: Level, field: str, message: str) -> None:
        self.findings.append(
            Finding(
                level=level,
                provider=self._one.provider,
                model=self._one.model,
                version=self._one.row.version,
                place=self._one.place,
                field=field,
                message=message,
            )
        )

    def usd(self, rate: int) -> Fraction:
        return usd_per_mtok(rate, self.row.scale)


def blocks_of(row: Row) -> Iterator[tuple[str, Block]]:
    """Every table of rates in a row, with its place."""
    yield "rates", row.base
    for window in row.windows:
        yield f"windows.{window.name}.rates", window.block
    services = {"batch": row.batch} if row.batch is not None else {}
    services |= {f"service_tiers.{name}": tier for name, tier in row.tiers.items()}
    for place, service in services.items():
        yield f"{place}.rates", service.block
        for step in service.steps:
            yield f"{place}.long_context.{step.threshold}.rates", step.block
    for step in row.steps:
        yield f"long_context.{step.threshold}.rates", step.block


def _start(row: Row) -> datetime:
    return row.from_ or datetime.min.replace(tzinfo=UTC)


def _others(one: ListedRow, listed: Iterable[ListedRow], known: PriceBook | None) -> list[Row]:
    rows = [
        other.row
        for other in listed
        if (other.provider, other.model) == (one.provider, one.model) and other.row is not one.row
    ]
    found = None if known is None else known.for_provider(one.provider).find(None, one.model)
    if found is not None:
        taken = {row.price_id for row in (*rows, one.row)}
        rows += [row for row in found[1].rows if row.price_id not in taken and row.from_ != one.row.from_]
    return rows


def _is_in_force(row: Row, after: Iterable[Row], today: date) -> bool:
    now = datetime(today.year, today.month, today.day, tzinfo=UTC)
    return _start(row) <= now and not any(_start(other) <= now for other in after)


def _out_of_order(one: ListedRow, before: Row | None) -> Iterator[Finding]:
    if before is not None and _start(one.row) < _start(before):
        notes = _Notes(one)
        message = f"is earlier than the row before it ({before.version}); rows are added at the end"
        notes.add("refused", "from", message)
        yield from notes.findings


def _check_leaps(notes: _Notes, before: Row | None) -> None:
    if before is None:
        return
    former = dict(blocks_of(before))
    for place, block in blocks_of(notes.row):
        old = former.get(place)
        if old is None:
            continue
        for name, rate in _all_rates(block).items():
            was, now = _all_rates(old).get(name), notes.usd(rate)
            if was is None:
                continue
            usd = usd_per_mtok(was, before.scale)
            if is_leap(usd, now):
                message = f"is {decimal_text(now)} after {decimal_text(usd)}: is the unit right?"
                notes.add("refused", f"{place}.{name}", message)


def _check_units(notes: _Notes) -> None:
    for place, block in blocks_of(notes.row):
        for name, rate in _all_rates(block).items():
            usd = notes.usd(rate)
            if not usd:
                if not notes.row.free:
                    message = "is 0; free = true says that such tokens cost nothing"
                    notes.add("asked", f"{place}.{name}", message)
            elif usd < LEAST_USD_PER_MTOK:
                message = (
                    f"is {decimal_text(usd)} dollars per million tokens: "
                    f"is that per token ({decimal_text(usd * 1_000_000)} per million)?"
                )
                notes.add("refused", f"{place}.{name}", message)
            elif usd > MOST_USD_PER_MTOK:
                message = f"is {decimal_text(usd)} dollars per million tokens: is that per billion?"
                notes.add("refused", f"{place}.{name}", message)


def _check_shape(notes: _Notes, before: Row | None) -> None:
    """Whether the plain rates stand to each other as they do everywhere."""
    rates = notes.row.base.rates
    fresh, made = rates.get("input"), rates.get("output")
    if fresh is not None and made is not None and 0 < made < fresh:
        notes.add("asked", "rates.output", "is less than rates.input")
    if "input_cached" not in rates:
        if before is not None and "input_cached" in before.base.rates:
            notes.add("refused", "rates.input_cached", "is missing; the row before it has one")
        elif notes.provider in _ALL_CACHE and made:
            notes.add("asked", "rates.input_cached", f"is missing; models of {notes.provider} cache")
    if notes.provider == "anthropic" and made:
        for name in ("cache_write_5m", "cache_write_1h"):
            if name not in rates:
                notes.add("asked", f"rates.{name}", "is missing; every model of anthropic has one")


def _check_blocks(notes: _Notes) -> None:
    base = notes.row.base.rates
    for place, block in blocks_of(notes.row):
        whole = {**base, **block.rates}
        if not any(block.rates.values()):
            continue
        for cheap, dear in (
            ("input_cached", "input"),
            ("input_audio_cached", "input_audio"),
            ("input", "cache_write_5m"),
            ("cache_write_5m", "cache_write_1h"),
        ):
            if (
                cheap in whole
                and dear in whole
                and whole[cheap] > whole[dear]
                and (cheap in block.rates or dear in block.rates)
            ):
                notes.add("asked", f"{place}.{cheap}", f"is more than {dear}")
        kind = _kind_of(place)
        for name, rate in block.rates.items():
            usual = base.get(name)
            if usual is None:
                continue
            if kind == "cheaper" and rate > usual:
                notes.add("asked", f"{place}.{name}", f"is more than rates.{name}")
            elif kind == "dearer" and rate < usual:
                notes.add("asked", f"{place}.{name}", f"is less than rates.{name}")


def _kind_of(place: str) -> str:
    """Whether a block is one that is cheaper or dearer than the plain rates everywhere."""
    words = place.split(".")
    if len(words) > 2 and words[-3] == "long_context":
        return "dearer" if words[0] == "long_context" or words[1] in _DEARER else ""
    name = words[1] if words[0] == "service_tiers" else words[0]
    return "cheaper" if name in _CHEAPER else "dearer" if name in _DEARER else ""


def _check_fees(notes: _Notes) -> None:
    unit = PICO_PER_USD * notes.row.scale
    for tool, fee in notes.row.fees.tools.items():
        if fee >= unit:
            usd = decimal_text(Fraction(fee, unit))
            notes.add("asked", f"tools.{tool}", f"is ${usd} for one use: is that the price of 1,000?")
    for place, (numerator, denominator) in notes.row.multipliers.items():
        if not 1 <= 10 * Fraction(numerator, denominator) <= 100:
            notes.add("asked", f"multipliers.inference_geo.{place}", "is not between 0.1 and 10")


def _check_start(notes: _Notes, today: date) -> None:
    start = notes.row.from_
    if start is None:
        return
    if start < _FIRST_DAY:
        notes.add("asked", "from", f"is {notes.row.version}: that early?")
    elif start.date() > today + timedelta(days=_FAR_DAYS):
        notes.add("asked", "from", f"is {notes.row.version}: that late?")


def _check_reading(notes: _Notes, today: date, *, in_force: bool) -> None:
    if notes.row.checked_on is None:
        return
    checked = date.fromisoformat(notes.row.checked_on)
    if checked > today:
        notes.add("refused", "checked_on", f"is {checked}, which is to come")
    elif in_force and (today - checked).days > STALE_DAYS:
        notes.add("noted", "checked_on", f"is {checked}: nobody has read this price for over a year")


def _all_rates(block: Block) -> Mapping[str, int]:
    return {**block.rates, **{f"extra.{name}": rate for name, rate in block.extra.items()}}
