"""Price sheets: what a model costs, since when, at what time of day, in which service tier, at which length.

A `Sheet` is one model's dated rows; the latest whose `from` is not after the start of a request holds for it,
and a request that is older than all of them is unpriced. Within a row the blocks apply in this order: windows,
batch, service tiers, long context; each replaces the rates it names and leaves the others.
A `PriceBook` finds the sheet for a name, never by a prefix.
"""

import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

import msgspec

from pricing.rates import RATE_NAMES, Dearest, Rates
from pricing.usage import BUCKETS, SIMPLE_BUCKETS

_BOOK = Path(__file__).parent / "book"
_RATE_DECIMALS = 6  # of a rate in dollars per million tokens that is whole pico-dollars a token
_USD_DECIMALS = 12
_MOST_DECIMALS = 24
_MOST_USD = 1_000_000  # no rate and no fee is higher; a slip of the unit is
_DATED = re.compile(r"(.+?)(?:[-@]\d{4}[01]\d[0-3]\d|-\d{4}-[01]\d-[0-3]\d)")
_TIME = re.compile(r"([01]\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?")

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FOREVER_MS = _NO_LIMIT = 1 << 62
_CACHED = BUCKETS.index("input_cached")
_SIMPLE = tuple(BUCKETS.index(bucket) for bucket in SIMPLE_BUCKETS)
_MOST_PLAIN = 256  # names whose plain prices a book keeps at hand; an answer may give any name
_LONGEST_PLAIN = 200  # letters of such a name

Clock = Literal["request_start", "response_end"]
ProviderCost = Literal["prefer", "record"]

_SHEET_KEYS = (
    "rates",
    "versions",
    "windows",
    "clock",
    "batch",
    "service_tiers",
    "long_context",
    "multipliers",
    "per_request",
    "per_request_by",
    "tools",
    "provider_cost",
)
_ROW_KEYS = (
    "model",
    "aliases",
    "from",
    "source",
    "checked_on",
    *(key for key in _SHEET_KEYS if key != "versions"),
)


