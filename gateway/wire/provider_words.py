"""What a provider says of an error, in whatever form it says it; and JSON that is read without a type.

Numbers with a point or an exponent are read as decimals, never as floats.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn, cast

_LONGEST_WORDS = 2_000  # of a provider's error message


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderWords:
    """What a provider says of an error, as it says it. None: nothing. May hold secrets: scrub before showing."""

    message: str | None = None
    type: str | None = None
    code: str | None = None
    param: str | None = None
    status: int | None = None  # an HTTP status that the error names


def exact(text: str) -> Decimal:
    """The number that a JSON text with a point or an exponent stands for."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def untyped(payload: bytes) -> object:
    """JSON as plain values, bad UTF-8 replaced; None: it is not JSON, or too deep."""
    try:
        return json.loads(
            payload.decode("utf-8", "replace"), parse_float=exact, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        return None


def table_in(value: object) -> dict[str, Any]:
    """The object that this is; of anything else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def provider_words(body: bytes) -> ProviderWords:
    """What an error body or an error event says; nothing if it has no form that is known."""
    parsed = untyped(body)
    if isinstance(parsed, list) and parsed:  # Gemini wraps its errors in a list
        parsed = cast("list[object]", parsed)[0]
    if not isinstance(parsed, dict):
        return ProviderWords()
    table = cast("dict[str, Any]", parsed)
    error = table.get("error") or _error_in_choice(table)
    if isinstance(error, str):
        return ProviderWords(
            message=_word(error), type=_word(table.get("type")), code=_word(table.get("code"))
        )
    if not isinstance(error, dict):
        said = table.get("message") or table.get("detail")
        if not isinstance(said, str):
            return ProviderWords()
        error = {**table, "message": said}
    words = cast("dict[str, Any]", error)
    code = words.get("code")
    return ProviderWords(
        message=_word(words.get("message")) or "",
        type=_word(words.get("type")),
        code=_word(code),
        param=_word(words.get("param")),
        status=_status(code) or _status(words.get("status")),
    )


def _error_in_choice(table: Mapping[str, Any]) -> object:
    choices = table.get("choices")
    if isinstance(choices, list):
        for choice in cast("list[object]", choices):
            if isinstance(choice, dict) and cast("dict[str, Any]", choice).get("error"):
                return cast("dict[str, Any]", choice)["error"]
    return table_in(table.get("x_groq")).get("error")


def _word(value: object) -> str | None:
    if isinstance(value, str):
        return value[:_LONGEST_WORDS]
    return (
        str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9 else None
    )


def _status(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else None
