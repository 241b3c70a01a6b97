"""What the package genai-prices says, as rows of a price book: the one place that knows that package.

Its lists are MIT-licensed; figures are taken from them, and each row names the list and its version as its source.
Only exact names are taken: the list also knows models by the beginning of their names, and we never price so.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

PACKAGE = "genai-prices"

OUR_NAMES: Mapping[str, str] = {
    "anthropic": "anthropic",
    "aws": "bedrock",
    "azure": "azure",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "google": "gemini",
    "groq": "groq",
    "mistral": "mistral",
    "moonshotai": "moonshot",
    "openai": "openai",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "together": "together",
    "x-ai": "xai",
}
"""The providers that are taken, and what they are called here."""

_RATES: Mapping[str, str] = {
    "input_mtok": "input",
    "cache_read_mtok": "input_cached",
    "cache_write_mtok": "cache_write_5m",
    "cache_write_1h_mtok": "cache_write_1h",
    "input_audio_mtok": "input_audio",
    "cache_audio_read_mtok": "input_audio_cached",
    "input_image_mtok": "input_image",
    "output_mtok": "output",
    "output_reasoning_mtok": "output_reasoning",
    "output_audio_mtok": "output_audio",
    "output_image_mtok": "output_image",
}
_TOOLS: Mapping[str, str] = {"web_searches_kcount": "web_search"}


class NotInstalled(Exception):
    """The package is not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the list says of one model at one moment."""

    provider: str  # as we call it
    names: tuple[str, ...]  # exact ones, the list's own id first
    since: date | None  # the day from which the list says that this price holds; None: it names none
    table: Mapping[str, Any]  # in the form of a row of the price book, without `from`
    left_out: tuple[str, ...]  # what it says that a row cannot
    page: str | None  # the provider's page that the list was made from


def package_version() -> str:
    """Raises NotInstalled."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        raise NotInstalled(
            f"{PACKAGE} is not installed; it comes with the extra `prices`: pip install 'faregate[prices]'"
        ) from None


def offers(today: date) -> Iterator[Offer]:
    """What the installed list says for a day, and every change that it announces for later ones.

    Raises NotInstalled.
    """
    package_version()
    try:
        data = import_module("genai_prices.data")
    except ImportError as wrong:
        raise NotInstalled(f"{PACKAGE} cannot be loaded: {wrong}") from None
    return offers_in(cast("Iterable[Any]", data.providers), today)


def offers_in(providers: Iterable[Any], today: date) -> Iterator[Offer]:
    """As `offers`, for objects of the package's form."""
    for provider in providers:
        ours = OUR_NAMES.get(provider.id)
        if ours is None:
            continue
        pages = provider.pricing_urls or [None]
        for model in provider.models:
            yield from _offers_of(model, ours, today, page=pages[0])


def _offers_of(model: Any, provider: str, today: date, *, page: str | None) -> Iterator[Offer]:
    exact = (*_exact_names(model.match),)
    # An id that no exact clause names may be one the list made up, like "regional.…" or the beginning of a name.
    own = (model.id,) if model.id in exact or _is_a_name(model.id) else ()
    names = tuple(dict.fromkeys((*own, *exact)))
    if not names:
        return
    days = [today, *sorted(day for day in _start_days(model) if day > today)]
    for day in days:
        table, since, left_out = _table_at(model, day)
        if table:
            yield Offer(
                provider=provider,
                names=names,
                since=since if day == today else day,
                table=table,
                left_out=left_out,
                page=page,
            )


def _exact_names(match: Any) -> Iterator[str]:
    if hasattr(match, "equals"):
        yield match.equals
    for clause in getattr(match, "or_", ()):
        yield from _exact_names(clause)


def _is_a_name(model_id: str) -> bool:
    return model_id[-1].isalnum() and not model_id.startswith("regional.")


def _conditions(model: Any) -> list[tuple[Any, Any]]:
    prices: Any = model.prices
    if isinstance(prices, list):
        return [(one.constraint, one.prices) for one in cast("list[Any]", prices)]
    return [(None, prices)]


def _start_days(model: Any) -> set[date]:
    constraints: list[Any] = [constraint for constraint, _ in _conditions(model)]
    constraints += [one.constraint for one in _variants(model)]
    return {cast("date", one.start_date) for one in constraints if hasattr(one, "start_date")}


def _variants(model: Any) -> list[Any]:
    return cast("list[Any]", model.price_variants or [])


def _table_at(model: Any, day: date) -> tuple[dict[str, Any], date | None, tuple[str, ...]]:
    base: Any = None
    since: date | None = None
    windows: list[tuple[Any, Any]] = []
    for constraint, prices in _conditions(model):  # of several that hold the last counts
        if hasattr(constraint, "start_time"):
            windows.append((constraint, prices))
        elif constraint is None or constraint.start_date <= day:
            base, since = prices, getattr(constraint, "start_date", None)
    if base is None:
        return {}, None, ()
    table, left_out = _block(base)
    if not table:
        return {}, None, ()
    if windows:
        table["windows"] = [_window(constraint, prices) for constraint, prices in windows]
    for variant in _variants(model):
        start = getattr(variant.constraint, "start_date", None)
        if start is not None and start > day:
            continue
        block, _ = _block(variant.prices)
        block.pop("tools", None)
        if not block:
            continue
        match dict(variant.when):
            case {"processing": "batch", **rest} if not rest:
                table.setdefault("batch", block)
            case {"service_tier": str() as tier, **rest} if not rest:
                table.setdefault("service_tiers", {}).setdefault(tier, block)
            case {"speed": "fast", **rest} if not rest:
                table.setdefault("service_tiers", {}).setdefault("fast", block)
            case other:
                left_out = (*left_out, " ".join(f"{key} {value}" for key, value in other.items()))
    return table, since, left_out


def _block(prices: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Rates with their long-context steps, fees, and the names of what a row cannot say."""
    rates: dict[str, str] = {}
    steps: dict[int, dict[str, str]] = {}
    table: dict[str, Any] = {}
    left_out: list[str] = []
    said = cast("dict[str, Any]", vars(prices))
    for key, value in said.items():
        if value is None or key.startswith("_"):
            continue
        if key in _RATES:
            name = _RATES[key]
            tiers: list[Any] | None = getattr(value, "tiers", None)
            if tiers is None:
                rates[name] = _text(value)
            else:
                rates[name] = _text(value.base)
                for tier in tiers:
                    steps.setdefault(int(tier.start), {})[name] = _text(tier.price)
        elif key in _TOOLS:
            table.setdefault("tools", {})[_TOOLS[key]] = _text(value / 1000)
        elif key == "requests_kcount":
            table["per_request"] = _text(value / 1000)
        else:
            left_out.append(key)
    if not rates:
        return {}, tuple(left_out)
    table["rates"] = rates
    if steps:
        listed = [
            {"threshold": start, "applies": "above", "rates": step} for start, step in sorted(steps.items())
        ]
        table["long_context"] = listed[0] if len(listed) == 1 else listed
    return table, tuple(left_out)


def _window(constraint: Any, prices: Any) -> dict[str, Any]:
    block, _ = _block(prices)
    start, end = (_utc(constraint.start_time), _utc(constraint.end_time))
    return {
        "name": "window",
        "days": [1, 2, 3, 4, 5, 6, 7],
        "from": start,
        "to": end,
        "rates": block["rates"],
    }


def _utc(moment: time) -> str:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    at = datetime.combine(day.date(), moment)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return f"{at:%H:%M}"


def _text(amount: Decimal | int) -> str:
    exact = Decimal(amount)
    return f"{exact.normalize():f}" if exact else "0"