class PriceProblem(ValueError):
    """Everything that is wrong with a price table."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


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

    def reached_by(self, input_tokens: int) -> bool:
        """True if an input of this size pays these rates."""
        return input_tokens > self.threshold or (self.at_or_above and input_tokens == self.threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTier:
    """What one service tier of the provider costs."""

    block: Block
    step: Step | None  # its own long-context rates; then the sheet's do not apply


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
    batch: Block | None
    tiers: Mapping[str, ServiceTier]
    step: Step | None
    multipliers: Mapping[str, tuple[int, int]]  # by inference_geo: numerator, denominator
    fees: Fees
    provider_cost: ProviderCost | None
    source: str | None = None  # where the price stands
    checked_on: str | None = None  # the day on which somebody last read it there
    # as many entries as the row has combinations of blocks
    _rates: dict[tuple[int, bool, str | None, bool], Rates] = field(
        default_factory=dict[tuple[int, bool, str | None, bool], Rates], repr=False, compare=False
    )
    # as many entries as it has service tiers and long-context thresholds, times two
    _dearest: dict[tuple[str | None, bool, int], Dearest] = field(
        default_factory=dict[tuple[str | None, bool, int], Dearest], init=False, repr=False, compare=False
    )
    _lengths: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Know the smallest inputs at which long-context rates begin, in order."""
        steps = [self.step, *(tier.step for tier in self.tiers.values())]
        lengths = {step.threshold + (not step.at_or_above) for step in steps if step is not None}
        object.__setattr__(self, "_lengths", tuple(sorted(lengths)))

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
        step = self.step
        if service_tier is not None:
            tier = self.tiers.get(service_tier)
            if tier is None:
                service_tier = None
            elif tier.step is not None:
                step = tier.step
        is_long = step is not None and step.reached_by(input_tokens)
        batch = batch and self.batch is not None
        found = self._rates.get((window, batch, service_tier, is_long))
        if found is not None:
            return found
        return self.rates_of(window=window, batch=batch, service_tier=service_tier, is_long=is_long)

    def rates_of(self, *, window: int, batch: bool, service_tier: str | None, is_long: bool) -> Rates:
        """The rates under these blocks; `window` counts from 0, -1 is none. The blocks must be in the row."""
        key = (window, batch, service_tier, is_long)
        found = self._rates.get(key)
        if found is None:
            found = self._rates[key] = self._join(window, batch, service_tier, is_long)
        return found

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
            own = None if tier is None else self.tiers[tier].step
            step = own or self.step
            for window in range(-1, len(self.windows)):
                for is_long in (False, True):
                    if is_long and (step is None or not step.reached_by(input_tokens)):
                        continue
                    found.append(
                        self.rates_of(window=window, batch=False, service_tier=tier, is_long=is_long)
                    )
        return found

    def as_text(self) -> str:
        """All that answers are priced by, as JSON in the form of the price book, amounts as decimal texts.

        Rows that price alike from the same moment on have the same text, however their amounts were written and
        whoever checked them.
        """
        return json.dumps(_plain_row(self), ensure_ascii=False, sort_keys=True)

    def _join(self, window: int, batch: bool, service_tier: str | None, is_long: bool) -> Rates:
        rates, extra = dict(self.base.rates), dict(self.base.extra)
        names: list[str] = []

        def put(name: str, block: Block) -> None:
            names.append(name)
            rates.update(block.rates)
            extra.update(block.extra)

        step = self.step
        if window >= 0:
            put(self.windows[window].name, self.windows[window].block)
        if batch and self.batch is not None:
            put("batch", self.batch)
        if service_tier is not None:
            tier = self.tiers[service_tier]
            put(service_tier, tier.block)
            step = tier.step or step
        if is_long and step is not None:
            put("long_context", step.block)
        return Rates.of(rates, extra=extra, scale=self.scale, rate_set="+".join(names) or "base")


