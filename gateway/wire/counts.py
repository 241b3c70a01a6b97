"""What counts as a count of tokens on any wire."""

from decimal import Decimal
from typing import Final

MAX_COUNT: Final = 10**10
"""A larger number is no count of tokens: no model reads so much, and its cost would pass 64 bits."""


def count_in(value: object, flags: set[str]) -> int | None:
    """The count that this is; None: it is none, or null. Adds `coerced` or `invalid_count` to the flags."""
    if type(value) is int:
        count = value
    elif value is None:
        return None
    else:
        read = _coerced(value)
        if read is None:
            flags.add("invalid_count")
            return None
        flags.add("coerced")
        count = read
    if not 0 <= count <= MAX_COUNT:
        flags.add("invalid_count")
        return None
    return count


def _coerced(value: object) -> int | None:
    """A count in another spelling: `"12"` or `12.0`; None: it is none."""
    if isinstance(value, str):
        return int(value) if 0 < len(value) <= 20 and value.isascii() and value.isdigit() else None
    if isinstance(value, Decimal) and value.is_finite() and 0 <= value <= MAX_COUNT and value == int(value):
        return int(value)
    return None
