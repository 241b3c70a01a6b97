"""What follows from a request's headers alone: who asks, which of them go on to the provider, which come back.

A client sends the same headers again and again. Where its server knows a head again (`gateway.known_head`), what
was worked out stays beside it, and holds as long as the keys and the configuration are the same.
"""

from collections.abc import Mapping

from gateway import errors
from gateway.auth import Caller, KeyRing
from gateway.live import Live
from gateway.sink import Scope
from gateway.wire.headers import client_request_id, to_provider
from routers.decide import CallerLimits

Headers = list[tuple[bytes, bytes]]

_ANY = CallerLimits()
_JSON = (b"application/json", b"text/json")


class Asking:
    """One head's meaning."""

    __slots__ = ("caller", "generation", "headers", "limits", "live", "outgoing", "returned")

    def __init__(self, headers: Headers, caller: Caller, generation: int, live: Live) -> None:
        """Raises GatewayError for a body that is not JSON by its headers, or a header that cannot go on."""
        named = dict(headers)
        check_media_type(headers, named)
        self.headers = headers
        self.caller = caller
        self.generation = generation  # of the keys
        self.live = live
        self.limits = limits_of(live, caller)
        self.outgoing = to_provider(headers, owner=caller.key_id)
        self.returned = returned_headers(headers, named)  # of the client's own, on every answer


def asking(scope: Scope, keys: KeyRing, live: Live, now: float) -> Asking:
    """Who asks, and how; `now` is wall time in seconds. Raises GatewayError."""
    head = scope.get("head")
    if head is not None:
        known: Asking | None = head.notes
        if (
            known is not None
            and known.generation == keys.generation
            and known.live is live
            and now < known.caller.until
        ):
            return known
    headers: Headers = scope["headers"]
    caller = keys.caller_of(headers, address=scope["client"][0], now=now)
    found = Asking(headers, caller, keys.generation, live)
    if head is not None:
        head.notes = found
    return found


def limits_of(live: Live, caller: Caller) -> CallerLimits:
    """What the key allows, within what its team allows."""
    team = live.team_limits.get(caller.team, _ANY)
    if caller.tiers is None and caller.regions is None:
        return team
    return CallerLimits(tiers=caller.tiers, regions=caller.regions).within(team)


def returned_headers(headers: Headers, named: Mapping[bytes, bytes]) -> Headers:
    """The client's own request id, under a name beside ours."""
    if b"x-request-id" not in named:
        return []
    own = [client_request_id(value) for name, value in headers if name == b"x-request-id"]
    return [(b"x-client-request-id", one.encode()) for one in own if one is not None]


def check_media_type(headers: Headers, named: Mapping[bytes, bytes]) -> None:
    """JSON in UTF-8, not packed; no content type at all counts as JSON. Raises GatewayError otherwise.

    `named`: the headers by name, to pass the common case at once.
    """
    is_plain = len(named) == len(headers) and b"content-encoding" not in named
    if is_plain and named.get(b"content-type") in _JSON:
        return
    for name, value in headers:
        if name == b"content-type":
            kind, _, rest = value.lower().partition(b";")
            if kind.strip() not in _JSON and not kind.strip().endswith(b"+json"):
                raise errors.unsupported_media_type(value.decode("latin-1"))
            charset = rest.partition(b"charset=")[2].strip(b' "')
            if charset and charset not in (b"utf-8", b"utf8"):
                raise errors.unsupported_media_type(value.decode("latin-1"))
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise errors.unsupported_content_encoding(value.decode("latin-1"))
