"""Reads the members of a request's body that decisions need, on every wire, and says what is wrong with one.

What is not JSON, or lacks what no endpoint can do without, is a GatewayError. A part of a prompt that has an odd
form is none: it is the provider's to judge.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.errors import (
    GatewayError,
    invalid_json,
    invalid_utf8,
    invalid_value,
    missing_field,
    model_not_found,
    shown,
)
from gateway.wire.json_scan import Places, has_broken_text
from routers.classify import FENCE_BYTES, TAIL_BYTES
from routers.session import clean_id

MAX_MODEL_BYTES = 256
MAX_OUTPUT_TOKENS = 10**12
NOTHING = msgspec.Raw(b"")

_FILLED = 64  # bytes: a longer list counts as one with something in it
_QUOTE, _LIST = ord('"'), ord("[")
_read_text = msgspec.json.Decoder(str).decode


class Part(msgspec.Struct, gc=False):
    """One part of a message's content."""

    type: Any = None
    text: msgspec.Raw = NOTHING
    content: msgspec.Raw = NOTHING  # of a tool's result, on the messages wire


_read_parts = msgspec.json.Decoder(list[Part]).decode


# ── single members ──


def not_readable(body: bytes, error: msgspec.DecodeError, *, of: str = "messages") -> GatewayError:
    """The words for a body that a parser refused; `of` is the member that must be a list of objects."""
    text = str(error)
    if isinstance(error, msgspec.ValidationError) and "out of range" not in text:
        where = text.rpartition("`$")[2].rstrip("`")
        if where.startswith(f".{of}"):
            place = where[1:]
            what = "must be an object" if "[" in place else f"must be a list of {of}"
            return invalid_value(of, f"{place} {what}")
        return invalid_json("the body must be one JSON object")
    if has_broken_text(body):
        return invalid_utf8("a text in the body has a NUL, or half of a surrogate pair (\\ud800 to \\udfff)")
    if not body.strip():
        return invalid_json("the body is empty; send one JSON object")
    return invalid_json(f"the body is not JSON: {text.removeprefix('JSON is malformed: ')}")


def absent_or_null(param: str, seen: Places) -> GatewayError:
    """A member that must be there, and is not."""
    if param in seen.names:
        return invalid_value(param, f"{param} must not be null")
    return missing_field(param)


def model_named(value: object, seen: Places) -> str:
    """The model's name. Raises GatewayError: there is none, or nothing can have it."""
    if value is None:
        raise absent_or_null("model", seen)
    if not isinstance(value, str):
        raise invalid_value("model", "model must be a string")
    if not value.isprintable() and any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in value):
        raise invalid_value("model", "model has a control character")
    if not value or len(value) > MAX_MODEL_BYTES or len(value.encode()) > MAX_MODEL_BYTES:
        raise model_not_found(
            f'no model is named "{shown(value)}": a name has 1 to {MAX_MODEL_BYTES} bytes; '
            "GET /v1/models lists them"
        )
    return value


def flag(param: str, value: object) -> bool:
    """A switch; null is off."""
    if value is None or value is False:
        return False
    if value is True:
        return True
    raise invalid_value(param, f"{param} must be true or false")


def limit(param: str, value: object) -> int | None:
    """A number of tokens that the client sets; None: it sets none."""
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= MAX_OUTPUT_TOKENS:
        raise invalid_value(param, f"{param} must be a whole number from 1 to {MAX_OUTPUT_TOKENS}")
    return value


def count(param: str, value: object, most: int) -> int:
    """How many of something the client asks for; null is one."""
    if value is None:
        return 1
    if type(value) is not int or not 1 <= value <= most:
        raise invalid_value(param, f"{param} must be a whole number from 1 to {most}")
    return value


def member(value: Any, name: str) -> object:
    """A member of what may be an object; None where it is none, or has none of this name."""
    return value.get(name) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType] - foreign JSON


def label(value: bytes) -> str | None:
    """A header's value as an id or a label."""
    return clean_id(value.decode("utf-8", "replace"))


def is_filled(raw: msgspec.Raw) -> bool:
    """True if it is a list with something in it. What is neither a list nor null counts too."""
    if raw is NOTHING:
        return False
    if len(raw) > _FILLED:
        return True
    value = bytes(raw)
    return value not in (b"", b"null") and value[1:-1].strip() != b""


# ── contents ──


def is_list(raw: msgspec.Raw) -> bool:
    """True for content in parts."""
    view = memoryview(raw)
    return bool(view) and view[0] == _LIST


def parts_of(content: msgspec.Raw) -> list[Part]:
    """The parts of a list; those that are no objects are left out."""
    try:
        return _read_parts(content)
    except msgspec.ValidationError:
        found: list[Part] = []
        for raw in msgspec.json.decode(content, type=list[msgspec.Raw]):
            try:
                found.append(msgspec.json.decode(raw, type=Part))
            except msgspec.ValidationError:
                continue
        return found


def kinds_of(parts: Iterable[Part]) -> set[str]:
    """What kinds of part are among them."""
    return {part.type for part in parts if isinstance(part.type, str)}


def text_of(content: msgspec.Raw) -> tuple[bytes, bytes]:
    """The beginning of a text and, if it is longer, its end, in UTF-8; of a list its last part of text."""
    if len(content) <= FENCE_BYTES:
        text = bytes(content)
        if text.startswith(b'"') and b"\\u" not in text:
            return text[1:-1], b""
    view = memoryview(content)
    if view and view[0] == _LIST:
        view = _last_text_part(content)
    if not view or view[0] != _QUOTE:
        return b"", b""
    size = len(view) - 2  # without its quotes
    if size <= FENCE_BYTES:
        return _readable(bytes(view[1:-1])), b""
    return _readable(bytes(view[1 : FENCE_BYTES + 1])), _readable(bytes(view[-TAIL_BYTES - 1 : -1]))


def _last_text_part(content: msgspec.Raw) -> memoryview:
    for part in reversed(parts_of(content)):
        if part.type in ("text", "input_text"):
            return memoryview(part.text)
    return memoryview(b"")


def _readable(piece: bytes) -> bytes:
    """A piece of a text as it stands in JSON; where it has escapes (`\\u7ffb`), without them."""
    if b"\\u" not in piece:
        return piece
    first = piece.find(b"\\u")
    for start in (0, first, first + 6) if first < 12 else (0,):  # it may begin inside an escape or a pair
        end = len(piece)
        for _ in range(3):  # and end inside one
            try:
                return _read_text(b'"' + piece[start:end] + b'"').encode()
            except (msgspec.DecodeError, UnicodeError):
                end = piece.rfind(b"\\", start, end)
                if end <= start:
                    break
    return piece
