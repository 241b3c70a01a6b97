"""Names the session that a request belongs to: by an id that the client sends, else by how its prompt begins.

The requests of one session share a growing prefix, so the beginning of the prompt (tools, system texts, the
first user message) is the same in all of them, and it tells one session from another well enough to keep a
session on its side of a split and its cache warm. Two clients that begin alike share a name; the key is part
of it, so two keys never do.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b

MAX_ID = 128  # characters of an id
PREFIX_BYTES = 65_536  # of the prompt's beginning that are hashed, at most

_NOISE = b"x-anthropic-billing-header"
# Claude Code puts a text of this name first in its system text, and it changes with every request
# (anthropics/claude-code#68900, read 2026-11).
_NOISE_WITHIN = 256  # bytes of a part's beginning
_find_noise = re.compile(_NOISE).search
_BEGINNINGS = b"%%.%db %%.%db %%.%db" % (_NOISE_WITHIN, _NOISE_WITHIN, _NOISE_WITHIN)


def clean_id(text: object) -> str | None:
    """A client's id as it may be kept: printable, at most 128 characters. None: there is none in it."""
    if not text or not isinstance(text, str):
        return None
    text = text[:MAX_ID]
    if not text.isprintable():
        text = "".join(c for c in text if c.isprintable())
    return text.strip() or None


def session_in_user_id(user_id: object) -> str | None:
    """The session inside Claude Code's `metadata.user_id`. None: it is only a user."""
    if not isinstance(user_id, str):
        return None
    _, found, session = user_id.rpartition("_session_")
    if not found and user_id.startswith("{"):
        _, found, rest = user_id.partition('"session_id":')
        session = rest.lstrip(' "').partition('"')[0]
    return clean_id(session) if found else None


def user_in_user_id(user_id: object) -> str | None:
    """The user inside Claude Code's `metadata.user_id`, without the session; of any other user id all of it."""
    if not isinstance(user_id, str):
        return None
    before, found, _ = user_id.rpartition("_session_")
    if found:
        return clean_id(before)
    if user_id.startswith("{"):
        _, found, rest = user_id.partition('"device_id":')
        if found:
            return clean_id(rest.lstrip(' "').partition('"')[0])
    return clean_id(user_id)


def session_from_prefix(key_id: str, prefix: Iterable[bytes | memoryview]) -> str:
    """A name from the prompt's beginning: its parts as the client sent them, in a fixed order."""
    digest = blake2b(key_id.encode(), digest_size=16)
    left = PREFIX_BYTES
    for part in prefix:
        size = len(part)
        if size > left:
            part = memoryview(part)[:left]
            left = 0
        else:
            left -= size
        digest.update(b"%d:" % size)  # parts may not run together
        noise = _find_noise(part, 0, _NOISE_WITHIN)
        if noise is not None:
            after = bytes(part).find(b'"', noise.start())
            part = part[after:] if after >= 0 else b""
        digest.update(part)
        if not left:
            break
    return f"prefix-{digest.hexdigest()}"


def session_from_opening(key_id: str, tools: bytes, system: bytes | None, user: bytes) -> str:
    """What `session_from_prefix` says of tools, one system text (None: there is none) and a user message.

    Together they have at most PREFIX_BYTES.
    """
    if _NOISE in _BEGINNINGS % (tools, system or b"", user):
        parts = (tools, user) if system is None else (tools, system, user)
        return session_from_prefix(key_id, map(memoryview, parts))
    if system is None:
        opening = b"%b%d:%b%d:%b" % (key_id.encode(), len(tools), tools, len(user), user)
    else:
        opening = b"%b%d:%b%d:%b%d:%b" % (
            key_id.encode(), len(tools), tools, len(system), system, len(user), user
        )  # fmt: skip
    return "prefix-" + blake2b(opening, digest_size=16).hexdigest()
