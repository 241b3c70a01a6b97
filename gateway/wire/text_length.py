"""How long a text is that the model produced, in bytes of UTF-8: what an estimate of its tokens goes by."""

import json
from typing import Final

import msgspec

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


def utf8_length(value: object) -> int:
    """UTF-8 length of a text; 0 of anything else. Half of a surrogate pair counts three bytes."""
    if not isinstance(value, str):
        return 0
    return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))


def json_length(value: object) -> int:
    """UTF-8 length of a JSON value written without spaces, as of a tool's arguments; 0 of null and of what is empty."""
    if not value:
        return 0
    try:
        try:
            return len(_encode(value))
        except (ValueError, OverflowError):  # half of a surrogate pair, or a number beyond any bound
            return len(json.dumps(value, separators=(",", ":"), default=float))
    except RecursionError:
        return 0
