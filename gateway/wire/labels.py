"""What a request's headers say it is for: ids and labels, cleaned. The team comes from the key and is none of them."""

from collections.abc import Iterable
from operator import itemgetter

import msgspec

from routers.session import clean_id

_LABELS = {
    b"x-faregate-session": "session",
    b"x-claude-code-session-id": "client_session",
    b"session_id": "client_session",
    b"x-faregate-application": "application",
    b"x-faregate-feature": "feature",
    b"x-faregate-customer": "customer",
    b"x-faregate-task": "task",
}
_NAMES = frozenset(_LABELS)
_name_of = itemgetter(0)


class Labels(msgspec.Struct, frozen=True, gc=False):
    """The labels of one request. None: there is none."""

    session: str | None = None  # as our own header names it
    client_session: str | None = None  # as a client's own header names it: Claude Code's, Codex's
    application: str | None = None
    feature: str | None = None
    customer: str | None = None
    task: str | None = None


NO_LABELS = Labels()


def has_none(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """True if no header is a label."""
    return _NAMES.isdisjoint(map(_name_of, headers))


def labels_in(headers: Iterable[tuple[bytes, bytes]]) -> Labels:
    """The labels among headers (names in lower case); of a repeated one the last."""
    found: dict[str, str | None] = {}
    for name, value in headers:
        field = _LABELS.get(name)
        if field is not None:
            found[field] = clean_id(value.decode("utf-8", "replace"))
    return Labels(**found) if found else NO_LABELS
