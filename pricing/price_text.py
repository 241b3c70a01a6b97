"""A price row as it stands in a file of prices: TOML that `pricing.published` reads back the same."""

import json
from collections.abc import Mapping
from typing import Any, cast

from pricing.rates import RATE_NAMES

_ORDER = (
    "rates",
    "long_context",
    "clock",
    "windows",
    "batch",
    "service_tiers",
    "multipliers",
    "per_request",
    "per_request_by",
    "tools",
    "provider_cost",
    "free",
    "confirmed",
)


def row_text(
    table: Mapping[str, Any],
    *,
    provider: str,
    model: str,
    source: str,
    checked_on: str,
    aliases: tuple[str, ...] = (),
) -> str:
    """One `[[prices]]` table; `table` is `Row.as_table`, with `free` or `confirmed` beside it if they hold."""
    lines = ["[[prices]]", f"provider = {_value(provider)}", f"model = {_value(model)}"]
    if aliases:
        lines.append(f"aliases = {_value(list(aliases))}")
    lines.append(f"from = {table['from']}")
    for key in _ORDER:
        if key not in table:
            continue
        value = table[key]
        if key == "windows":
            lines += ["windows = [", *(f"  {_value(window)}," for window in value), "]"]
        elif key == "batch":
            lines += [f"batch.{part} = {_value(said)}" for part, said in value.items()]
        elif key == "service_tiers":
            lines += [
                f"service_tiers.{_key(name)}.{part} = {_value(said)}"
                for name, tier in value.items()
                for part, said in tier.items()
            ]
        else:
            lines.append(f"{key} = {_value(value)}")
    lines += [f"source = {_value(source)}", f"checked_on = {checked_on}"]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        parts = (f"{_key(name)} = {_value(table[name])}" for name in sorted(table, key=_place))
        return "{ " + ", ".join(parts) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(one) for one in cast("list[object]", value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # a TOML string, a whole number, true or false


def _place(name: str) -> int:
    return RATE_NAMES.index(name) if name in RATE_NAMES else -1


def _key(name: str) -> str:
    bare = name.replace("_", "").replace("-", "")
    return name if bare.isalnum() and bare.isascii() else json.dumps(name, ensure_ascii=False)
