"""Money is a whole number of pico-dollars (1e-12 US dollars); decimals come in and go out here only.

One dollar per million tokens is exactly 1,000,000 pico-dollars per token, so a cost is integer
arithmetic. A float is never money.
"""

from decimal import Context, Decimal, localcontext
from typing import NewType

PicoUsd = NewType("PicoUsd", int)
"""A whole number of 1e-12 US dollars."""

PICO_PER_USD = 10**12
_USD = "%d.%012d"  # whole dollars and the twelve decimals
_WIDE = Context(prec=200)  # wide enough that nothing here is ever rounded by the context


def pico_from_usd(amount: Decimal) -> PicoUsd:
    """Dollars -> pico-dollars.

    Raises ValueError when the amount has more than twelve decimals or is not a finite number, because it
    could not be kept exactly.
    """
    if not amount.is_finite():
        raise ValueError(f"{amount} is not an amount of money")
    with localcontext(_WIDE):
        pico = amount * PICO_PER_USD
        whole = int(pico)
        if pico != whole:
            raise ValueError(f"{amount} dollars is not a whole number of pico-dollars (at most 12 decimals)")
    return PicoUsd(whole)


def rate_from_usd_per_mtok(price: Decimal) -> PicoUsd:
    """Dollars per million tokens -> pico-dollars per token.

    Raises ValueError when the price has more than six decimals, because it could not be kept exactly.
    """
    if not price.is_finite():
        raise ValueError(f"{price} is not a price")
    with localcontext(_WIDE):
        rate = price * 1_000_000
        whole = int(rate)
        if rate != whole:
            raise ValueError(f"{price} dollars per million tokens has more than six decimals")
    return PicoUsd(whole)


def usd_text(amount: PicoUsd | int) -> str:
    """Pico-dollars -> exact decimal text in dollars, without exponent or trailing zeros: `0.000732032`."""
    if amount < 0:
        return "-" + usd_text(-amount)
    return (_USD % divmod(amount, PICO_PER_USD)).rstrip("0").rstrip(".")
