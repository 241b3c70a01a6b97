"""Sums of money that never leave the integers, in Python and in SQL.

A sum of pico-dollars passes 64 bits at 9.2 million dollars. SQLite then raises (`sum`) or goes on in floats
(`+`), so no statement adds up pico-dollars: it adds millions of them and the rest, and Python joins the two.
"""

from typing import Any

from sqlalchemy import ColumnElement, func

from pricing.money import PICO_PER_USD, PicoUsd

_MILLION = 1_000_000


def parted(amount: int) -> tuple[int, int]:
    """A sum as the totals keep it: whole dollars, and the rest in pico-dollars (0 to 999,999,999,999)."""
    return divmod(amount, PICO_PER_USD)


def joined(whole_usd: Any, rest_pico_usd: Any) -> PicoUsd:
    """The sum of rows of the totals, from the sum of each half; None (no rows) is 0."""
    return PicoUsd(int(whole_usd or 0) * PICO_PER_USD + int(rest_pico_usd or 0))


def sum_parts(column: ColumnElement[Any]) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Two SQL sums of a column of pico-dollars: millions of them, and the rest. NULL counts nothing."""
    return func.sum(column.op("/")(_MILLION)), func.sum(column.op("%")(_MILLION))


def join_parts(millions: Any, rest: Any) -> PicoUsd:
    """What the two sums of `sum_parts` make together; None (no rows) is 0."""
    return PicoUsd(int(millions or 0) * _MILLION + int(rest or 0))