class PlainPrice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a model costs for a while, as long as nothing but the number of tokens of `SIMPLE_BUCKETS` matters.

    Nothing else does for an input of up to `most_input` tokens, up to `most_cached` of them cached, in no service
    tier that is among `tiers`, at no place that has a multiplier, not in a batch. All rates are whole pico-dollars
    per token.
    """

    from_ms: int  # milliseconds since 1970
    until_ms: int  # exclusive
    most_input: int  # -1: there is no such case, and the rates mean nothing
    most_cached: int = 0  # 0: their rate is a fallback that is flagged
    tiers: frozenset[str]  # those with rates of their own, and "auto" if there is any
    has_multipliers: bool
    input_uncached: int = 0
    input_cached: int = 0
    output_text: int = 0
    output_reasoning: int = 0
    dearest_input: int = 0  # of all kinds of input but audio
    dearest_output: int = 0
    priced_as: str  # the sheet's name
    version: str | None
    rate_set: str = "base"
    price_id: str | None

    @classmethod
    def of(cls, row: Row, *, priced_as: str, from_ms: int, until_ms: int) -> "PlainPrice":
        """The plain price that a row of a sheet has in this span."""
        price = cls(
            from_ms=from_ms,
            until_ms=until_ms,
            most_input=-1,
            tiers=frozenset((*row.tiers, "auto")) if row.tiers else frozenset(),
            has_multipliers=bool(row.multipliers),
            priced_as=priced_as,
            version=row.version,
            price_id=row.price_id,
        )
        rates = row.rates_of(window=-1, batch=False, service_tier=None, is_long=False)
        has_rates = "input" in rates.named and "output" in rates.named
        if row.windows or not has_rates or rates.scale != 1 or not row.fees.are_none:
            return price
        step = row.step
        most_input = _NO_LIMIT if step is None else step.threshold - step.at_or_above
        plain, cached, text, thought = (rates.per_bucket[index] for index in _SIMPLE)
        ((dearest_input, dearest_output),) = Dearest.of((rates,), has_audio=False).pairs
        return msgspec.structs.replace(
            price,
            most_input=most_input,
            most_cached=_NO_LIMIT if rates.flags[_CACHED] is None else 0,
            input_uncached=plain,
            input_cached=cached,
            output_text=text,
            output_reasoning=thought,
            dearest_input=dearest_input,
            dearest_output=dearest_output,
            rate_set=rates.rate_set,
        )


class Sheet:
    """One model's dated prices."""

    __slots__ = ("_newest_first", "name", "rows")

    def __init__(self, name: str, rows: Iterable[Row]) -> None:
        """Rows in any order; of two with the same `from` the later one in the order counts."""
        self.name = name
        by_start = {row.from_: row for row in rows}
        self.rows = tuple(sorted(by_start.values(), key=_start))
        self._newest_first = self.rows[::-1]

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, name: str = "", origin: str | None = None) -> "Sheet":
        """A sheet in the form of the usage cases and of the price book.

        Amounts are decimal texts (or Decimals or whole numbers), rates in dollars per million tokens. `origin`
        says where it stands ("book", "file") and begins the id of its rows; None: they have no id.
        Raises PriceProblem with all that is wrong.
        """
        reader = _Reader(f'"{name}": ' if name else "")
        sheet = reader.sheet(table, name, origin)
        if reader.problems:
            raise PriceProblem(reader.problems)
        return sheet

    def row_at(self, started_at: datetime) -> Row | None:
        """The row that holds for a request that started then; None: it is older than all of them."""
        for row in self._newest_first:
            if row.from_ is None or row.from_ <= started_at:
                return row
        return None

    def plain_price(self, at_ms: int, priced_as: str) -> PlainPrice | None:
        """The plain price of the row that holds at a moment, in milliseconds since 1970; None: there is no row."""
        until_ms = _FOREVER_MS
        for row in self._newest_first:
            from_ms = -_FOREVER_MS
            if row.from_ is not None:  # rounded up: a request never starts between two milliseconds
                from_ms = -((_FIRST - row.from_) // _MILLISECOND)
            if from_ms <= at_ms:
                return PlainPrice.of(row, priced_as=priced_as, from_ms=from_ms, until_ms=until_ms)
            until_ms = from_ms
        return None

    def superseded_by(self, later: "Sheet") -> "Sheet":
        """This sheet with the rows of another put in; where both begin at the same moment, the other's hold."""
        return Sheet(self.name, (*self.rows, *later.rows))


class PriceBook:
    """Model name -> sheet."""

    __slots__ = ("_names", "_plain", "_providers", "sheets")

    def __init__(
        self,
        sheets: Mapping[str, Sheet],
        *,
        aliases: Mapping[str, str] = MappingProxyType({}),
        providers: "Mapping[str, PriceBook]" = MappingProxyType({}),
    ) -> None:
        """`aliases` are further exact names of sheets; `providers` the books that this one was made of."""
        self.sheets = MappingProxyType(dict(sheets))
        self._names = {name: (name, sheet) for name, sheet in sheets.items()}
        for alias, name in aliases.items():
            self._names.setdefault(alias, (name, sheets[name]))
        self._providers = dict(providers)
        self._plain: dict[tuple[str | None, str], PlainPrice] = {}

    @classmethod
    def from_tables(
        cls, tables: Mapping[str, Mapping[str, Any]], *, origin: str | None = None
    ) -> "PriceBook":
        """A book from `Sheet.from_table` tables by model name. Raises PriceProblem with all that is wrong."""
        sheets: dict[str, Sheet] = {}
        problems: list[str] = []
        for name, table in tables.items():
            try:
                sheets[name] = Sheet.from_table(table, name=name, origin=origin)
            except PriceProblem as wrong:
                problems += wrong.problems
        if problems:
            raise PriceProblem(problems)
        return cls(sheets)

    def find(self, answered: str | None, requested: str) -> tuple[str, Sheet] | None:
        """The sheet for the name in the answer, else for the one that was called; None: there is none.

        Each is looked up as it stands, then without a date at its end.
        """
        names = self._names
        if answered:
            found = names.get(answered) or names.get(undated(answered))
            if found is not None:
                return found
        return names.get(requested) or names.get(undated(requested))

    def plain_price(self, answered: str | None, requested: str, at_ms: int) -> PlainPrice | None:
        """The plain price at a moment, in milliseconds since 1970, for the sheet that `find` gives; None: no row."""
        price = self._plain.get((answered, requested))
        if price is not None and price.from_ms <= at_ms < price.until_ms:
            return price
        found = self.find(answered, requested)
        price = None if found is None else found[1].plain_price(at_ms, found[0])
        if price is not None and (answered is None or len(answered) <= _LONGEST_PLAIN):
            if len(self._plain) >= _MOST_PLAIN:
                self._plain.clear()
            self._plain[answered, requested] = price
        return price

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Every row of every sheet, with the name of its model; oldest first within a model."""
        for name, sheet in self.sheets.items():
            for row in sheet.rows:
                yield name, row

    def for_provider(self, provider: str) -> "PriceBook":
        """The book of one provider; empty if it has none."""
        return self._providers.get(provider) or PriceBook({})

    @property
    def providers(self) -> "Mapping[str, PriceBook]":
        """The books that this one was made of."""
        return MappingProxyType(self._providers)

    @property
    def names(self) -> frozenset[str]:
        """Every name that `find` knows as it stands."""
        return frozenset(self._names)


def moment_of(at_ms: int) -> datetime:
    """Milliseconds since 1970 -> an aware UTC moment."""
    return _FIRST + timedelta(milliseconds=at_ms)


@lru_cache(maxsize=1024)
def undated(name: str) -> str:
    """A model name without `-YYYYMMDD`, `@YYYYMMDD` or `-YYYY-MM-DD` at its end."""
    if not name[-1:].isdigit():
        return name
    found = _DATED.fullmatch(name)
    return found[1] if found else name


def load_book(directory: str | Path | None = None) -> PriceBook:
    """The published prices: one TOML file a provider. None: those that come with the program.

    The book as a whole finds a name only where exactly one provider has it; `for_provider` finds them all.
    Raises PriceProblem with everything that is wrong in every file.
    """
    folder = _BOOK if directory is None else Path(directory)
    problems: list[str] = []
    books: dict[str, PriceBook] = {}
    files = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    if not files:
        raise PriceProblem([f"{folder} holds no price files (*.toml)"])
    for path in files:
        reader = _Reader("")
        book = _read_file(path, reader)
        problems += [f"{path.name}: {problem}" for problem in reader.problems]
        if book is None:
            continue
        provider, prices = book
        if provider in books:
            problems.append(f'{path.name}: provider "{provider}" has a file already')
        books[provider] = prices
    if problems:
        raise PriceProblem(problems)
    count: dict[str, int] = {}
    for book in books.values():
        for name in book.names:
            count[name] = count.get(name, 0) + 1
    sheets: dict[str, Sheet] = {}
    aliases: dict[str, str] = {}
    for book in books.values():
        for name in book.names:
            found = book.find(name, name)
            if count[name] == 1 and found is not None:
                sheets[found[0]] = found[1]
                aliases[name] = found[0]
    shared = {name for name in sheets if count.get(name, 0) > 1}
    return PriceBook(
        {name: sheet for name, sheet in sheets.items() if name not in shared},
        aliases={alias: name for alias, name in aliases.items() if name not in shared and alias != name},
        providers=books,
    )


def _plain_row(row: Row) -> dict[str, Any]:
    beyond = len(str(row.scale)) - 1  # decimals that the scale adds

    def rates(block: Block) -> dict[str, Any]:
        decimals = _RATE_DECIMALS + beyond
        plain: dict[str, Any] = {name: _decimal_text(rate, decimals) for name, rate in block.rates.items()}
        if block.extra:
            plain["extra"] = {kind: _decimal_text(rate, decimals) for kind, rate in block.extra.items()}
        return plain

    def long_context(step: Step) -> dict[str, Any]:
        applies = "at_or_above" if step.at_or_above else "above"
        return {"threshold": step.threshold, "applies": applies, "rates": rates(step.block)}

    def usd(fees: Mapping[str, int]) -> dict[str, str]:
        return {name: _decimal_text(fee, _USD_DECIMALS + beyond) for name, fee in fees.items()}

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
        plain["batch"] = {"rates": rates(row.batch)}
    if row.tiers:
        plain["service_tiers"] = {
            name: {"rates": rates(tier.block)}
            | ({} if tier.step is None else {"long_context": long_context(tier.step)})
            for name, tier in row.tiers.items()
        }
    if row.step is not None:
        plain["long_context"] = long_context(row.step)
    if row.multipliers:
        plain["multipliers"] = {
            "inference_geo": {
                # Exact: a factor was read from a decimal with no more decimals than these.
                place: _decimal_text(numerator * 10**_MOST_DECIMALS // denominator, _MOST_DECIMALS)
                for place, (numerator, denominator) in row.multipliers.items()
            }
        }
    if row.fees.per_request:
        plain["per_request"] = _decimal_text(row.fees.per_request, _USD_DECIMALS + beyond)
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


def _start(row: Row) -> datetime:
    return row.from_ or datetime.min.replace(tzinfo=UTC)


def _read_file(path: Path, reader: "_Reader") -> tuple[str, PriceBook] | None:
    try:
        data = tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, InvalidOperation) as wrong:
        reader.problems.append(f"cannot be read: {wrong}")
        return None
    reader.unknown(data, ("provider", "currency", "prices"), "")
    provider = data.get("provider")
    if not isinstance(provider, str) or not provider:
        reader.problem("provider", "must name the provider")
        provider = path.stem
    if data.get("currency") != "USD":
        reader.problem("currency", 'must be "USD"')
    rows: dict[str, list[Row]] = {}
    aliases: dict[str, str] = {}
    listed = data.get("prices")
    if not isinstance(listed, list):
        reader.problem("prices", "must be a list of [[prices]] tables")
        return None
    for number, table in enumerate(cast("list[object]", listed)):
        where = f"prices[{number}]"
        if not isinstance(table, dict):
            reader.problem(where, "must be a table")
            continue
        row_table = cast("dict[str, Any]", table)
        model = row_table.get("model")
        if not isinstance(model, str) or not model:
            reader.problem(where, "lacks a model")
            continue
        reader.place = f'{where} "{model}": '
        row = reader.book_row(row_table, provider, model)
        before = rows.setdefault(model, [])
        if any(other.from_ == row.from_ for other in before):
            reader.problem("from", "is that of another row of this model; a change is a later row")
        before.append(row)
        names = row_table.get("aliases", [])
        if not isinstance(names, list) or not all(
            isinstance(name, str) and name for name in cast("list[object]", names)
        ):
            reader.problem("aliases", "must be a list of names")
            names = []
        for alias in cast("list[str]", names):
            if aliases.setdefault(alias, model) != model:
                reader.problem("aliases", f'"{alias}" is an alias of "{aliases[alias]}" already')
        reader.place = ""
    for alias, model in aliases.items():
        if alias in rows:
            reader.problem("aliases", f'"{alias}", an alias of "{model}", is a model of its own')
    sheets = {model: Sheet(model, dated) for model, dated in rows.items()}
    return provider, PriceBook(sheets, aliases=aliases)


class _Reader:
    """Turns tables into sheets and notes every problem with its place."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.problems: list[str] = []
        self._decimals = 0  # beyond whole pico-dollars, in the row that is being read

    def problem(self, where: str, message: str) -> None:
        self.problems.append(f"{self.place}{where} {message}")

    def unknown(self, table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
        known = tuple(known)
        for key in table:
            if key not in known:
                near = get_close_matches(key, known, 1)
                self.problem(f"{where}{key}", "is unknown" + (f"; did you mean {near[0]}?" if near else ""))

    def sheet(self, table: Mapping[str, Any], name: str, origin: str | None) -> Sheet:
        self.unknown(table, _SHEET_KEYS, "")
        versions = table.get("versions")
        if versions is None:
            return Sheet(name, [self._row(table, name, origin, None)])
        rows: list[Row] = []
        for number, version in enumerate(self._list(versions, "versions")):
            where = f"versions[{number}]"
            if not isinstance(version, Mapping):
                self.problem(where, "must be a table")
                continue
            dated = cast("Mapping[str, Any]", version)
            self.unknown(dated, ("from", "rates", "source"), f"{where}.")
            source = dated.get("source")
            if source is not None and not isinstance(source, str):
                self.problem(f"{where}.source", "must be a text")
            rates = {
                **self._table(table.get("rates", {}), "rates"),
                **self._table(dated.get("rates"), f"{where}.rates"),
            }
            joined = {**table, "rates": rates, "source": source}
            rows.append(self._row(joined, name, origin, dated.get("from"), f"{where}."))
            if "from" not in dated:
                self.problem(where, "lacks from")
        return Sheet(name, rows)

    def book_row(self, table: Mapping[str, Any], provider: str, model: str) -> Row:
        self.unknown(table, _ROW_KEYS, "")
        if "from" not in table:
            self.problem("from", "is missing: since when does this price hold?")
        if not isinstance(table.get("source"), str) or not table.get("source"):
            self.problem("source", "is missing: where does this price stand?")
        checked = table.get("checked_on")
        if not isinstance(checked, date) or isinstance(checked, datetime):
            self.problem("checked_on", "must be the day on which the source was read")
        row = self._row(table, f"{provider}/{model}", "book", table.get("from"))
        named = row.base.rates
        if "input" not in named:
            self.problem("rates", "lack input")
        return row

    def _row(
        self, table: Mapping[str, Any], name: str, origin: str | None, from_: object, where: str = ""
    ) -> Row:
        start, version = self._from(from_, f"{where}from")
        # First with exact fractions, to learn how many decimals there are; then in whole numbers of one scale.
        self._decimals = 0
        scale = 1
        before = len(self.problems)
        row = self._blocks(table, scale, start, version, "rates" in table)
        if self._decimals and len(self.problems) == before:
            row = self._blocks(table, 10**self._decimals, start, version, True)
        price_id = None if origin is None else f"{origin}:{name}@{version or 'always'}"
        source, checked = table.get("source"), table.get("checked_on")
        return replace(
            row,
            price_id=price_id,
            source=source if isinstance(source, str) else None,
            checked_on=checked.isoformat() if isinstance(checked, date) else None,
        )

    def _blocks(
        self,
        table: Mapping[str, Any],
        scale: int,
        start: datetime | None,
        version: str | None,
        has_rates: bool,
    ) -> Row:
        if not has_rates:
            self.problem("rates", "are missing")
        step = self._step(table.get("long_context"), "long_context", scale, None)
        clock = table.get("clock", "request_start")
        if clock not in ("request_start", "response_end"):
            self.problem("clock", 'must be "request_start" or "response_end"')
        provider_cost = table.get("provider_cost")
        if provider_cost not in (None, "prefer", "record"):
            self.problem("provider_cost", 'must be "prefer" or "record"')
        batch = table.get("batch")
        return Row(
            from_=start,
            version=version,
            price_id=None,
            scale=scale,
            clock=cast("Clock", clock),
            base=self._block(table.get("rates", {}), "rates", scale),
            windows=self._windows(table.get("windows", []), scale),
            batch=None if batch is None else self._nested(batch, "batch", scale),
            tiers=self._tiers(table.get("service_tiers", {}), scale, step),
            step=step,
            multipliers=self._multipliers(table.get("multipliers", {})),
            fees=Fees(
                per_request=self._usd(table.get("per_request", 0), "per_request", scale),
                per_request_by=self._fees_by(table.get("per_request_by", {}), scale),
                tools=MappingProxyType(
                    {
                        tool: self._usd(fee, f"tools.{tool}", scale)
                        for tool, fee in self._table(table.get("tools", {}), "tools").items()
                    }
                ),
            ),
            provider_cost=cast("ProviderCost | None", provider_cost),
        )

    def _table(self, value: object, where: str) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return cast("Mapping[str, Any]", value)
        self.problem(where, "must be a table")
        return {}

    def _list(self, value: object, where: str) -> list[Any]:
        if isinstance(value, list):
            return cast("list[Any]", value)
        self.problem(where, "must be a list")
        return []

    def _from(self, value: object, where: str) -> tuple[datetime | None, str | None]:
        if value is None:
            return None, None
        if isinstance(value, datetime):
            moment, text = value, value.isoformat().replace("+00:00", "Z")
        elif isinstance(value, date):
            moment, text = datetime(value.year, value.month, value.day, tzinfo=UTC), value.isoformat()
        elif isinstance(value, str):
            try:
                moment, text = datetime.fromisoformat(value), value
            except ValueError:
                self.problem(
                    where, f'is "{value[:40]}"; it must be a day or a moment like 2026-06-01T00:00:00Z'
                )
                return None, None
            if len(value) <= 10:
                moment = moment.replace(tzinfo=UTC)
        else:
            self.problem(where, "must be a day or a moment")
            return None, None
        if moment.tzinfo is None:
            self.problem(where, "must say its offset from UTC, or be a day alone")
            moment = moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC), text

    def _block(self, value: object, where: str, scale: int) -> Block:
        rates: dict[str, int] = {}
        extra: dict[str, int] = {}
        table = self._table(value, where)
        self.unknown(table, (*RATE_NAMES, "extra"), f"{where}.")
        for name, amount in table.items():
            if name == "extra":
                for kind, rate in self._table(amount, f"{where}.extra").items():
                    extra[kind] = self._amount(rate, f"{where}.extra.{kind}", scale, _RATE_DECIMALS)
            elif name in RATE_NAMES:
                rates[name] = self._amount(amount, f"{where}.{name}", scale, _RATE_DECIMALS)
        return Block(rates=MappingProxyType(rates), extra=MappingProxyType(extra))

    def _nested(self, value: object, where: str, scale: int) -> Block:
        table = self._table(value, where)
        self.unknown(table, ("rates",), f"{where}.")
        return self._block(table.get("rates", {}), f"{where}.rates", scale)

    def _step(self, value: object, where: str, scale: int, outer: Step | None) -> Step | None:
        if value is None:
            return None
        table = self._table(value, where)
        self.unknown(table, ("threshold", "applies", "rates"), f"{where}.")
        threshold = table.get("threshold", outer.threshold if outer else None)
        if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 0:
            self.problem(f"{where}.threshold", "must be a number of tokens")
            threshold = 0
        applies = table.get("applies", "at_or_above" if outer and outer.at_or_above else "above")
        if applies not in ("above", "at_or_above"):
            self.problem(f"{where}.applies", 'must be "above" or "at_or_above"')
        block = self._block(table.get("rates", {}), f"{where}.rates", scale)
        return Step(threshold=threshold, at_or_above=applies == "at_or_above", block=block)

    def _tiers(self, value: object, scale: int, outer: Step | None) -> Mapping[str, ServiceTier]:
        tiers: dict[str, ServiceTier] = {}
        for name, block in self._table(value, "service_tiers").items():
            where = f"service_tiers.{name}"
            table = self._table(block, where)
            self.unknown(table, ("rates", "long_context"), f"{where}.")
            tiers[name] = ServiceTier(
                block=self._block(table.get("rates", {}), f"{where}.rates", scale),
                step=self._step(table.get("long_context"), f"{where}.long_context", scale, outer),
            )
        return MappingProxyType(tiers)

    def _windows(self, value: object, scale: int) -> tuple[Window, ...]:
        windows: list[Window] = []
        for number, listed in enumerate(self._list(value, "windows")):
            where = f"windows[{number}]"
            table = self._table(listed, where)
            self.unknown(table, ("name", "days", "from", "to", "rates"), f"{where}.")
            name = table.get("name")
            if not isinstance(name, str) or not name:
                self.problem(f"{where}.name", "is missing")
                name = "window"
            days = self._list(table.get("days", [1, 2, 3, 4, 5, 6, 7]), f"{where}.days")
            if not days or not all(type(day) is int and 1 <= day <= 7 for day in days):
                self.problem(f"{where}.days", "must be numbers from 1 (Monday) to 7 (Sunday)")
                days = []
            windows.append(
                Window(
                    name=name,
                    days=frozenset(days),
                    from_=self._time(table.get("from"), f"{where}.from"),
                    to=self._time(table.get("to"), f"{where}.to"),
                    block=self._block(table.get("rates", {}), f"{where}.rates", scale),
                )
            )
        return tuple(windows)

    def _time(self, value: object, where: str) -> int:
        found = _TIME.fullmatch(value) if isinstance(value, str) else None
        seconds = 86_401
        if found is not None:
            seconds = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3] or 0)
        if seconds > 86_400:
            self.problem(where, 'must be a time of day in UTC like "16:30"')
            return 0
        return seconds

    def _multipliers(self, value: object) -> Mapping[str, tuple[int, int]]:
        table = self._table(value, "multipliers")
        self.unknown(table, ("inference_geo",), "multipliers.")
        factors: dict[str, tuple[int, int]] = {}
        for place, factor in self._table(table.get("inference_geo", {}), "multipliers.inference_geo").items():
            exact = self._decimal(factor, f"multipliers.inference_geo.{place}")
            factors[place] = exact.as_integer_ratio()
        return MappingProxyType(factors)

    def _fees_by(self, value: object, scale: int) -> Mapping[str, Mapping[str, int]]:
        fees: dict[str, Mapping[str, int]] = {}
        for key, listed in self._table(value, "per_request_by").items():
            where = f"per_request_by.{key}"
            fees[key] = MappingProxyType(
                {
                    case: self._usd(fee, f"{where}.{case}", scale)
                    for case, fee in self._table(listed, where).items()
                }
            )
        return MappingProxyType(fees)

    def _usd(self, value: object, where: str, scale: int) -> int:
        return self._amount(value, where, scale, _USD_DECIMALS)

    def _amount(self, value: object, where: str, scale: int, decimals: int) -> int:
        amount = self._decimal(value, where)
        exponent = amount.as_tuple().exponent
        beyond = -exponent - decimals if isinstance(exponent, int) else 0
        self._decimals = max(self._decimals, beyond)
        numerator, denominator = amount.as_integer_ratio()
        return numerator * 10**decimals * scale // denominator

    def _decimal(self, value: object, where: str) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
            self.problem(where, 'must be a decimal text like "0.25"')
            return Decimal(0)
        try:
            amount = Decimal(value)
        except InvalidOperation:
            self.problem(where, f'is "{str(value)[:40]}"; it must be a decimal text like "0.25"')
            return Decimal(0)
        if not amount.is_finite() or amount < 0:
            self.problem(where, "must be a number of at least 0")
            return Decimal(0)
        exponent = amount.as_tuple().exponent
        if amount >= _MOST_USD or (isinstance(exponent, int) and -exponent > _MOST_DECIMALS):
            self.problem(where, f"is not a price: {str(value)[:40]}")
            return Decimal(0)
        return amount
