"""Price sheets: what a model costs, and since when.

A `Sheet` is one model's dated rows; the latest whose `from` is not after the start of a request holds for it,
and a request that is older than all of them is unpriced. What a row says stands in `pricing.price_row`.
A `PriceBook` finds the sheet for a name, never by a prefix.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from pricing.price_row import Row
from pricing.price_tables import PriceProblem, TableReader
from pricing.rates import Dearest
from pricing.usage import BUCKETS, SIMPLE_BUCKETS

_DATED = re.compile(r"(.+?)(?:[-@]\d{4}[01]\d[0-3]\d|-\d{4}-[01]\d-[0-3]\d)")
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FOREVER_MS = _NO_LIMIT = 1 << 62
_CACHED = BUCKETS.index("input_cached")
_SIMPLE = tuple(BUCKETS.index(bucket) for bucket in SIMPLE_BUCKETS)
_MOST_PLAIN = 256  # names whose plain prices a book keeps at hand; an answer may give any name
_LONGEST_PLAIN = 200  # letters of such a name


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
        rates = row.rates_of(window=-1, batch=False, service_tier=None, length=0)
        has_rates = "input" in rates.named and "output" in rates.named
        if row.windows or not has_rates or rates.scale != 1 or not row.fees.are_none:
            return price
        most_input = row.steps[0].least - 1 if row.steps else _NO_LIMIT
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
        reader = TableReader(f'"{name}": ' if name else "")
        rows = reader.dated_rows(table, name, origin)
        if reader.problems:
            raise PriceProblem(reader.problems)
        return cls(name, rows)

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

    def model_of(self, name: str) -> str | None:
        """The model that exactly this name means, which may be an alias; None: it is unknown."""
        found = self._names.get(name)
        return None if found is None else found[0]

    def aliases_of(self, model: str) -> tuple[str, ...]:
        """The further exact names of a model, in order."""
        return tuple(sorted(name for name, (of, _) in self._names.items() if of == model and name != model))

    @property
    def aliases(self) -> "Mapping[str, str]":
        """Further exact name -> model."""
        return MappingProxyType({name: of for name, (of, _) in self._names.items() if name != of})

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


def _start(row: Row) -> datetime:
    return row.from_ or datetime.min.replace(tzinfo=UTC)
