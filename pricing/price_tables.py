"""Turns the tables of a price book, of a usage case and of faregate.toml into price rows, or says all that is wrong.

Amounts are decimal texts (or Decimals or whole numbers), rates in dollars per million tokens.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from itertools import pairwise
from types import MappingProxyType
from typing import Any, cast

from pricing.price_row import (
    MOST_DECIMALS,
    RATE_DECIMALS,
    USD_DECIMALS,
    Block,
    Clock,
    Fees,
    ProviderCost,
    Row,
    Service,
    Step,
    Window,
)
from pricing.rates import RATE_NAMES

_MOST_USD = 1_000_000  # no rate and no fee is higher; a slip of the unit is
_TIME = re.compile(r"([01]\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?")

BLOCK_KEYS = (
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
"""What a row may have beside its plain rates."""

_SHEET_KEYS = ("rates", "versions", *BLOCK_KEYS)
_ROW_KEYS = ("model", "aliases", "from", "rates", *BLOCK_KEYS, "free", "confirmed", "source", "checked_on")


class PriceProblem(ValueError):
    """Everything that is wrong with a price table."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class TableReader:
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

    def dated_rows(self, table: Mapping[str, Any], name: str, origin: str | None) -> list[Row]:
        """The rows of a sheet in the form of the usage cases: dated `versions` that share everything but rates.

        `origin` says where it stands ("book", "file") and begins the id of each row; None: they have no id.
        """
        self.unknown(table, _SHEET_KEYS, "")
        versions = table.get("versions")
        if versions is None:
            return [self._row(table, name, origin, None)]
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
        return rows

    def book_row(self, table: Mapping[str, Any], provider: str, model: str, origin: str) -> Row:
        """One row of a price book."""
        self.unknown(table, _ROW_KEYS, "")
        if "from" not in table:
            self.problem("from", "is missing: since when does this price hold?")
        if not isinstance(table.get("source"), str) or not table.get("source"):
            self.problem("source", "is missing: where does this price stand?")
        checked = table.get("checked_on")
        if not isinstance(checked, date) or isinstance(checked, datetime):
            self.problem("checked_on", "must be the day on which the source was read")
        row = self._row(table, f"{provider}/{model}", origin, table.get("from"))
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
            confirmed=self._flag(table, "confirmed"),
            free=self._flag(table, "free"),
        )

    def _flag(self, table: Mapping[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            self.problem(key, "must be true or false")
        return value is True

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
        steps = self._steps(table.get("long_context"), "long_context", scale, ())
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
            batch=None if batch is None else self._service(batch, "batch", scale, steps),
            tiers=MappingProxyType(
                {
                    name: self._service(tier, f"service_tiers.{name}", scale, steps)
                    for name, tier in self._table(table.get("service_tiers", {}), "service_tiers").items()
                }
            ),
            steps=steps,
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
                    extra[kind] = self._amount(rate, f"{where}.extra.{kind}", scale, RATE_DECIMALS)
            elif name in RATE_NAMES:
                rates[name] = self._amount(amount, f"{where}.{name}", scale, RATE_DECIMALS)
        return Block(rates=MappingProxyType(rates), extra=MappingProxyType(extra))

    def _service(self, value: object, where: str, scale: int, outer: tuple[Step, ...]) -> Service:
        table = self._table(value, where)
        self.unknown(table, ("rates", "long_context"), f"{where}.")
        return Service(
            block=self._block(table.get("rates", {}), f"{where}.rates", scale),
            steps=self._steps(table.get("long_context"), f"{where}.long_context", scale, outer),
        )

    def _steps(self, value: object, where: str, scale: int, outer: tuple[Step, ...]) -> tuple[Step, ...]:
        """One step as a table, or several as a list; a single one may leave its threshold to that of the row."""
        if value is None:
            return ()
        if not isinstance(value, list):
            return (self._step(value, where, scale, outer[0] if len(outer) == 1 else None),)
        listed = cast("list[object]", value)
        steps = [
            self._step(one, f"{where}[{number}]", scale, outer[number] if len(outer) == len(listed) else None)
            for number, one in enumerate(listed)
        ]
        if any(after.least <= before.least for before, after in pairwise(steps)):
            self.problem(where, "must begin with the smallest threshold, each larger than the one before")
        return tuple(steps)

    def _step(self, value: object, where: str, scale: int, outer: Step | None) -> Step:
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
        return self._amount(value, where, scale, USD_DECIMALS)

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
        if amount >= _MOST_USD or (isinstance(exponent, int) and -exponent > MOST_DECIMALS):
            self.problem(where, f"is not a price: {str(value)[:40]}")
            return Decimal(0)
        return amount
