"""What a JSON body that breaks off still tells: it is closed where it broke.

Half of a text is kept, since it is a part of what was produced. Half of a number is not, and half of a name neither:
`12` may be the beginning of 1,200, and `gpt-5` that of another model's name.
"""

import re
from collections.abc import Callable
from typing import Final

from gateway.wire.provider_words import untyped

_MAX_BYTES: Final = 1 << 20  # of a body that are looked through
_DEEPEST: Final = 32
_NAMES: Final = (
    b"model",
    b"modelVersion",
    b"service_tier",
    b"serviceTier",
    b"trafficType",
    b"inference_geo",
    b"speed",
    b"ttl",
    b"type",
)

# A text that never ends is one token too, so that nothing is searched twice.
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+("|\\?\Z)|[{}\[\],]', re.DOTALL)
_KEY_BEFORE: Final = re.compile(rb'"(\w{1,64})"\s*+:\s*+\Z')
_LONGEST_KEY: Final = 100
_IN_NUMBER: Final = frozenset(b"0123456789+-.eE")


def mended(body: bytes, is_answer: Callable[[object], bool]) -> object:
    """The value of a body that breaks off, as far as it goes; None: it holds none that `is_answer` knows."""
    body = body[:_MAX_BYTES].lstrip()
    if body[:1] not in (b"{", b"["):
        return None
    closers: list[bytes] = []
    last_comma: tuple[int, bytes] | None = None  # where it stands, and what closes all that was open there
    text_start: int | None = None  # where the text begins inside which the body broke
    for token in _STRUCTURE.finditer(body):
        text = token[0]
        if token[1] is not None:
            text_start = token.start() if token[1] != b'"' else None
        elif text in (b"{", b"["):
            closers.append(b"}" if text == b"{" else b"]")
            if len(closers) > _DEEPEST:
                return None
        elif text in (b"}", b"]"):
            if not closers:
                return None
            closers.pop()
        elif text == b",":
            last_comma = (token.start(), b"".join(reversed(closers)))
    for candidate in _candidates(body, b"".join(reversed(closers)), text_start, last_comma):
        value = untyped(candidate)
        if value is not None and is_answer(value):
            return value
    return None


def _candidates(
    body: bytes, close: bytes, text_start: int | None, last_comma: tuple[int, bytes] | None
) -> list[bytes]:
    tries: list[bytes] = []
    if text_start is not None:
        key = _KEY_BEFORE.search(body[max(0, text_start - _LONGEST_KEY) : text_start])
        if key is None or key[1] not in _NAMES:
            # Up to five bytes of an escape may be lost.
            broken = re.sub(rb"\\(?:u[0-9A-Fa-f]{0,3})?\Z", b"", body)
            tries += [body + b'"' + close, broken + b'"' + close]
    elif body[-1] not in _IN_NUMBER:
        tries.append(body + close)
    if last_comma is not None:
        tries.append(body[: last_comma[0]] + last_comma[1])
    return tries
